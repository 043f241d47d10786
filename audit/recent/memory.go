package recent

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/share"
)

// sightings is the bound of the addresses that are remembered of pods.
var sightings = share.Bound{Resource: "answers that opened nothing", Least: 32, Each: 2048, All: 8192}

const (
	// namesOfAddress bounds the names of one address of a pod.
	namesOfAddress = 8
	// decisionsOfPod bounds the names whose decision is remembered of a pod.
	decisionsOfPod = 64
	// maxPods bounds the pods of which something is remembered. A node has fewer, so that others
	// are pods that are gone.
	maxPods = 512
)

// Memory is what answers told pods lately that opened nothing for them. What did open
// something the kernel's mirror knows, and it is not kept twice. All methods may be
// called from any goroutine.
type Memory struct {
	mu   sync.Mutex
	pods *simplelru.LRU[policy.PodRef, *memoryOf]
	seen int // addresses of all pods
}

// memoryOf is what is remembered of one pod.
type memoryOf struct {
	seen    *simplelru.LRU[netip.Addr, []Sighting] // the newest first
	decided *simplelru.LRU[fqdn.Name, Decision]
}

// Decision is the result of a pod's last query for a name, unless the whole answer was
// granted for that name.
type Decision struct {
	Name    fqdn.Name
	Type    uint16
	Asked   time.Time
	Verdict audit.Verdict
	// Would is the verdict if the Audit policies were enforced, None where they
	// change nothing.
	Would audit.Verdict
	Rcode int
	Error string    // why the verdict is failed
	Left  fqdn.Name // of the record
	// Answers are the addresses that the pod got, or would have got.
	Answers []netip.Addr
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	m := &Memory{}
	m.pods, _ = simplelru.NewLRU(maxPods, m.forget) // the only error is for a size that is not positive
	return m
}

// of returns the memory of a pod. The caller holds mu.
func (m *Memory) of(pod policy.PodRef) *memoryOf {
	own, ok := m.pods.Get(pod)
	if !ok {
		own = &memoryOf{}
		own.seen, _ = simplelru.NewLRU[netip.Addr, []Sighting](sightings.Each, nil)
		own.decided, _ = simplelru.NewLRU[fqdn.Name, Decision](decisionsOfPod, nil)
		m.pods.Add(pod, own)
	}
	return own
}

func (m *Memory) forget(_ policy.PodRef, of *memoryOf) { m.seen -= of.seen.Len() }

// Write stores a decision; it implements the proxy's log. A record with a Prepared that
// was seen before, or whose answers were all granted, costs nearly nothing. A renewal is not
// stored: no pod asked.
func (m *Memory) Write(r audit.Record) { m.Note(&r) }

// Note is Write of a record that need not be copied. It keeps nothing of it but texts.
func (m *Memory) Note(r *audit.Record) {
	if r.Prepared != nil || r.Verdict == audit.Renewed || r.Verdict == audit.Allowed && allGranted(r.Answers) && r.Left == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.decide(r)
	name := r.Name
	if r.Via != "" {
		name = r.Via // what matches cover
	}
	for i := range r.Answers {
		if a := &r.Answers[i]; len(a.Openings) == 0 {
			m.see(Sighting{Pod: r.Pod, Name: name, Address: a.Addr.Unmap(), Asked: r.Time, TTL: a.TTL, Blocked: a.Blocked})
		}
	}
}

func allGranted(answers []audit.Answer) bool {
	for i := range answers {
		if len(answers[i].Openings) == 0 {
			return false
		}
	}
	return true
}

// Remember stores a former grant that no policy allows any more: the pod may still use
// the address.
func (m *Memory) Remember(g policy.GrantInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.see(Sighting{Pod: g.Pod, Name: g.Name, Address: g.Addr, until: g.Until})
}

// see takes one sighting in. The caller holds mu.
func (m *Memory) see(s Sighting) {
	own := m.of(s.Pod)
	names, known := own.seen.Get(s.Address)
	// Readers have the slice: it is never changed.
	all := append(make([]Sighting, 0, len(names)+1), s)
	for i := range names {
		switch o := &names[i]; {
		case o.Name == s.Name:
			all[0] = s.after(o)
		case len(all) < namesOfAddress:
			all = append(all, *o)
		}
	}
	for ; !known && own.seen.Len() > 0 && sightings.Room(own.seen.Len(), m.seen) < 1; m.seen-- {
		own.seen.RemoveOldest()
	}
	if own.seen.Add(s.Address, all); !known {
		m.seen++
	}
}

// decide takes the decision in. The caller holds mu.
func (m *Memory) decide(r *audit.Record) {
	d := Decision{Name: r.Name, Type: r.Type, Asked: r.Time, Verdict: r.Verdict, Would: r.Would, Rcode: r.Rcode, Error: r.Error, Left: r.Left}
	if len(r.Answers) > 0 {
		d.Answers = make([]netip.Addr, len(r.Answers))
		for i := range r.Answers {
			d.Answers[i] = r.Answers[i].Addr
		}
	}
	m.of(r.Pod).decided.Add(r.Name, d)
}

// Seen returns the names under which a pod got an address, the newest first.
func (m *Memory) Seen(pod policy.PodRef, addr netip.Addr) []Sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	own, ok := m.pods.Peek(pod)
	if !ok {
		return nil
	}
	names, _ := own.seen.Peek(addr)
	return slices.Clone(names)
}

// SeenByAnybody is Seen of every pod.
func (m *Memory) SeenByAnybody(addr netip.Addr) []Sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Sighting
	for _, own := range m.pods.Values() {
		names, _ := own.seen.Peek(addr)
		out = append(out, names...)
	}
	slices.SortFunc(out, newestFirst)
	return out
}

func newestFirst(a, b Sighting) int { return b.Asked.Compare(a.Asked) }

// Asked returns the result of a pod's last query for a name. It does not know queries
// whose answer was granted.
func (m *Memory) Asked(pod policy.PodRef, name fqdn.Name) (Decision, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own, ok := m.pods.Peek(pod)
	if !ok {
		return Decision{}, false
	}
	return own.decided.Peek(name)
}
