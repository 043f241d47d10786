package probe

import (
	"fmt"
	"testing"
	"time"
)

func TestWatchOfAnOpenAddress(t *testing.T) {
	s := serve(t)
	w := Watch(t.Context(), fmt.Sprintf("127.0.0.1:%d", s.Port), 60*time.Millisecond)
	if w.Opened < 2 || w.Denied != 0 || w.OpenAgain || !w.Survived {
		t.Errorf("%+v, want several connections and the first alive", w)
	}
}

func TestWatchSeesTheEndOfTheWindow(t *testing.T) {
	s := serve(t)
	go func() {
		time.Sleep(50 * time.Millisecond)
		s.Close()
	}()
	w := Watch(t.Context(), fmt.Sprintf("127.0.0.1:%d", s.Port), 300*time.Millisecond)
	if w.Opened == 0 || w.Denied == 0 || w.OpenAgain || w.LastMillis > 300 {
		t.Errorf("%+v, want connections, then denials, and none after that", w)
	}
	if !w.Survived {
		t.Errorf("%+v: the first connection was not cut", w)
	}
}
