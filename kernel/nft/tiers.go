package nft

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/kernel/nft/timed"
	"sigs.k8s.io/knftables"
)

// Tiers are the ordered rules of subjects, which share their chains.
type Tiers struct {
	// ID is of equal rules alone, with the Renew of their entry sets.
	ID string
	// Subjects are addresses among State.Selected.
	Subjects        []netip.Addr
	Admin, Baseline []*TierRule
	// NamespaceDeny are asked of candidates too, where there is a Namespace tier.
	NamespaceDeny []*TierRule
	// Namespace: what is no candidate is denied, and Baseline is not asked.
	Namespace bool
	// DNS: to State.DNS, it comes before the rules.
	DNS bool
}

// TierRule is one rule. Lists share it, and it is immutable.
type TierRule struct {
	// Peers is the name of a PeerSet, which holds what is reached; "" for everywhere.
	Peers string
	// Entries is the name of a set of entries in place of Peers: the rule is about what was
	// dialled.
	Entries string
	// Ports are of what the rule is about, nil for every protocol and port.
	Ports  []PortRange
	Action Action
}

// PortRange is ports of one protocol, TCP, UDP or SCTP. 0 to 65535 is every port.
type PortRange struct {
	Protocol    string
	First, Last uint16
}

// Action is the effect of a rule.
type Action uint8

// The actions of rules.
const (
	Accept Action = iota
	Reject        // deny with an answer
	Drop          // deny without an answer
	Pass          // on to the next tier
)

// PeerSet is a set of destinations that rules share. One of the lists is its content.
type PeerSet struct {
	Name     string
	Kind     PeerKind
	Addrs    []netip.Addr
	Networks []netip.Prefix // disjoint
	Ports    []PeerPort
}

// PeerKind is the list of a PeerSet that counts.
type PeerKind uint8

// The kinds of peer sets.
const (
	PeerAddrs PeerKind = iota
	PeerNetworks
	PeerPorts
)

// PeerPort is a port of one address.
type PeerPort struct {
	Addr     netip.Addr
	Protocol string
	Port     uint16
}

// The objects of tiers that a state adds to the layout begin with these prefixes: chains of
// the Admin tier, of what follows it, and parts of these, and sets of peers and of entries,
// with the family.
const (
	adminPrefix = "admin-"
	restPrefix  = "rest-"
	peersPrefix = "peers-"

	tiersMap   = "tiers"   // leads subjects to their Admin chain
	servingSet = "serving" // State.Serving
	dnsSet     = "dns"     // State.DNS
)

