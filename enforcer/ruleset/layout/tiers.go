package layout

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
)

// Tiers are the ordered rules of subjects, which share their chains.
type Tiers struct {
	// ID is of equal rules alone, with the Renew of their entry sets.
	ID string
	// Subjects are addresses among State.Selected.
	Subjects        []netip.Addr
	Admin, Baseline []*TierRule
	// Accepts are the rules of the Namespace tier of State.Ingress, each of which accepts.
	Accepts []*TierRule
	// NamespaceDeny are asked of candidates too, where there is a Namespace tier.
	NamespaceDeny []*TierRule
	// Checked are rules of the Namespace tier that are Led, and say nothing else.
	Checked []*TierRule
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
	Ports  []policy.PortRange
	Action Action
	// Led: connections of TCP to Entries are led to the relay, and Action is of what is not.
	Led bool
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
	Kind     policy.PeerKind
	Addrs    []netip.Addr
	Networks []netip.Prefix // disjoint
	Ports    []policy.PeerPort
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

	dnsByRulesSet = "dnsbyrules" // State.DNSByRules
)

// passing are the beginnings of the names of objects that states add.
var passing = []string{adminPrefix, restPrefix, ingressPrefix, partPrefix, podPrefix, listPrefix, nodePrefix, relayPrefix, peersPrefix, timed.EntriesPrefix, timed.GrantsPrefix}

// objects is what a state adds to the layout of the inet table. Each rule refers to
// earlier chains alone.
type objects struct {
	key      objectsKey
	chains   []*nft.Chain
	sets     []*nft.Set
	peers    []PeerSet         // of sets, sorted
	networks []netip.Prefix    // of networksSet
	fronts   map[string]string // the chains to which subjects are led, by the IDs of Tiers; ingress: of State.Ingress
	ingress  map[string]string
	subjects map[string]string // the same, by the IDs of Subjects
	// items and named are shared with the next objects: chains with a sum in their names, by these.
	items map[itemKey]*item
	named map[string]*nft.Chain
	tiers tierObjects
}

// tierObjects is what the ordered rules of pods add. It depends on no pod: one that comes or goes leaves it.
type tierObjects struct {
	ids      []string
	peers    []PeerSet
	items    map[itemKey]*item
	sets     map[string]PeerSet
	networks map[string]bool
	there    map[string]*nft.Chain
	chains   []*nft.Chain
	fronts   map[string]string
	ingress  map[string]string
}

// objects renders the rules and sets of a state. Those of before are returned if they are equal,
// with the members that the sets have now.
func (s State) objects(before objects) objects {
	out := objects{key: s.objectsKey()}
	if reflect.DeepEqual(out.key, before.key) {
		out = before
		out.peers = slices.Clone(before.peers)
		for _, p := range s.Peers {
			if i, there := slices.BinarySearchFunc(out.peers, p.Name, func(o PeerSet, name string) int { return strings.Compare(o.Name, name) }); there {
				out.peers[i] = p
			}
		}
		return out
	}
	d := newDispatch(s, before)
	out.tiers = d.orderedRules(s, out.key.peers)
	out.fronts, out.ingress = out.tiers.fronts, out.tiers.ingress
	out.subjects = d.subjects(s)
	d.ingressHook(len(s.Ingress) > 0)
	d.relay(s)
	d.node(s.Node)
	d.auditedNode(s.NodeAudited)
	d.nodeDNS(s.NodeDNS)
	out.chains, out.networks, out.items, out.named = d.chains, d.allNetworks(), d.items, d.there
	out.peers = slices.SortedFunc(maps.Values(d.sets), func(a, b PeerSet) int { return strings.Compare(a.Name, b.Name) })
	for i := range out.peers {
		out.sets = append(out.sets, out.peers[i].sets()...)
	}
	out.sets = append(out.sets, EntrySets(slices.Compact(slices.Sorted(slices.Values(s.Entries)))...)...)
	for _, g := range s.GrantSets {
		out.sets = append(out.sets, g.Sets()...)
	}
	return out
}

// orderedRules makes the chains of the ordered rules of pods, of those before if they are equal.
func (d *dispatch) orderedRules(s State, peers []PeerSet) tierObjects {
	t := tierObjects{ids: s.tierIDs(), peers: peers, fronts: map[string]string{}, ingress: map[string]string{}}
	if was := d.before.tiers; was.fronts != nil && slices.Equal(t.ids, was.ids) && reflect.DeepEqual(peers, was.peers) {
		t = was
		d.items, d.networks, d.there, d.chains = maps.Clone(t.items), maps.Clone(t.networks), maps.Clone(t.there), slices.Clip(t.chains)
		for name, set := range t.sets {
			if now, there := d.peers[name]; there {
				set = now
			}
			d.peers[name], d.sets[name] = set, set
		}
		return t
	}
	for i := range s.Tiers {
		if of := &s.Tiers[i]; t.fronts[of.ID] == "" {
			t.fronts[of.ID] = d.tiers(of)
		}
	}
	d.first = nil
	for i := range s.Ingress {
		if of := &s.Ingress[i]; t.ingress[of.ID] == "" {
			t.ingress[of.ID] = d.toSubjects(of)
		}
	}
	t.items, t.networks, t.there, t.sets, t.chains = maps.Clone(d.items), maps.Clone(d.networks), maps.Clone(d.there), maps.Clone(d.sets), slices.Clip(d.chains)
	return t
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
		rest, bare = d.list(t.Baseline, "goto admit"), d.untracked(t.Baseline, "goto admit")
	}
	next, nextBare := "goto "+d.chain(restPrefix, rest...), "goto "+d.chain(restPrefix, bare...)
	if t.Namespace && len(t.NamespaceDeny) > 0 {
		next = "goto " + d.chain(restPrefix, d.list(t.NamespaceDeny, next)...)
		nextBare = "goto " + d.chain(restPrefix, d.untracked(t.NamespaceDeny, nextBare)...)
	}
	front := toRelay(t)
	if slices.ContainsFunc(slices.Concat(t.Admin, t.Baseline), func(r *TierRule) bool { return r.Entries != "" }) {
		front = append(front, newItem("goto "+d.chain(partPrefix, d.untracked(t.Admin, nextBare)...), "ct state untracked "))
	}
	return d.chain(adminPrefix, append(front, d.list(t.Admin, next)...)...)
}

