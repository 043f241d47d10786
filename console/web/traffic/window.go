package traffic

import "time"

const (
	hour    = 60 // minutes that are counted
	seconds = 10 // of the rate
)

// ring counts in the last hour, one number a minute. The zero value has no counts.
type ring struct {
	at     int64 // the newest minute, since the epoch
	counts [hour]uint32
}

// move makes the ring end at a minute, and tells whether counts other than 0 left it.
func (r *ring) move(to int64) (left bool) {
	for n := min(to-r.at, hour); n > 0; n-- {
		slot := &r.counts[(to-n+1)%hour]
		left = left || *slot != 0
		*slot = 0
	}
	r.at = max(r.at, to)
	return left
}

// add counts n at a minute, and tells whether it is one of the ring: a time that is ahead of now is
// that of a node whose clock is, and counts as now.
func (r *ring) add(minute, now int64, n uint64) (counted bool) {
	r.move(now)
	if minute = min(minute, now); minute <= now-hour {
		return false
	}
	slot := &r.counts[minute%hour]
	*slot = uint32(min(uint64(*slot)+n, 1<<32-1))
	return true
}

func (r *ring) sum() (n uint64) {
	for _, c := range r.counts {
		n += uint64(c)
	}
	return n
}

// rate counts in the last ten seconds.
type rate struct {
	at     int64
	counts [seconds]uint32
	// perMinute is the count of a minute that was reported at its end. It stands for the minute
	// after, until the second until.
	perMinute uint32
	until     int64
}

func (r *rate) move(now int64) {
	for n := min(now-r.at, seconds); n > 0; n-- {
		r.counts[(now-n+1)%seconds] = 0
	}
	if r.at = max(r.at, now); r.until <= now {
		r.perMinute = 0
	}
}

func (r *rate) add(second, now int64, n uint64) {
	r.move(now)
	if second = min(second, now); second > now-seconds {
		slot := &r.counts[second%seconds]
		*slot = uint32(min(uint64(*slot)+n, 1<<32-1))
	}
}

// addMinute adds a count of the minute before.
func (r *rate) addMinute(now int64, n uint64) {
	r.move(now)
	if r.until <= now {
		r.until = now + 60
	}
	r.perMinute = uint32(min(uint64(r.perMinute)+n, 1<<32-1))
}

func (r *rate) perSecond() float64 {
	var n uint64
	for _, c := range r.counts {
		n += uint64(c)
	}
	return float64(n)/seconds + float64(r.perMinute)/60
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }
