package compile

import (
	"encoding/binary"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/peers"
)

// Compiler makes snapshots, and keeps intermediate results for the next compile: the
// parsed policies, the policies that select a pod, and their union. So the cost of a
// change depends on its size. It is for one goroutine.
type Compiler struct {
	number    uint64
	serial    uint64
	policies  map[policyKey]*kept
	order     []*kept // policies in the order of the last input
	spaces    map[string]*space
	selected  map[policy.PodRef]*selection
	rulesets  map[string]*ruleset            // by the serials of their policies
	conflicts map[policy.PodRef]*policy.View // closed views, by their made-up pod
	nets      netPolicies
	cluster   clusterPolicies
	node      nodeSelection
	egress    map[string]*egressRules // by the serials of their NetworkPolicies
	sets      map[policy.Peer]*liveSet
	asked     []*liveSet        // all of sets, nil if they changed
	sorted    []*liveSet        // the sets for which there is room, nil if sets changed
	came      []*peers.Spec     // the specs of sets that are new since the index was updated
	went      []*peers.Spec     // the specs that were in sets then, or came since, and are not
	peerSets  []*policy.PeerSet // of the last snapshot, nil if one of them changed
	index     *peers.Index      // nil while no view asks for pods
	room      quota             // nodeQuota, but for tests
}

type policyKey struct{ namespace, name string }

// parsed is a policy that was read. It is immutable.
type parsed struct {
	*fqdnnp.Policy
	matches int    // of the rules
	labels  int    // of their patterns with a wildcard
	serial  uint64 // of the parse in its compiler
}

// kept is a parsed policy and the compile that saw it last.
type kept struct {
	*parsed
	key  policyKey
	seen uint64
}

// space has the policies of one namespace, sorted by id, and the changes among them in
// the running compile.
type space struct {
	name     string
	policies []*parsed
	changed  uint64 // the last compile that found a change
	gone     map[*parsed]bool
	added    []*parsed // sorted by id
}

// selection is the compiler's state of one local pod.
type selection struct {
	pod    policy.Pod
	rules  *ruleset     // nil: no FQDNNetworkPolicy selects the pod
	egress *egressRules // nil: no NetworkPolicy selects the pod for egress
	// egressAt is the last compile that found out egress, 0 if none did under these labels.
	egressAt uint64
	cluster  *clusterRules // nil: no cluster policy selects the pod
	// clusterAt is the last compile that found out cluster.
	clusterAt uint64
	view      *policy.View
	seen      uint64
	viewOf    viewParts // what view was made of
}

// New returns a compiler that has learned nothing yet.
func New() *Compiler {
	return &Compiler{
		cluster:   newClusterPolicies(),
		policies:  map[policyKey]*kept{},
		spaces:    map[string]*space{},
		selected:  map[policy.PodRef]*selection{},
		rulesets:  map[string]*ruleset{},
		conflicts: map[policy.PodRef]*policy.View{},
		nets:      netPolicies{map[policyKey]*netPolicy{}, map[string]*netSpace{}},
		egress:    map[string]*egressRules{},
		sets:      map[policy.Peer]*liveSet{},
		room:      nodeQuota,
	}
}

// Compile returns the snapshot of in. A view whose pod, policies and NetworkPolicies are
// unchanged since the last snapshot is the same *View, and a peer set with unchanged
// members is the same *PeerSet.
func (c *Compiler) Compile(in Input) *policy.Snapshot {
	c.number++
	s := &draft{Snapshot: policy.Snapshot{Number: c.number}}
	c.readPolicies(in.Policies, s)
	c.readNetworkPolicies(in.NetworkPolicies, s)
	c.readClusterPolicies(in, s)
	c.makeViews(in, s)
	c.fillPeerSets(s)
	for key, r := range c.rulesets {
		if r.used != c.number {
			delete(c.rulesets, key)
		}
	}
	slices.SortStableFunc(s.Problems, func(a, b policy.Problem) int { return strings.Compare(a.Object, b.Object) })
	return policy.NewSnapshot(s.Snapshot, s.pods, s.podByAddr)
}

// readPolicies parses new and changed policies and notes them in their namespace. Of two
// policies of one name the first counts.
func (c *Compiler) readPolicies(policies []v1alpha1.FQDNNetworkPolicy, s *draft) {
	present, order := 0, slices.Grow(c.order[:0], len(policies))
	for i := range policies {
		p := &policies[i]
		key := policyKey{p.Namespace, p.Name}
		var k *kept
		if i < len(c.order) && c.order[i].key == key { // most are where they were: no need to search
			k = c.order[i]
		} else {
			k = c.policies[key]
		}
		switch {
		case k == nil:
			k = &kept{parsed: c.parse(p), key: key}
			c.policies[key] = k
			c.change(p.Namespace, nil, k.parsed)
		case k.seen == c.number:
			s.Problems = append(s.Problems, policy.Problem{
				Object: "policy " + k.ID, Reason: policy.ReasonPartiallyInvalid,
				Message: "the policy is given twice; the first one counts, remove or rename the other",
			})
		case !fqdnnp.SameSpec(&k.Spec, &p.Spec):
			old := k.parsed
			k.parsed = c.parse(p)
			c.change(p.Namespace, old, k.parsed)
		}
		if k.seen != c.number {
			s.Problems = append(s.Problems, k.Problems...)
			present++
		}
		k.seen = c.number
		order = append(order, k)
	}
	clear(c.order[min(len(order), len(c.order)):]) // keeps nothing of policies that are gone
	c.order = order
	if present < len(c.policies) {
		c.forget()
	}
	for name, sp := range c.spaces {
		if sp.changed == c.number {
			sp.settle()
		}
		if len(sp.policies) == 0 && sp.changed != c.number {
			delete(c.spaces, name)
		}
	}
}

// forget drops the policies that the running compile did not see.
func (c *Compiler) forget() {
	for key, k := range c.policies {
		if k.seen != c.number {
			delete(c.policies, key)
			c.change(key.namespace, k.parsed, nil)
		}
	}
}

func (c *Compiler) parse(p *v1alpha1.FQDNNetworkPolicy) *parsed {
	c.serial++
	r := fqdnnp.Read(p)
	k := &parsed{Policy: r, serial: c.serial}
	for _, rule := range r.Rules {
		k.matches += len(rule.Matches)
		k.labels += wildLabels(rule.Matches)
	}
	return k
}

func (c *Compiler) change(namespace string, gone, added *parsed) {
	sp := c.spaces[namespace]
	if sp == nil {
		sp = &space{name: namespace}
		c.spaces[namespace] = sp
	}
	if sp.changed != c.number {
		sp.changed, sp.gone, sp.added = c.number, map[*parsed]bool{}, nil
	}
	if gone != nil {
		sp.gone[gone] = true
	}
	if added != nil {
		sp.added = append(sp.added, added)
	}
}

// settle brings the namespace's list up to date.
func (sp *space) settle() {
	sortParsed(sp.added)
	sp.policies = replaced(sp.policies, sp.gone, sp.added)
}

func sortParsed(ps []*parsed) {
	slices.SortFunc(ps, func(a, b *parsed) int { return strings.Compare(a.ID, b.ID) })
}

// replaced returns the sorted union of policies without gone, and added.
func replaced(policies []*parsed, gone map[*parsed]bool, added []*parsed) []*parsed {
	union := make([]*parsed, 0, len(policies)+len(added))
	for _, p := range policies {
		if gone[p] {
			continue
		}
		for len(added) > 0 && added[0].ID < p.ID {
			union, added = append(union, added[0]), added[1:]
		}
		union = append(union, p)
	}
	return append(union, added...)
}

// rulesOf returns the union of the policies of sp that select the pod, nil if
// none does. Where was is what selected it before under the same labels, only the
// changes are looked at, once for all pods that were and become alike.
func (c *Compiler) rulesOf(sp *space, podLabels labels.Set, was *selection, alike map[string]*ruleset) *ruleset {
	if sp == nil {
		return nil
	}
	if was == nil {
		return c.union(selecting(sp.policies, podLabels))
	}
	if sp.changed != c.number {
		return was.rules
	}
	added := selecting(sp.added, podLabels)
	var old []*parsed
	var serial uint64
	if was.rules != nil {
		old, serial = was.rules.parsed, was.rules.serial
	}
	key := serials(added, binary.LittleEndian.AppendUint64([]byte(sp.name+"/"), serial))
	r, known := alike[string(key)]
	if known {
		return r
	}
	r = was.rules
	if len(added) > 0 || slices.ContainsFunc(old, func(p *parsed) bool { return sp.gone[p] }) {
		r = c.union(replaced(old, sp.gone, added))
	}
	alike[string(key)] = r
	return r
}

func selecting(policies []*parsed, set labels.Set) []*parsed {
	var found []*parsed
	for _, p := range policies {
		if p.Selector.Matches(set) {
			found = append(found, p)
		}
	}
	return found
}

// union returns the ruleset of policies, nil for none.
func (c *Compiler) union(policies []*parsed) *ruleset {
	if len(policies) == 0 {
		return nil
	}
	key := serials(policies, make([]byte, 0, 8*len(policies)))
	r := c.rulesets[string(key)]
	if r == nil {
		r = newRuleset(policies)
		c.serial++
		r.serial = c.serial
		c.rulesets[string(key)] = r
	}
	return r
}

func serials(policies []*parsed, key []byte) []byte {
	for _, p := range policies {
		key = binary.LittleEndian.AppendUint64(key, p.serial)
	}
	return key
}
