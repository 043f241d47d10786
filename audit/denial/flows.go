package denial

import (
	"slices"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
)

const (
	// period is how long alike connections are counted before a line says how many
	// there were.
	period = time.Minute
	// judgedFor is how long the reason of a flow is not computed again.
	judgedFor = time.Second
	// maxCounted bounds the flows that are counted at a time, countedOfPod the flows of
	// one pod, so that a port scan by one pod leaves room for the others.
	maxCounted   = 4096
	countedOfPod = 256
	// recentOfPod bounds the remembered flows of a pod, maxRecent all remembered flows.
	recentOfPod = 64
	maxRecent   = 4096
)

// tally counts alike connections.
type tally struct {
	key    key
	serial uint64 // of its beginning
	// flow describes the connections, with their count.
	flow   audit.Flow
	judged time.Time
	// until is when the present period ends.
	until time.Time
	// count is how many no line tells of yet, first and last when.
	count       uint64
	first, last time.Time
	told        bool // a line tells of the first
}

// flows are the tallies. It is not safe for several goroutines.
type flows struct {
	counted   map[key]*tally
	ofPod     map[policy.PodRef]int // of counted
	lately    map[policy.PodRef][]*tally
	latelyAll int
	serial    uint64
	// next is before the end of every period.
	next time.Time
}

func newFlows() flows {
	return flows{counted: map[key]*tally{}, ofPod: map[policy.PodRef]int{}, lately: map[policy.PodRef][]*tally{}}
}

// at returns the tally that counts, nil without one.
func (f *flows) at(k key) *tally { return f.counted[k] }

// open begins to count, or returns nil where too much is counted. For a pod that has
// less than others what one of these has is written, and let go.
func (f *flows) open(k key, now time.Time, write func(*audit.Flow)) *tally {
	if f.ofPod[k.pod] >= countedOfPod || len(f.counted) >= maxCounted && !f.makeRoom(k.pod, write) {
		return nil
	}
	i := slices.IndexFunc(f.lately[k.pod], func(t *tally) bool { return t.key == k })
	var t *tally
	if i >= 0 {
		t = f.lately[k.pod][i]
	} else {
		f.serial++
		t = &tally{key: k, serial: f.serial}
	}
	t.until, t.count, t.told = now.Add(period), 0, false
	f.counted[k] = t
	f.ofPod[k.pod]++
	if len(f.counted) == 1 || t.until.Before(f.next) {
		f.next = t.until
	}
	return t
}

// makeRoom lets go of the oldest flow of the pod that has most, if that leaves it no
// less than the pod that needs the room.
func (f *flows) makeRoom(pod policy.PodRef, write func(*audit.Flow)) bool {
	var greedy policy.PodRef
	for p, n := range f.ofPod {
		if n > f.ofPod[greedy] {
			greedy = p
		}
	}
	if f.ofPod[greedy] <= f.ofPod[pod]+1 {
		return false
	}
	var oldest *tally
	for k, t := range f.counted {
		if k.pod == greedy && (oldest == nil || t.until.Before(oldest.until)) {
			oldest = t
		}
	}
	if oldest.count > 0 {
		write(oldest.line(oldest.count))
	}
	f.letGo(oldest)
	return true
}

// letGo ends the counting of a flow.
func (f *flows) letGo(t *tally) {
	delete(f.counted, t.key)
	if f.ofPod[t.key.pod]--; f.ofPod[t.key.pod] == 0 {
		delete(f.ofPod, t.key.pod)
	}
}

// begin sets the flow of a tally, and remembers it.
func (f *flows) begin(t *tally, flow audit.Flow) {
	t.judge(flow)
	mine := f.lately[t.key.pod]
	if slices.Contains(mine, t) {
		return
	}
	if len(mine) == recentOfPod {
		oldest := slices.MaxFunc(mine, newer)
		mine = slices.DeleteFunc(mine, func(o *tally) bool { return o == oldest })
		f.latelyAll--
	}
	f.lately[t.key.pod] = append(mine, t)
	if f.latelyAll++; f.latelyAll > maxRecent {
		f.forgetOne(t)
	}
}

// forgetOne removes the oldest remembered flow.
func (f *flows) forgetOne(but *tally) {
	var oldest *tally
	for _, mine := range f.lately {
		for _, t := range mine {
			if t != but && (oldest == nil || newer(t, oldest) > 0) {
				oldest = t
			}
		}
	}
	pod := oldest.key.pod
	f.lately[pod] = slices.DeleteFunc(f.lately[pod], func(o *tally) bool { return o == oldest })
	if len(f.lately[pod]) == 0 {
		delete(f.lately, pod)
	}
	f.latelyAll--
}

// judge replaces the description of the flow, except for its counts.
func (t *tally) judge(flow audit.Flow) {
	t.judged = flow.Last
	if t.flow.Count > 0 {
		flow.Time, flow.Last, flow.Count = t.flow.Time, t.flow.Last, t.flow.Count
	}
	t.flow = flow
}

// add counts one, and tells whether it is the first, of which a line is due at once.
func (t *tally) add(now time.Time) (first bool) {
	t.flow.Count++
	if now.After(t.flow.Last) {
		t.flow.Last = now
	}
	if !t.told {
		t.told, t.first, t.last = true, now, now
		return true
	}
	if t.count++; t.count == 1 {
		t.first = now
	}
	t.last = now
	return false
}

// line is a flow of so many connections.
func (t *tally) line(count uint64) *audit.Flow {
	f := t.flow
	f.Time, f.Last, f.Count = t.first, t.last, count
	return &f
}

// close ends the periods that are over. A flow with new connections is written and
// counted on, any other is removed.
func (f *flows) close(now time.Time, write func(*audit.Flow)) {
	if len(f.counted) == 0 || now.Before(f.next) {
		return
	}
	var over []*tally
	f.next = now.Add(period)
	for _, t := range f.counted {
		if !now.Before(t.until) {
			over = append(over, t)
		} else if t.until.Before(f.next) {
			f.next = t.until
		}
	}
	slices.SortFunc(over, func(a, b *tally) int { return a.until.Compare(b.until) })
	for _, t := range over {
		if t.count == 0 {
			f.letGo(t)
			continue
		}
		write(t.line(t.count))
		t.count, t.until = 0, now.Add(period)
	}
}

// recent returns the remembered flows of a pod, the newest first.
func (f *flows) recent(pod policy.PodRef) []audit.Flow {
	mine := slices.SortedFunc(slices.Values(f.lately[pod]), newer)
	out := make([]audit.Flow, len(mine))
	for i, t := range mine {
		out[i] = t.flow
	}
	return out
}
