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
)

const (
	// maxSightings bounds the addresses that are remembered, of all pods.
	maxSightings = 8192
	// sightingsOfPod bounds the sightings of one pod, so that no pod evicts the others'.
	sightingsOfPod = 2048
	// namesOfAddress bounds the names of one address of a pod.
	namesOfAddress = 8
	// decisionsOfPod bounds the names whose decision is remembered of a pod.
	decisionsOfPod = 64
	// maxPods bounds the pods of which decisions are remembered.
	maxPods = 256
)

// Memory is what answers told pods lately that opened nothing for them. What did open
// something the kernel's mirror knows, and it is not kept twice. All methods may be
// called from any goroutine.
type Memory struct {
	mu      sync.Mutex
	seen    *simplelru.LRU[place, []Sighting] // the newest first
	pods    map[policy.PodRef]*simplelru.LRU[netip.Addr, struct{}]
	decided *simplelru.LRU[policy.PodRef, *simplelru.LRU[fqdn.Name, Decision]]
}

// place is an address as one pod sees it.
type place struct {
	pod  policy.PodRef
	addr netip.Addr
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
	m := &Memory{pods: map[policy.PodRef]*simplelru.LRU[netip.Addr, struct{}]{}}
	// The only error is for a size that is not positive.
	m.seen, _ = simplelru.NewLRU(maxSightings, m.forget)
	m.decided, _ = simplelru.NewLRU[policy.PodRef, *simplelru.LRU[fqdn.Name, Decision]](maxPods, nil)
	return m
}

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
	at := place{s.Pod, s.Address}
	names, _ := m.seen.Get(at)
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
	own := m.pods[s.Pod]
	if own == nil {
		own, _ = simplelru.NewLRU[netip.Addr, struct{}](sightingsOfPod, nil)
		m.pods[s.Pod] = own
	}
	if !own.Contains(s.Address) && own.Len() == sightingsOfPod {
		if oldest, _, ok := own.GetOldest(); ok {
			m.seen.Remove(place{s.Pod, oldest})
		}
		m.pods[s.Pod] = own // forget drops an empty one
	}
	own.Add(s.Address, struct{}{})
	m.seen.Add(at, all)
}

// forget is called for each entry that the memory of all pods evicts.
func (m *Memory) forget(at place, _ []Sighting) {
	own := m.pods[at.pod]
	if own == nil {
		return
	}
	if own.Remove(at.addr); own.Len() == 0 {
		delete(m.pods, at.pod)
	}
}

// decide takes the decision in. The caller holds mu.
func (m *Memory) decide(r *audit.Record) {
	of, ok := m.decided.Get(r.Pod)
	if !ok {
		of, _ = simplelru.NewLRU[fqdn.Name, Decision](decisionsOfPod, nil)
		m.decided.Add(r.Pod, of)
	}
	d := Decision{Name: r.Name, Type: r.Type, Asked: r.Time, Verdict: r.Verdict, Would: r.Would, Rcode: r.Rcode, Error: r.Error, Left: r.Left}
	if len(r.Answers) > 0 {
		d.Answers = make([]netip.Addr, len(r.Answers))
		for i := range r.Answers {
			d.Answers[i] = r.Answers[i].Addr
		}
	}
	of.Add(r.Name, d)
}

// Seen returns the names under which a pod got an address, the newest first.
func (m *Memory) Seen(pod policy.PodRef, addr netip.Addr) []Sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	names, _ := m.seen.Peek(place{pod, addr})
	return slices.Clone(names)
}

// SeenByAnybody is Seen of every pod.
func (m *Memory) SeenByAnybody(addr netip.Addr) []Sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Sighting
	for pod := range m.pods {
		names, _ := m.seen.Peek(place{pod, addr})
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
	of, ok := m.decided.Peek(pod)
	if !ok {
		return Decision{}, false
	}
	return of.Peek(name)
}
