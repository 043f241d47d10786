package recent

import (
	"net/netip"
	"slices"
	"sync"
	"time"

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
	mu      sync.Mutex
	seen    *share.Recent[policy.PodRef, netip.Addr, []Sighting] // the newest first
	decided *share.Recent[policy.PodRef, fqdn.Name, Decision]
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
	return &Memory{
		seen:    share.NewRecent[policy.PodRef, netip.Addr, []Sighting](sightings, maxPods),
		decided: share.NewRecent[policy.PodRef, fqdn.Name, Decision](share.Bound{Least: decisionsOfPod, Each: decisionsOfPod}, maxPods),
	}
}

// Note stores a decision, and keeps nothing of the record but texts. A record whose answers were all
// granted costs nearly nothing. A renewal is not stored: no pod asked.
func (m *Memory) Note(r *audit.Record) {
	if r.Verdict == audit.Renewed || r.Verdict == audit.Allowed && allGranted(r.Answers) && r.Left == "" {
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
	names, _ := m.seen.Get(s.Pod, s.Address)
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
	m.seen.Put(s.Pod, s.Address, all)
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
	m.decided.Put(r.Pod, r.Name, d)
}

// Seen returns the names under which a pod got an address, the newest first.
func (m *Memory) Seen(pod policy.PodRef, addr netip.Addr) []Sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	names, _ := m.seen.Get(pod, addr)
	return slices.Clone(names)
}

// SeenByAnybody is Seen of every pod.
func (m *Memory) SeenByAnybody(addr netip.Addr) []Sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Concat(m.seen.Under(addr)...)
	slices.SortFunc(out, newestFirst)
	return out
}

func newestFirst(a, b Sighting) int { return b.Asked.Compare(a.Asked) }

// Asked returns the result of a pod's last query for a name. It does not know queries
// whose answer was granted.
func (m *Memory) Asked(pod policy.PodRef, name fqdn.Name) (Decision, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.decided.Get(pod, name)
}