// ofTiers tells whether a chain or set is one that states add.
func ofTiers(name string) bool {
	return slices.ContainsFunc([]string{adminPrefix, restPrefix, partPrefix, podPrefix, listPrefix, nodePrefix, peersPrefix, timed.EntriesPrefix, timed.GrantsPrefix}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// tierChain is a chain of a state.
type tierChain struct {
	name  string
	rules []string
	base  *baseChain // nil for a regular chain
}

// tierObjects is what a state adds to the layout of the inet table. Each rule refers to
// earlier chains alone.
type tierObjects struct {
	chains   []*tierChain
	sets     []PeerSet
	entries  []string // names
	grants   []GrantSet
	networks []netip.Prefix    // of networksSet
	fronts   map[string]string // the chains to which subjects are led, by the IDs of Tiers
	subjects map[string]string // the same, by the IDs of Subjects
	items    map[itemKey]*item
	// unconfirmed: rules of the node wait for confirmation.
	unconfirmed bool
	key         string // equal for equal objects, whatever the members of sets are
}

// tierObjects renders the tiers of a state. Those of before are returned if they are equal,
// with the members that the sets have now.
func (s State) tierObjects(before tierObjects) tierObjects {
	out := tierObjects{key: s.tiersKey()}
	if out.key == before.key {
		out = before
		out.sets = slices.Clone(before.sets)
		for _, p := range s.Peers {
			if i, there := slices.BinarySearchFunc(out.sets, p.Name, func(o PeerSet, name string) int { return strings.Compare(o.Name, name) }); there {
				out.sets[i] = p
			}
		}
		return out
	}
	d := newDispatch(s, before.items)
	out.fronts = map[string]string{}
	for _, t := range s.Tiers {
		if out.fronts[t.ID] == "" {
			out.fronts[t.ID] = d.tiers(&t)
		}
	}
	out.subjects = d.subjects(s)
	out.unconfirmed = s.Node != nil && s.Node.Confirmed != nil
	d.node(s.Node)
	d.auditedNode(s.NodeAudited)
	d.nodeDNS(s.NodeDNS)
	out.grants = slices.SortedFunc(slices.Values(s.GrantSets), func(a, b GrantSet) int { return strings.Compare(a.Name, b.Name) })
	out.chains, out.networks, out.items = d.chains, d.allNetworks(), d.items
	byName := func(a, b PeerSet) int { return strings.Compare(a.Name, b.Name) }
	out.sets = slices.SortedFunc(maps.Values(d.sets), byName)
	out.entries = slices.Compact(slices.Sorted(slices.Values(s.Entries)))
	return out
}

// tiers makes the chains of ordered rules, and returns the one that subjects are led to.
func (d *dispatch) tiers(t *Tiers) string {
	d.first = []*item{newItem("jump undeniable", "")}
	if t.DNS {
		d.first = append(d.first, newItem("jump resolve", ""))
	}
	rest := slices.Concat([]*item{newItem("jump namespace", "")}, d.first, []*item{newItem("goto deny", "")})
	bare := rest
	if !t.Namespace {
		rest, bare = d.list(t.Baseline, "goto admit", false), d.untracked(t.Baseline, "goto admit", false)
	}
	next, nextBare := "goto "+d.chain(restPrefix, rest...), "goto "+d.chain(restPrefix, bare...)
	if t.Namespace && len(t.NamespaceDeny) > 0 {
		next = "goto " + d.chain(restPrefix, d.list(t.NamespaceDeny, next, false)...)
		nextBare = "goto " + d.chain(restPrefix, d.untracked(t.NamespaceDeny, nextBare, false)...)
	}
	var front []*item
	if slices.ContainsFunc(slices.Concat(t.Admin, t.Baseline), func(r *TierRule) bool { return r.Entries != "" }) {
		front = append(front, newItem("goto "+d.chain(partPrefix, d.untracked(t.Admin, nextBare, false)...), "ct state untracked "))
	}
	return d.chain(adminPrefix, append(front, d.list(t.Admin, next, false)...)...)
}

// sortedTiers returns the tiers, each list once.
func (s State) sortedTiers() []Tiers {
	all := slices.SortedFunc(slices.Values(s.Tiers), func(a, b Tiers) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b Tiers) bool { return a.ID == b.ID })
}

// tiersKey is equal for equal objects. What networks a set has decides what is made of it.
func (s State) tiersKey() string {
	var key []byte
	for _, p := range slices.SortedFunc(slices.Values(s.Peers), func(a, b PeerSet) int { return strings.Compare(a.Name, b.Name) }) {
		key = fmt.Appendf(key, "%s %d ", p.Name, p.Kind)
		for _, n := range p.Networks {
			key, _ = n.AppendBinary(key)
		}
	}
	for _, e := range slices.Sorted(slices.Values(s.Entries)) {
		key = append(append(key, e...), ' ')
	}
	for _, t := range s.sortedTiers() {
		key = append(append(key, t.ID...), ' ')
	}
	if s.NodeAudited {
		key = append(key, "node audited "...)
	}
	return string(s.NodeDNS.appendKey(s.Node.appendKey(s.appendSubjects(key))))
}

// of is the set of a family.
func (p *PeerSet) of(f family) *knftables.Set {
	set := &knftables.Set{Name: peersPrefix + p.Name + "-" + f.suffix, Type: f.addr}
	switch p.Kind {
	case PeerNetworks:
		set.Flags = []knftables.SetFlag{knftables.IntervalFlag}
	case PeerPorts:
		set.Type += " . inet_proto . inet_service"
	}
	return set
}

// allSets are the sets of both families.
func (o tierObjects) allSets() (out []*knftables.Set) {
	for _, f := range families {
		for _, s := range o.sets {
			out = append(out, s.of(f))
		}
		for _, name := range o.entries {
			out = append(out, entrySet(name, f))
		}
		for _, s := range o.grants {
			out = append(out, s.of(f))
		}
	}
	return out
}

// layOut adds the objects to the layout.
func (o tierObjects) layOut(l layout) {
	for _, s := range o.allSets() {
		l.tx.Add(s)
	}
	for _, c := range o.chains {
		base := baseChain{}
		if c.base != nil {
			base = *c.base
		}
		l.chain(c.name, base.typ, base.hook, base.priority, c.rules...)
	}
}

// rules are the rules of chains by their names.
func (o tierObjects) rules() map[string][]string {
	out := make(map[string][]string, len(o.chains))
	for _, c := range o.chains {
		out[c.name] = c.rules
	}
	return out
}

// without returns the objects of o that other does not have by name, and with rules the chains
// that have other rules there.
func (o tierObjects) without(other tierObjects, rules bool) (out tierObjects) {
	if o.key != "" && o.key == other.key {
		return out
	}
	chains := other.rules()
	sets, entries, grants := map[string]PeerKind{}, map[string]bool{}, map[GrantSet]bool{}
	for _, s := range other.sets {
		sets[s.Name] = s.Kind
	}
	for _, name := range other.entries {
		entries[name] = true
	}
	for _, s := range other.grants {
		grants[s] = true
	}
	out.chains = slices.DeleteFunc(slices.Clone(o.chains), func(c *tierChain) bool {
		there, is := chains[c.name]
		return is && !(rules && !slices.Equal(there, c.rules))
	})
	out.sets = slices.DeleteFunc(slices.Clone(o.sets), func(s PeerSet) bool { kind, there := sets[s.Name]; return there && kind == s.Kind })
	out.entries = slices.DeleteFunc(slices.Clone(o.entries), func(name string) bool { return entries[name] })
	out.grants = slices.DeleteFunc(slices.Clone(o.grants), func(s GrantSet) bool { return grants[s] })
	return out
}

// remove adds the end of the objects to a transaction, after which no element refers to
// them.
func (o tierObjects) remove(tx transaction) {
	for _, c := range o.chains {
		tx.Flush(&knftables.Chain{Name: c.name})
	}
	for _, c := range o.chains {
		tx.Delete(&knftables.Chain{Name: c.name})
	}
	for _, s := range o.allSets() {
		tx.Delete(s)
	}
}

// setTiers notes what a state adds to the layout.
func (t *Tables) setTiers(o tierObjects) {
	if t.tiers.key != o.key {
		t.ofTiers = nil
	}
	t.tiers = o
}

// skeleton is what a table consists of with the objects of a state.
func (t *Tables) skeleton(i int, o tierObjects) (s *skeleton, err error) {
	if tableFamilies[i] != knftables.InetFamily || o.key == "" {
		return t.plainSkeleton(i)
	}
	if o.key != t.tiers.key {
		return t.skeletonOf(i, o)
	}
	if t.ofTiers == nil {
		t.ofTiers, err = t.skeletonOf(i, o)
	}
	return t.ofTiers, err
}

// tiers adds the elements of tiers and their peers.
func (m elements) tiers(s State, objects tierObjects) {
	for _, t := range s.Tiers {
		for _, a := range t.Subjects {
			m.add(knftables.InetFamily, "", tiersMap+suffix(a), a.String(), "goto "+objects.fronts[t.ID])
		}
	}
	m.subjects(s, objects)
	m.addrs(knftables.InetFamily, servingSet, s.Serving)
	m.addrs(knftables.InetFamily, dnsSet, s.DNS)
	for _, n := range objects.networks {
		m.add(knftables.InetFamily, networksSet+suffix(n.Addr()), "", rangeText(n))
	}
	for _, p := range objects.sets {
		name := peersPrefix + p.Name + "-"
		switch p.Kind {
		case PeerAddrs:
			m.addrs(knftables.InetFamily, name, p.Addrs)
		case PeerNetworks:
			for _, n := range p.Networks {
				m.add(knftables.InetFamily, name+suffix(n.Addr()), "", rangeText(n))
			}
		case PeerPorts:
			for _, at := range p.Ports {
				m.add(knftables.InetFamily, name+suffix(at.Addr), "", at.Addr.String(), at.Protocol, strconv.Itoa(int(at.Port)))
			}
		}
	}
}

// TierChains returns what Earlier.TierChains is after the state was in force.
func (s State) TierChains() map[netip.Addr]string {
	out := map[netip.Addr]string{}
	objects := s.tierObjects(tierObjects{})
	for _, t := range s.Tiers {
		for _, a := range t.Subjects {
			out[a] = "goto " + objects.fronts[t.ID]
		}
	}
	return out
}
