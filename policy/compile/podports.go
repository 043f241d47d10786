package compile

import (
	"cmp"
	"slices"
	"strings"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/fqdn"
)

// MaxTargetPorts bounds the ports that the Services of one policy's names add to the
// ports of its rules, numbers and names together: as many as two rules may have. A
// tenant's Services have any number of ports.
const MaxTargetPorts = 2 * fqdnnp.MaxPorts

// PortName is a port of pods by its name, which each pod gives a number.
type PortName struct {
	Protocol policy.Protocol
	Name     string
}

// Compare orders by protocol and name.
func (p PortName) Compare(q PortName) int {
	return cmp.Or(cmp.Compare(p.Protocol, q.Protocol), strings.Compare(p.Name, q.Name))
}

// PodPorts are ports of pods: by number, and by names, which are sorted.
type PodPorts struct {
	Numbers policy.PortSet
	Names   []PortName
}

// PodPortsOf returns which ports of pods a policy's rules can lead to, when each Service
// that they name has led them on: EgressPorts, and the targets of the Services' ports
// that lie in the rules'. A headless Service leads nowhere else. left is how many targets
// are over MaxTargetPorts and left out.
func PodPortsOf(p *v1alpha1.FQDNNetworkPolicy, services *NamedServices) (ports PodPorts, left int) {
	return NewTargetPorts(p, services.domain).Bring(services)
}

// TargetPorts keeps PodPortsOf of one policy while Services change. It is for one
// goroutine.
type TargetPorts struct {
	namespace string
	ranges    []policy.PortRange                    // of EgressPorts
	of        map[policy.PortSet][]policy.PortRange // the ports of each rule
	matcher   *fqdn.Matcher[*policy.Match]          // of the names that can be Services'; nil: of none
	wild      bool                                  // there are patterns among them
	number    uint64                                // the services' number at which ports were computed
	ports     PodPorts
	left      int
}

// NewTargetPorts returns the target ports of a policy in a cluster with that domain.
func NewTargetPorts(p *v1alpha1.FQDNNetworkPolicy, domain fqdn.Name) *TargetPorts {
	r := fqdnnp.Read(p)
	t := &TargetPorts{namespace: p.Namespace, of: map[policy.PortSet][]policy.PortRange{}}
	t.ports.Numbers = r.EgressPorts()
	t.ranges = t.ports.Numbers.Ranges()
	if t.ports.Numbers == policy.AnyPort || domain == "" {
		return t
	}
	var matches []*policy.Match
	for _, rule := range r.Rules {
		for _, m := range rule.Matches {
			if !namesService(&m.Pattern, domain) {
				continue
			}
			matches = append(matches, m)
			t.of[m.Ports] = m.Ports.Ranges()
			_, exact := m.Pattern.Exact()
			t.wild = t.wild || !exact
		}
	}
	if len(matches) > 0 {
		t.matcher = policy.NewMatcher(matches)
	}
	return t
}

// Bring returns the ports and how many targets are left out, with services as they are
// now: those of the last call, or what Next made of them since. It costs next to nothing
// if no change matters.
func (t *TargetPorts) Bring(services *NamedServices) (PodPorts, int) {
	if t.matcher == nil || t.number == services.number {
		return t.ports, t.left
	}
	if t.number == 0 || t.number+1 != services.number || slices.ContainsFunc(services.changed, t.needs) {
		t.find(services)
	}
	t.number = services.number
	return t.ports, t.left
}

// target is a port to which Services lead, and how near these are to the policy.
type target struct {
	PortName
	number uint16
}

// nearness is the priority of a Service for room: Services of another namespace, which
// only a pattern covers, take no other Service's room.
type nearness uint8

const (
	nearOwn      nearness = iota // of the policy's namespace
	nearByName                   // by a name without a wildcard
	nearByChance                 // by a pattern
)

// needs tells whether a Service leads the policy to ports that its rules do not have.
func (t *TargetPorts) needs(s *namedService) bool {
	found := false
	t.targets(s, func(target) { found = true })
	return found
}

// targets calls add with each port to which a Service leads the policy and which its
// rules do not have.
func (t *TargetPorts) targets(s *namedService, add func(target)) {
	var matches []*policy.Match
	for i := range s.moved {
		p := &s.moved[i]
		if !holds(t.ranges, p.Protocol, p.Port) || t.has(p) {
			continue
		}
		if matches == nil { // this is what costs
			if matches = t.matcher.Match(s.name); matches == nil {
				return
			}
		}
		var last policy.PortSet
		for _, m := range matches {
			if m.Ports == last {
				continue
			}
			if last = m.Ports; holds(t.of[last], p.Protocol, p.Port) {
				add(target{PortName{p.Protocol, p.TargetName}, p.Target})
				break
			}
		}
	}
}

// has tells whether the rules have the target of a port, whatever its number.
func (t *TargetPorts) has(p *policy.ServicePort) bool {
	if p.TargetName == "" {
		return holds(t.ranges, p.Protocol, p.Target)
	}
	return slices.ContainsFunc(t.ranges, func(r policy.PortRange) bool {
		return r.Protocol == p.Protocol && r.First <= 1 && r.Last == 65535
	})
}

func holds(ranges []policy.PortRange, protocol policy.Protocol, port uint16) bool {
	for i := range ranges {
		if r := &ranges[i]; r.Protocol == protocol && r.First <= port && port <= r.Last {
			return true
		}
	}
	return false
}

// find looks at all Services that the policy may name.
func (t *TargetPorts) find(services *NamedServices) {
	found := map[target]nearness{}
	look := func(s *namedService) {
		how := nearByChance
		switch {
		case s.Ref.Namespace == t.namespace:
			how = nearOwn
		case t.matcher.HasExact(s.name):
			how = nearByName
		}
		t.targets(s, func(to target) {
			if last, known := found[to]; !known || how < last {
				found[to] = how
			}
		})
	}
	if t.wild {
		for _, s := range services.list {
			look(s)
		}
	} else {
		for name := range t.matcher.Exact() {
			if s := services.byName[name]; s != nil {
				look(s)
			}
		}
	}
	t.settle(found)
}

// settle takes the nearest Services for which there is room.
func (t *TargetPorts) settle(found map[target]nearness) {
	all := make([]target, 0, len(found))
	for to := range found {
		all = append(all, to)
	}
	slices.SortFunc(all, func(a, b target) int {
		return cmp.Or(cmp.Compare(found[a], found[b]), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.number, b.number), strings.Compare(a.Name, b.Name))
	})
	t.left = max(len(all)-MaxTargetPorts, 0)
	ranges := slices.Clone(t.ranges)
	var names []PortName
	for _, to := range all[:len(all)-t.left] {
		if to.Name != "" {
			names = append(names, to.PortName)
		} else {
			ranges = append(ranges, policy.PortRange{Protocol: to.Protocol, First: to.number, Last: to.number})
		}
	}
	slices.SortFunc(names, PortName.Compare)
	t.ports = PodPorts{policy.NewPortSet(ranges...), names}
}
