package limit

import (
	"testing"
	"time"
)

// TestBusyIsNotHung: there is always a query under way, of at most two seconds.
func TestBusyIsNotHung(t *testing.T) {
	var w Watchdog
	var epochs []uint32
	for sec := range 200 {
		if epochs = append(epochs, w.Begin()); len(epochs) > 2 {
			w.End(epochs[0])
			epochs = epochs[1:]
		}
		if w.Hung(time.Duration(sec)*time.Second, 10*time.Second) {
			t.Fatalf("hung at %d s", sec)
		}
	}
}

// TestHungQueryIsNoticed: one query that does not end is enough, however many
// others do, and not before its time.
func TestHungQueryIsNoticed(t *testing.T) {
	const most = 10 * time.Second
	for began := range 40 {
		var w Watchdog
		var hung uint32
		noticed := -1
		for sec := range 80 {
			if sec == began {
				hung = w.Begin()
			}
			other := w.Begin()
			if w.Hung(time.Duration(sec)*time.Second, most) && noticed < 0 {
				noticed = sec
			}
			w.End(other)
		}
		if after := noticed - began; noticed < 0 || after <= 10 || after > 22 {
			t.Errorf("begun at %d s, noticed at %d s", began, noticed)
		}
		w.End(hung)
		if w.Hung(81*time.Second, most) || w.Hung(82*time.Second, most) {
			t.Error("the query ended, and the proxy calls itself hung")
		}
	}
}

func TestClockSetBack(t *testing.T) {
	var w Watchdog
	w.Begin()
	for _, now := range []time.Duration{time.Hour, time.Minute, time.Minute + time.Second} {
		if w.Hung(now, 10*time.Second) {
			t.Errorf("hung at %v", now)
		}
	}
}