// objectsKey is what objects depend on, in one order.
type objectsKey struct {
	ids       []string  // of rules and chains
	peers     []PeerSet // what networks a set has decides what is made of it
	entries   []string
	grantSets []GrantSet
	subjects  []Subject
}

func (s State) objectsKey() objectsKey {
	key := objectsKey{entries: s.Entries, grantSets: s.GrantSets, subjects: s.Subjects}
	for _, p := range s.Peers {
		key.peers = append(key.peers, PeerSet{Name: p.Name, Kind: p.Kind, Networks: p.Networks})
	}
	key.ids = s.tierIDs()
	for _, l := range s.Lists {
		key.ids = append(key.ids, "list "+l.ID)
	}
	if s.Node != nil {
		key.ids = append(key.ids, "node "+s.Node.ID)
	}
	if s.NodeDNS != nil {
		key.ids = append(key.ids, fmt.Sprint("nodedns ", s.NodeDNS.Mark))
	}
	key.ids = append(key.ids, fmt.Sprint("audited ", s.NodeAudited), fmt.Sprint("relays ", s.Relays))
	return key
}

// tierIDs are the IDs of the rules of pods.
func (s State) tierIDs() (ids []string) {
	for _, t := range s.Tiers {
		ids = append(ids, t.ID)
	}
	for _, t := range s.Ingress {
		ids = append(ids, "ingress "+t.ID)
	}
	return ids
}

// sets are the sets of both families.
func (p *PeerSet) sets() (out []*nft.Set) {
	for _, f := range families {
		set := &nft.Set{Name: peersPrefix + p.Name + "-" + f.suffix, Key: f.addr}
		switch p.Kind {
		case policy.PeerNetworks:
			set.Fill = nft.Ranges
		case policy.PeerPorts:
			set.Key += " . inet_proto . inet_service"
		}
		set.Comment = describe(set.Name)
		out = append(out, set)
	}
	return out
}

// tiers adds the elements of tiers, of subjects and of peers.
func (m elements) tiers(s State, objs objects) {
	for _, t := range s.Tiers {
		for _, a := range t.Subjects {
			m.AddMap(tiersMap+timed.Suffix(a), a.String(), "goto "+objs.fronts[t.ID])
		}
	}
	for _, t := range s.Ingress {
		m.addrs(ingressSet, t.Subjects)
		m.addrs(postponedSet, t.Subjects)
		for _, a := range t.Subjects {
			m.AddMap(ingressMap+timed.Suffix(a), a.String(), "goto "+objs.ingress[t.ID])
		}
	}
	for _, p := range s.Subjects {
		for _, a := range p.Addrs {
			m.Add(subjectsSet+timed.Suffix(a), ifname(p.ID), a.String())
			if chain := objs.subjects[p.ID]; chain != "" {
				m.AddMap(podsMap+timed.Suffix(a), a.String(), "goto "+chain)
			}
		}
	}
	m.addrs(stagedSet, s.Staged)
	m.addrs(recheckSet, s.Recheck)
	m.addrs(servingSet, s.Serving)
	m.addrs(dnsSet, s.DNS)
	m.addrs(dnsByRulesSet, s.DNSByRules)
	m.prefixes(networksSet, objs.networks)
	if s.Node != nil && s.Node.Confirmed != nil {
		for _, f := range families {
			m.Add(heldSet+f.suffix, f.loopback)
		}
	}
}

// elements are the members as elements of the sets.
func (p *PeerSet) elements() nft.Elements {
	m, name := elements{nft.Elements{}}, peersPrefix+p.Name+"-"
	m.addrs(name, p.Addrs)
	m.prefixes(name, p.Networks)
	for _, at := range p.Ports {
		m.Add(name+timed.Suffix(at.Addr), at.Addr.String(), at.Protocol.String(), strconv.Itoa(int(at.Port)))
	}
	return m.Sorted()
}

// TierChains returns what Earlier.TierChains is after the state was in force.
func (s State) TierChains() map[netip.Addr]string {
	out := map[netip.Addr]string{}
	objs := s.objects(objects{})
	for _, t := range s.Tiers {
		for _, a := range t.Subjects {
			out[a] = "goto " + objs.fronts[t.ID]
		}
	}
	return out
}
