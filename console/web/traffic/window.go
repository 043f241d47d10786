package traffic

import "time"

const (
	hour    = 60 // minutes that are counted
	seconds = 10 // of the rate
)

// window counts in the last minutes or seconds, one number for each.
type window struct {
	at     int64 // the newest, since the epoch
	counts []uint32
}

func newWindow(size int) window { return window{counts: make([]uint32, size)} }

// move makes the window end at a time, and tells whether counts other than 0 left it.
func (w *window) move(to int64) (left bool) {
	size := int64(len(w.counts))
	for n := min(to-w.at, size); n > 0; n-- {
		slot := &w.counts[(to-n+1)%size]
		left = left || *slot != 0
		*slot = 0
	}
	w.at = max(w.at, to)
	return left
}

// add counts n at a time, if that is in the window: a time that is ahead of now is
// that of a node whose clock is, and counts as now.
func (w *window) add(at, now int64, n uint64) {
	w.move(now)
	size := int64(len(w.counts))
	if at = min(at, now); at > now-size {
		grow(&w.counts[at%size], n)
	}
}

func (w *window) sum() (n uint64) {
	for _, c := range w.counts {
		n += uint64(c)
	}
	return n
}

// grow adds n to a count, which stays at its greatest number.
func grow(count *uint32, n uint64) { *count = uint32(min(uint64(*count)+n, 1<<32-1)) }

// rate counts in the last ten seconds.
type rate struct {
	window
	// perMinute is the count of a minute that was reported at its end. It stands for the minute
	// after, until the second until.
	perMinute uint32
	until     int64
}

func (r *rate) move(now int64) {
	if r.window.move(now); r.until <= now {
		r.perMinute = 0
	}
}

// addMinute adds a count of the minute before.
func (r *rate) addMinute(now int64, n uint64) {
	r.move(now)
	if r.until <= now {
		r.until = now + 60
	}
	grow(&r.perMinute, n)
}

func (r *rate) perSecond() float64 { return float64(r.sum())/seconds + float64(r.perMinute)/60 }

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }
