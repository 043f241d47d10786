package nft

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/knftables"
)

// Tiers are the ordered rules of subjects, which share their chains.
type Tiers struct {
	// ID is of equal rules alone: 16 hexadecimal digits, say.
	ID string
	// Subjects are addresses among State.Selected.
	Subjects        []netip.Addr
	Admin, Baseline []TierRule
	// Namespace: what is no candidate is denied, and Baseline is not asked.
	Namespace bool
}

// TierRule is one rule.
type TierRule struct {
	// Peers is the name of a PeerSet, which holds what is reached; "" for everywhere.
	Peers string
	// Entries is the name of an EntrySet in place of Peers: the rule is about what was
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

// The objects of tiers that a state adds to the layout begin with these prefixes: the chain
// of the Admin tier, the chain of what follows it, and sets of peers and of entries, with
// the family.
const (
	adminPrefix = "admin-"
	restPrefix  = "rest-"
	peersPrefix = "peers-"

	tiersMap = "tiers" // leads subjects to their Admin chain
	dnsSet   = "dns"   // State.DNS
)

// ofTiers tells whether a chain or set is one that states add.
func ofTiers(name string) bool {
	return slices.ContainsFunc([]string{adminPrefix, restPrefix, peersPrefix, entriesPrefix}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// tierChain is a chain of a state.
type tierChain struct {
	name  string
	rules []string
}

// tierObjects is what a state adds to the layout of the inet table. Each rule refers to
// earlier chains alone.
type tierObjects struct {
	chains  []tierChain
	sets    []PeerSet // without members
	entries []EntrySet
	key     string // equal for equal objects
}

// tierObjects renders the tiers of a state.
func (s State) tierObjects() tierObjects {
	var out tierObjects
	var key strings.Builder
	asked := askedSets{map[string]PeerKind{}, map[string]EntrySet{}}
	for _, p := range s.Peers {
		out.sets = append(out.sets, PeerSet{Name: p.Name, Kind: p.Kind})
		asked.peers[p.Name] = p.Kind
	}
	slices.SortFunc(out.sets, func(a, b PeerSet) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range out.sets {
		fmt.Fprintf(&key, "%s %d ", p.Name, p.Kind)
	}
	for _, e := range s.Entries {
		asked.entries[e.Name] = e
	}
	out.entries = slices.SortedFunc(maps.Values(asked.entries), func(a, b EntrySet) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range out.entries {
		fmt.Fprintf(&key, "%s %s ", e.Name, e.Renew)
	}
	all := slices.SortedFunc(slices.Values(s.Tiers), func(a, b Tiers) int { return strings.Compare(a.ID, b.ID) })
	for i, t := range all {
		if i > 0 && t.ID == all[i-1].ID {
			continue
		}
		key.WriteString(t.ID + " ")
		rest := []string{"jump namespace", "goto deny"}
		if !t.Namespace {
			rest = append(ruleTexts(t.Baseline, asked, "goto admit"), "goto admit")
		}
		next := "goto " + restPrefix + t.ID
		admin := slices.Concat(
			each("%[2]s saddr . ct original %[2]s daddr @own%[1]s goto admit", "meta l4proto { tcp, udp } ct original proto-dst "+dnsPort+" ct original %[2]s daddr @"+dnsSet+"%[1]s goto admit"),
			ruleTexts(t.Admin, asked, next), []string{next})
		out.chains = append(out.chains, tierChain{restPrefix + t.ID, rest}, tierChain{adminPrefix + t.ID, admin})
	}
	out.key = key.String()
	return out
}

// askedSets are the sets that rules ask, by name.
type askedSets struct {
	peers   map[string]PeerKind
	entries map[string]EntrySet
}

// ruleTexts renders rules. pass is the verdict of Pass.
func ruleTexts(rules []TierRule, asked askedSets, pass string) (out []string) {
	for _, r := range rules {
		verdict := map[Action]string{Accept: "goto admit", Reject: "goto denyreject", Drop: "goto denydrop", Pass: pass}[r.Action]
		if r.Entries != "" {
			out = append(out, entryTexts(asked.entries[r.Entries], r.Ports, verdict)...)
			continue
		}
		peers := []string{""}
		if r.Peers != "" {
			match := "%[2]s daddr @" + peersPrefix + r.Peers + "-%[1]s "
			if asked.peers[r.Peers] == PeerPorts {
				match = "meta l4proto { tcp, udp, sctp } %[2]s daddr . meta l4proto . th dport @" + peersPrefix + r.Peers + "-%[1]s "
			}
			peers = each(match)
		}
		for _, to := range peers {
			for _, p := range portLists(r.Ports) {
				out = append(out, p.reached()+to+verdict)
			}
		}
	}
	return out
}

// portList is the ports of a rule of one protocol, in words of nft; "" for every one.
type portList struct{ protocol, ports string }

// reached matches ports that are reached.
func (p portList) reached() string {
	if p.ports == "" {
		return p.pinned()
	}
	return p.protocol + " dport { " + p.ports + " } "
}

// pinned matches the protocol.
func (p portList) pinned() string {
	if p.protocol == "" {
		return ""
	}
	return "meta l4proto " + p.protocol + " "
}

// portLists divides ports by protocol. Every protocol and port is one list.
func portLists(ports []PortRange) (out []portList) {
	if ports == nil {
		return []portList{{}}
	}
	lists := map[string][]string{}
	for _, p := range ports {
		text := strconv.Itoa(int(p.First))
		if p.First != p.Last {
			text += "-" + strconv.Itoa(int(p.Last))
		}
		if p.First == 0 && p.Last == 65535 {
			out = append(out, portList{protocol: p.Protocol})
		} else {
			lists[p.Protocol] = append(lists[p.Protocol], text)
		}
	}
	for _, protocol := range []string{"tcp", "udp", "sctp"} {
		if list := lists[protocol]; list != nil {
			out = append(out, portList{protocol, strings.Join(list, ", ")})
		}
	}
	return out
}

// layOut adds the objects to the layout.
func (o tierObjects) layOut(l layout) {
	for _, s := range o.sets {
		for _, f := range families {
			name := peersPrefix + s.Name + "-" + f.suffix
			switch s.Kind {
			case PeerAddrs:
				l.set(name, f.addr)
			case PeerNetworks:
				l.ranges(name, f.addr)
			case PeerPorts:
				l.set(name, f.addr+" . inet_proto . inet_service")
			}
		}
	}
	for _, s := range o.entries {
		for _, f := range families {
			l.entrySet(entriesPrefix+s.Name+"-"+f.suffix, f.addr)
		}
	}
	for _, c := range o.chains {
		l.chain(c.name, "", "", "", c.rules...)
	}
}

// without returns the objects of o that other does not have.
func (o tierObjects) without(other tierObjects) (out tierObjects) {
	for _, c := range o.chains {
		if !slices.ContainsFunc(other.chains, func(d tierChain) bool { return c.name == d.name }) {
			out.chains = append(out.chains, c)
		}
	}
	for _, s := range o.sets {
		if !slices.ContainsFunc(other.sets, func(d PeerSet) bool { return s.Name == d.Name && s.Kind == d.Kind }) {
			out.sets = append(out.sets, s)
		}
	}
	for _, s := range o.entries {
		if !slices.ContainsFunc(other.entries, func(e EntrySet) bool { return s.Name == e.Name }) {
			out.entries = append(out.entries, s)
		}
	}
	return out
}

// remove adds the end of the objects to a transaction, after which no element refers to
// them.
func (o tierObjects) remove(tx *knftables.Transaction) {
	var chains, sets []string
	for _, c := range o.chains {
		chains = append(chains, c.name)
	}
	for _, f := range families {
		for _, s := range o.sets {
			sets = append(sets, peersPrefix+s.Name+"-"+f.suffix)
		}
		for _, s := range o.entries {
			sets = append(sets, entriesPrefix+s.Name+"-"+f.suffix)
		}
	}
	removeObjects(tx, chains, sets)
}

func removeObjects(tx *knftables.Transaction, chains, sets []string) {
	for _, name := range chains {
		tx.Flush(&knftables.Chain{Name: name})
	}
	for _, name := range chains {
		tx.Delete(&knftables.Chain{Name: name})
	}
	for _, name := range sets {
		tx.Delete(&knftables.Set{Name: name})
	}
}

// tiers adds the elements of tiers and their peers.
func (m elements) tiers(s State) {
	for _, t := range s.Tiers {
		for _, a := range t.Subjects {
			m.add(knftables.InetFamily, "", tiersMap+suffix(a), a.String(), "goto "+adminPrefix+t.ID)
		}
	}
	m.addrs(knftables.InetFamily, dnsSet, s.DNS)
	for _, p := range s.Peers {
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
