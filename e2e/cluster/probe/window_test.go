package probe

import (
	"fmt"
	"testing"
	"time"
)

func TestWatchOfAnOpenAddress(t *testing.T) {
	s := serve(t)
	w := Watch(t.Context(), fmt.Sprintf("127.0.0.1:%d", s.Port), time.Second)
	if w.Opened < 2 || w.Denied != 0 || w.OpenAgain || !w.Survived {
		t.Errorf("%+v, want several connections and the first alive", w)
	}
}

func TestWatchSeesTheEndOfTheWindow(t *testing.T) {
	s := serve(t)
	go func() {
		time.Sleep(500 * time.Millisecond)
		s.Close()
	}()
	w := Watch(t.Context(), fmt.Sprintf("127.0.0.1:%d", s.Port), 3*time.Second)
	if w.Opened == 0 || w.Denied == 0 || w.OpenAgain || w.LastMillis > 3000 {
		t.Errorf("%+v, want connections, then denials, and none after that", w)
	}
	if !w.Survived {
		t.Errorf("%+v: the first connection was not cut", w)
	}
}
