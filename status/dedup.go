package status

import "time"

// How often an Event comes again. The API server keeps Events for an hour by default: 50
// minutes keep the Event of a lasting cause. A cause that ended and came back has an Event
// again, but not each time that it flaps.
const (
	repeatAfter   = 50 * time.Minute
	returnedAfter = 10 * time.Minute
	// maxPerRound bounds a burst; the rest comes in the next rounds.
	maxPerRound = 32
)

// eventKey identifies an Event: a reason of one object.
type eventKey struct {
	kind, object, reason string
}

// dedup says which Events to emit. It works in rounds: in each one, due is called for every
// Event whose cause holds. It is for one goroutine.
type dedup struct {
	emitted map[eventKey]*emission
	left    int // of maxPerRound
}

// emission is the last Event of a key.
type emission struct {
	at      time.Time
	holds   bool // the cause holds in this round
	stopped bool // the cause did not hold in some round since
}

// begin begins a round.
func (d *dedup) begin() {
	for _, e := range d.emitted {
		e.holds = false
	}
	d.left = maxPerRound
}

// due notes that the cause of an Event holds and tells whether to emit the Event now.
func (d *dedup) due(now time.Time, key eventKey) bool {
	e := d.emitted[key]
	if e != nil {
		if e.holds {
			return false // another cause of this round has the same key
		}
		e.holds = true
		age := now.Sub(e.at)
		if age < returnedAfter || age < repeatAfter && !e.stopped {
			return false
		}
	}
	if d.left == 0 {
		return false
	}
	d.left--
	if d.emitted == nil {
		d.emitted = map[eventKey]*emission{}
	}
	d.emitted[key] = &emission{at: now, holds: true}
	return true
}

// end ends a round. Events are forgotten whose cause ended and whose last emission is long ago.
func (d *dedup) end(now time.Time) {
	for key, e := range d.emitted {
		e.stopped = e.stopped || !e.holds
		if !e.holds && now.Sub(e.at) >= returnedAfter {
			delete(d.emitted, key)
		}
	}
}
