package layout

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/enforcer/ruleset/lists"
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

// The objects of tiers that a state adds to the layout begin with these prefixes: chains of
// the Admin tier, of what follows it, and parts of these, and sets of peers and of entries,
// with the family.
const (
	adminPrefix = "admin-"
	restPrefix  = "rest-"

	tiersMap   = "tiers"   // leads subjects to their Admin chain
	servingSet = "serving" // State.Serving
	dnsSet     = "dns"     // State.DNS

	dnsByRulesSet = "dnsbyrules" // State.DNSByRules
)

// passing are the beginnings of the names of objects that states add.
var passing = []string{adminPrefix, restPrefix, ingressPrefix, lists.PartPrefix, podPrefix, listPrefix, nodePrefix, relayPrefix, lists.PeersPrefix, timed.EntriesPrefix, timed.GrantsPrefix}

// objects is what a state adds to the layout of the inet table. Each rule refers to
// earlier chains alone.
type objects struct {
	key      objectsKey
	chains   []*nft.Chain
	sets     []*nft.Set
	peers    []PeerSet         // of sets, sorted
	networks []netip.Prefix    // of lists.NetworksSet
	fronts   map[string]string // the chains to which subjects are led, by the IDs of Tiers; ingress: of State.Ingress
	ingress  map[string]string
	subjects map[string]string // the same, by the IDs of Subjects
	made     lists.Made        // shared with the next objects
	tiers    tierObjects
}

// tierObjects is what the ordered rules of pods add. It depends on no pod: one that comes or goes leaves it.
type tierObjects struct {
	ids             []string
	peers           []PeerSet
	saved           lists.Saved
	fronts, ingress map[string]string
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
	d := &dispatch{lists.New(s.Peers, before.made, describe), len(s.Relays.Guarded) > 0}
	out.tiers = d.orderedRules(s, out.key.peers, before.tiers)
	out.fronts, out.ingress = out.tiers.fronts, out.tiers.ingress
	out.subjects = d.subjects(s)
	d.ingressHook(len(s.Ingress) > 0)
	d.relay(s)
	d.node(s.Node)
	d.auditedNode(s.NodeAudited)
	d.nodeDNS(s.NodeDNS)
	out.chains, out.networks, out.made, out.peers = d.Chains, d.Networks(), d.Result(), d.Sets()
	if out.sets = before.sets; !out.sameSets(&before) {
		out.sets = nil
		for i := range out.peers {
			out.sets = append(out.sets, peerSets(&out.peers[i])...)
		}
		out.sets = append(out.sets, EntrySets(slices.Compact(slices.Sorted(slices.Values(s.Entries)))...)...)
		for _, g := range s.GrantSets {
			out.sets = append(out.sets, g.Sets()...)
		}
	}
	return out
}

// sameSets tells whether objects have equal sets.
func (o *objects) sameSets(before *objects) bool {
	return slices.Equal(o.key.entries, before.key.entries) && reflect.DeepEqual(o.key.grantSets, before.key.grantSets) &&
		slices.EqualFunc(o.peers, before.peers, func(a, b PeerSet) bool { return a.Name == b.Name && a.Kind == b.Kind })
}

// orderedRules makes the chains of the ordered rules of pods, of those before if they are equal.
func (d *dispatch) orderedRules(s State, peers []PeerSet, was tierObjects) tierObjects {
	t := tierObjects{ids: s.tierIDs(), peers: peers, fronts: map[string]string{}, ingress: map[string]string{}}
	if was.fronts != nil && slices.Equal(t.ids, was.ids) && reflect.DeepEqual(peers, was.peers) {
		d.Restore(was.saved)
		return was
	}
	for i := range s.Tiers {
		if of := &s.Tiers[i]; t.fronts[of.ID] == "" {
			t.fronts[of.ID] = d.tiers(of)
		}
	}
	d.First = nil
	for i := range s.Ingress {
		if of := &s.Ingress[i]; t.ingress[of.ID] == "" {
			t.ingress[of.ID] = d.toSubjects(of)
		}
	}
	t.saved = d.Save()
	return t
}

// tiers makes the chains of ordered rules, and returns the one that subjects are led to.
func (d *dispatch) tiers(t *Tiers) string {
	d.First = []*lists.Item{lists.NewItem("jump undeniable", "")}
	if t.DNS {
		d.First = append(d.First, lists.NewItem("jump resolve", ""))
	}
	rest := slices.Concat([]*lists.Item{lists.NewItem("jump namespace", "")}, d.First, []*lists.Item{lists.NewItem("goto deny", "")})
	bare := rest
	if !t.Namespace {
		rest, bare = d.list(t.Baseline, "goto admit"), d.untracked(t.Baseline, "goto admit")
	}
	next, nextBare := "goto "+d.Chain(restPrefix, rest...), "goto "+d.Chain(restPrefix, bare...)
	if t.Namespace && len(t.NamespaceDeny) > 0 {
		next = "goto " + d.Chain(restPrefix, d.list(t.NamespaceDeny, next)...)
		nextBare = "goto " + d.Chain(restPrefix, d.untracked(t.NamespaceDeny, nextBare)...)
	}
	front := toRelay(t)
	if slices.ContainsFunc(slices.Concat(t.Admin, t.Baseline), func(r *TierRule) bool { return r.Entries != "" }) {
		front = append(front, lists.NewItem("goto "+d.Chain(lists.PartPrefix, d.untracked(t.Admin, nextBare)...), "ct state untracked "))
	}
	return d.Chain(adminPrefix, append(front, d.list(t.Admin, next)...)...)
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
	key.ids = append(key.ids, fmt.Sprint("audited ", s.NodeAudited), fmt.Sprint("relays ", s.Relays, s.ledSubjects()))
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

// peerSets are the sets of a peer, of both families.
func peerSets(p *PeerSet) (out []*nft.Set) {
	for _, f := range lists.Families {
		set := &nft.Set{Name: lists.PeersPrefix + p.Name + "-" + f.Suffix, Key: f.Addr}
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
		m.addrs(postponedSet, s.settled(t))
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
	m.prefixes(lists.NetworksSet, objs.networks)
	if s.Node != nil && s.Node.Confirmed != nil {
		for _, f := range lists.Families {
			m.Add(heldSet+f.Suffix, f.Loopback)
		}
	}
}

// peerElements are the members as elements of the sets.
func peerElements(p *PeerSet) nft.Elements {
	m, name := elements{nft.Elements{}}, lists.PeersPrefix+p.Name+"-"
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
