package enforcer

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// deviationGrace is how long something may deviate before it is reported: most
// deviations are repaired within a fraction of it.
const deviationGrace = time.Second

// writeGrace is how long a write or a comparison may take before it is reported as a
// deviation: most take less than a second.
const writeGrace = 5 * time.Second

// The sources of deviations. Each replaces its own.
const (
	fromKernel    = "kernel"    // the comparison of the kernel with the wanted state
	fromRepair    = "repair"    // repairs that failed
	fromHeartbeat = "heartbeat" // interception that is not renewed
	fromSwitch    = "switch"    // what the other dataplane left
	fromBridges   = "bridges"   // what netfilter does not see
)

// drift is what deviates now. It has a lock of its own: probes ask for it while a write
// waits for another program.
type drift struct {
	mu       sync.Mutex
	bySource map[string][]Deviation
}

// report replaces the deviations of a source. An object that deviated before keeps its
// time.
func (d *drift) report(source string, now time.Time, cause error, objects ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bySource == nil {
		d.bySource = map[string][]Deviation{}
	}
	last := d.bySource[source]
	var next []Deviation
	for _, o := range objects {
		dev := Deviation{Object: o, Since: now}
		if i := slices.IndexFunc(last, func(l Deviation) bool { return l.Object == o }); i >= 0 {
			dev.Since = last[i].Since
		}
		if cause != nil {
			dev.Error = cause.Error()
		}
		next = append(next, dev)
	}
	d.bySource[source] = next
}

// since returns the deviations that are at least as old as age, sorted by object.
func (d *drift) since(now time.Time, age time.Duration) []Deviation {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Deviation
	for _, all := range d.bySource {
		for _, dev := range all {
			if now.Sub(dev.Since) >= age {
				out = append(out, dev)
			}
		}
	}
	slices.SortFunc(out, func(a, b Deviation) int { return strings.Compare(a.Object, b.Object) })
	return out
}

// Deviations returns what has not been as wanted for more than a second, sorted by
// object, and at last a write that takes long. It waits for no write.
func (e *Enforcer) Deviations() []Deviation {
	now := e.now()
	out := e.drift.since(now, deviationGrace)
	if began := e.apply.began.Load(); began != nil && now.Sub(*began) >= writeGrace {
		out = append(out, Deviation{Object: "write", Since: *began, Error: writing})
	}
	return out
}

const writing = "a write or a comparison has not ended; another program may hold a lock"

// writeLock is a lock that tells since when it is held.
type writeLock struct {
	sync.Mutex
	now   func() time.Time
	began atomic.Pointer[time.Time] // nil while it is free
}

func (l *writeLock) Lock() {
	l.Mutex.Lock()
	l.begin()
}

func (l *writeLock) TryLock() bool {
	free := l.Mutex.TryLock()
	if free {
		l.begin()
	}
	return free
}

func (l *writeLock) Unlock() {
	l.began.Store(nil)
	l.Mutex.Unlock()
}

func (l *writeLock) begin() {
	now := l.now()
	l.began.Store(&now)
}

// suspect has the kernel compared with the wanted state soon. It never waits.
func (e *Enforcer) suspect() {
	select {
	case e.suspected <- struct{}{}:
	default:
	}
}
