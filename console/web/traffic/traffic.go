package traffic

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/namegate/namegate/audit"
)

// The bounds of what is held.
const (
	// MaxEdges is 50 names for each of 1,000 workloads.
	MaxEdges = 50_000
	// maxOfWorkload leaves room for others beside a workload that asks for random names.
	maxOfWorkload = 5_000
	// maxMatches is more than the 64 matches of 64 rules of some policies.
	maxMatches = 50_000
	// maxGone is for how many ends of edges a reader may be behind.
	maxGone = 10_000
)

// Traffic holds the edges of the last hour. It belongs to one goroutine, or stands under a lock.
type Traffic struct {
	edges      map[key]*cell
	ofWorkload map[workload]int
	active     map[*cell]bool // cells with a rate
	matches    map[matchKey]*hits
	now        time.Time
	minute     int64 // of the last look at every cell
	version    uint64
	gone       []gone
	ended      uint64 // the version of the newest end that gone does not have any more
	ids        uint64
	left       uint64
}

// workload tells workloads apart.
type workload struct{ node, namespace, name string }

// key tells edges apart.
type key struct {
	workload
	name, verdict string
}

// cell is an edge with its counts.
type cell struct {
	key
	edge    Edge
	version uint64 // when the edge was last changed
	hour    window
	rate    rate
}

type gone struct {
	id      string
	version uint64
}

// matchKey is a match of a policy.
type matchKey struct{ policy, path string }

type hits struct {
	window
	last time.Time
}

// New returns a Traffic without edges.
func New() *Traffic {
	return &Traffic{edges: map[key]*cell{}, ofWorkload: map[workload]int{}, active: map[*cell]bool{}, matches: map[matchKey]*hits{}}
}

// Add counts a line at a time that is not before that of an earlier call.
func (t *Traffic) Add(l *audit.Line, now time.Time) {
	t.Advance(now)
	t.match(l)
	e, counted := edgeOf(l)
	if !counted {
		return
	}
	at, n := e.Last, max(l.Count, 1)
	if minuteOf(at) <= t.minute-hour {
		return
	}
	c := t.cell(&e)
	if c == nil {
		t.left++
		return
	}
	c.hour.add(minuteOf(at), t.minute, n)
	if l.Last.After(l.Time) {
		c.rate.addMinute(now.Unix(), n)
	} else {
		c.rate.add(at.Unix(), now.Unix(), n)
	}
	if !at.Before(c.edge.Last) {
		c.edge.Last, c.edge.Policies, c.edge.Reason = at, e.Policies, e.Reason
	}
	t.active[c] = true
	t.change(c)
}

// cell returns the cell of an edge, nil where there is no room for a new one.
func (t *Traffic) cell(e *Edge) *cell {
	w := workload{e.Node, e.Namespace, e.Workload}
	k := key{w, e.Name, e.Verdict}
	if c := t.edges[k]; c != nil {
		return c
	}
	if len(t.edges) >= MaxEdges || t.ofWorkload[w] >= maxOfWorkload {
		return nil
	}
	t.ids++
	c := &cell{key: k, edge: *e, hour: newWindow(hour), rate: rate{window: newWindow(seconds)}}
	c.edge.ID = "e" + strconv.FormatUint(t.ids, 36)
	t.edges[k] = c
	t.ofWorkload[w]++
	return c
}

// change counts an edge again, which belongs to the next version if it has changed.
func (t *Traffic) change(c *cell) {
	c.edge.Count, c.edge.PerSecond = c.hour.sum(), c.rate.perSecond()
	c.version = t.version + 1
}

// Advance lets counts leave the hour and the rates. A time before that of an earlier call counts as
// that one.
func (t *Traffic) Advance(now time.Time) {
	if now.Unix() <= t.now.Unix() {
		return
	}
	t.now = now
	for c := range t.active {
		c.rate.move(now.Unix())
		if r := c.rate.perSecond(); r != c.edge.PerSecond {
			t.change(c)
		} else if r == 0 {
			delete(t.active, c)
		}
	}
	if minuteOf(now) == t.minute {
		return
	}
	t.minute = minuteOf(now)
	for _, c := range t.edges {
		if c.hour.move(t.minute) {
			t.change(c)
		}
		if c.edge.Count == 0 {
			t.end(c)
		}
	}
	for k, h := range t.matches {
		if h.move(t.minute); h.sum() == 0 {
			delete(t.matches, k)
		}
	}
}

// end takes an edge out.
func (t *Traffic) end(c *cell) {
	delete(t.edges, c.key)
	delete(t.active, c)
	if t.ofWorkload[c.workload]--; t.ofWorkload[c.workload] == 0 {
		delete(t.ofWorkload, c.workload)
	}
	t.gone = append(t.gone, gone{c.edge.ID, t.version + 1})
	if more := len(t.gone) - maxGone; more > 0 {
		t.ended = t.gone[more-1].version
		t.gone = slices.Delete(t.gone, 0, more)
	}
}

// Changes are the edges that changed after a version.
type Changes struct {
	Version uint64   `json:"-"`              // to ask from the next time
	Full    bool     `json:"full,omitempty"` // Edges are all
	Edges   []Edge   `json:"edges"`          // the busiest of the hour first
	Gone    []string `json:"gone,omitempty"` // ids of edges without connections in the last hour
	Total   int      `json:"total"`          // edges that are held
	Left    uint64   `json:"left"`           // lines so far that are in no edge: the bound was reached
}

// Since returns the edges that changed after a version, all for 0.
func (t *Traffic) Since(version uint64) Changes {
	out := Changes{Full: version == 0 || version < t.ended, Edges: []Edge{}, Total: len(t.edges), Left: t.left}
	for _, c := range t.edges {
		if out.Full || c.version > version {
			out.Edges = append(out.Edges, c.edge)
		}
	}
	if !out.Full {
		for _, g := range t.gone {
			if g.version > version {
				out.Gone = append(out.Gone, g.id)
			}
		}
	}
	slices.SortFunc(out.Edges, func(a, b Edge) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID)) })
	t.version++
	out.Version = t.version
	return out
}

// match counts the use of matches by a DNS decision.
func (t *Traffic) match(l *audit.Line) {
	for _, m := range l.Matches {
		if m.Path == "" || minuteOf(l.Time) <= t.minute-hour {
			continue // of a policy that the caller may not read, or too old
		}
		k := matchKey{m.Policy, m.Path}
		h := t.matches[k]
		if h == nil {
			if len(t.matches) >= maxMatches {
				continue
			}
			h = &hits{window: newWindow(hour)}
			t.matches[k] = h
		}
		h.add(minuteOf(l.Time), t.minute, 1)
		if l.Time.After(h.last) {
			h.last = l.Time
		}
	}
}

// Hits returns how many DNS decisions of the last hour had a match, and when the last was.
func (t *Traffic) Hits(policy, path string) (n uint64, last time.Time) {
	if h := t.matches[matchKey{policy, path}]; h != nil {
		return h.sum(), h.last
	}
	return 0, time.Time{}
}
