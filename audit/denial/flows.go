package denial

import (
	"slices"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/share"
)

const (
	// period is how long alike connections are counted before a line says how many
	// there were.
	period = time.Minute
	// judgedFor is how long the reason of a flow is not computed again.
	judgedFor = time.Second
	// maxPods bounds the pods of which flows are remembered. A node has fewer, so that others are pods that are gone.
	maxPods = 512
)

// countedFlows and recentFlows are the bounds of the flows that are counted at a time, and of those that are remembered:
// a port scan by one pod leaves room for the others.
var (
	countedFlows = share.Bound{Resource: "denied connections that are counted", Least: 1, Each: 256, All: 3840}
	recentFlows  = share.Bound{Resource: "denied connections that are remembered", Least: 1, Each: 64, All: 3840}
)

// tally counts alike connections.
type tally struct {
	key key
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
	counted map[key]*tally
	ofPod   map[policy.PodRef]int // of counted
	recent  *share.Recent[policy.PodRef, key, *tally]
	// next is before the end of every period.
	next time.Time
}

func newFlows() flows {
	return flows{counted: map[key]*tally{}, ofPod: map[policy.PodRef]int{}, recent: share.NewRecent[policy.PodRef, key, *tally](recentFlows, maxPods)}
}

// at returns the tally that counts, nil where too much is counted; began tells whether it begins to.
func (f *flows) at(k key, now time.Time) (t *tally, began bool) {
	if t = f.counted[k]; t == nil {
		if countedFlows.Room(f.ofPod[k.pod], len(f.counted)) < 1 {
			return nil, false
		}
		if t, _ = f.recent.Get(k.pod, k); t == nil {
			t = &tally{key: k}
		}
		t.until, t.count, t.told, began = now.Add(period), 0, false, true
		f.counted[k] = t
		f.ofPod[k.pod]++
		if len(f.counted) == 1 || t.until.Before(f.next) {
			f.next = t.until
		}
	}
	f.recent.Put(k.pod, k, t)
	return t, began
}

// letGo ends the counting of a flow.
func (f *flows) letGo(t *tally) {
	delete(f.counted, t.key)
	if f.ofPod[t.key.pod]--; f.ofPod[t.key.pod] == 0 {
		delete(f.ofPod, t.key.pod)
	}
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

// lately returns the remembered flows of a pod, the newest first.
func (f *flows) lately(pod policy.PodRef) (out []audit.Flow) {
	for _, t := range slices.Backward(f.recent.Of(pod)) {
		out = append(out, t.flow)
	}
	slices.SortStableFunc(out, func(a, b audit.Flow) int { return b.Last.Compare(a.Last) })
	return out
}
