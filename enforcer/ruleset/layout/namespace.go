package layout

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/ruleset/lists"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
)

// The chain "namespace" decides the Namespace tier: a verdict map leads a subject to the chain of its own, which
// asks its sets of grants about what was dialled, and the chain of its list about what is reached. Where rules
// outside of these tables ask what was dialled, they make candidates, and subjects have no sets of grants.

// Subject is a pod with a Namespace tier. What no rule of it accepts, the tier denies.
type Subject struct {
	ID    string       // a word of hexadecimal digits
	Addrs []netip.Addr // its rules judge packets from these
	// Grants are sets among State.GrantSets.
	Grants []GrantSet
	// List is the ID of a RuleList, "" without rules about what is reached.
	List string
}

// GrantSet is a set of addresses that are granted to one subject. It is made for both
// families. Its elements are no part of a state: ApplyEntries writes them, and they end by
// their own timeouts.
type GrantSet struct {
	Name string
	// Ported: the entries have protocols and ports. Else Ports are those of the addresses, nil for every
	// protocol and port.
	Ported bool
	Ports  []policy.PortRange
}

// RuleList is rules about what is reached, each of which accepts. Subjects share it.
type RuleList struct {
	ID    string // a word; equal for equal rules alone
	Rules []*TierRule
}

const (
	podPrefix  = "pod-"  // chains of subjects
	listPrefix = "list-" // chains of rule lists

	candidatesChain = "candidates" // only of tables that ask candidates

	podsMap     = "pods"     // leads subjects to their chains
	subjectsSet = "subjects" // whose the addresses are, for a later agent
	stagedSet   = "staged"
	recheckSet  = "recheck" // State.Recheck
)

// Sets are the sets of both families.
func (s GrantSet) Sets() (out []*nft.Set) {
	for _, f := range lists.Families {
		typ := f.Addr
		if s.Ported {
			typ += " . inet_proto . inet_service"
		}
		out = append(out, timedSet(timed.GrantsPrefix+s.Name, typ, f))
	}
	return out
}

// namespaceChains makes the chains by which the Namespace tier is decided. Every rule accepts, so their order means
// nothing.
func (l *builder) namespaceChains(m Mode) {
	l.chain("pods", "leads subjects to their Namespace tier", lists.Each("%[2]s saddr vmap @"+podsMap+"%[1]s")...)
	rules := append([]string{"jump pods", "jump undeniable", "jump resolve"}, lists.Each("%[2]s saddr . %[2]s daddr @own%[1]s goto admit")...)
	if m.Candidates {
		l.candidates(m.Bits)
		rules = append([]string{"jump " + candidatesChain}, rules...)
	}
	l.chain("namespace", "the Namespace tier", rules...)
	l.stagedChain(m.Bits)
}

// candidates makes the chain that admits what rules outside of these tables found open.
func (l *builder) candidates(bits Bits) {
	marked, candidate := has("meta mark", bits.Candidate), has("ct mark", bits.Candidate)
	l.chain(candidatesChain, "admits what rules outside of this table allow",
		marked+" "+candidate+" jump "+namedChain,
		"ct state untracked "+marked+" goto admit",
		// Another program overwrote the packet's mark. The connection's bit counts before an
		// answer: on the first packet, where no earlier packet left it, and on later packets
		// that bear another mark. Without a mark, the chains did not see the packet.
		"ct state new ct status & confirmed == 0 "+candidate+" jump "+namedChain,
		"ct state new meta mark != 0 "+candidate+" jump "+namedChain)
}

// stagedChain makes the chain of subjects that are about to be isolated.
func (l *builder) stagedChain(bits Bits) {
	l.chain(stagedSet, "admits what rules of coming subjects allow, and denies nothing",
		"ct direction reply return",
		"ct state related meta l4proto { icmp, ipv6-icmp } return",
		"ct state invalid return",
		fmt.Sprintf("ct state { new, related } %s ct mark set ct mark & %#x", has("ct mark", bits.Admitted), ^bits.Admitted),
		"jump namespace")
}

// subjects makes the chains of subjects with rules and of their lists, and returns the first of each
// subject. A pod that comes without a chain needs no run of the program nft.
func (d *dispatch) subjects(s State) map[string]string {
	d.First = nil // every rule accepts
	of, out := map[string]string{}, map[string]string{}
	for _, l := range s.Lists {
		of[l.ID] = d.Chain(listPrefix, d.list(l.Rules, "return")...)
	}
	for i := range s.Subjects {
		if p := &s.Subjects[i]; p.List != "" || len(p.Grants) > 0 {
			out[p.ID] = d.Chain(p.chainPrefix(), d.subject(p, of[p.List])...)
		}
	}
	return out
}

// noList stands in the name of a chain for the ID of no list.
const noList = "none"

// chainPrefix begins the name of the subject's chain, from which a later agent learns the
// subject's list.
func (s *Subject) chainPrefix() string {
	list := s.List
	if list == "" {
		list = noList
	}
	return podPrefix + s.ID + "-" + list + "-"
}

// subject returns the rules of a subject's chain. list is the chain of its list.
func (d *dispatch) subject(s *Subject, list string) (out []*lists.Item) {
	names := s.names()
	if len(names) > 0 {
		out = append(out, lists.NewItem("jump "+namedChain, names...))
	}
	if list != "" {
		out = append(out, lists.NewItem("jump "+list, ""))
	}
	if len(names) > 0 {
		out = append(out, lists.NewItem("jump "+d.Chain(podPrefix+s.ID+"-bare-", lists.NewItem("goto admit", lists.Untracked(names)...)), "ct state untracked "))
	}
	return out
}

// names match what was dialled. The protocol is asked first: without it a port
// has no meaning. The set is asked last: what it matches is used.
func (s *Subject) names() (out []string) {
	for _, g := range s.Grants {
		at := "@" + timed.GrantsPrefix + g.Name + "-%[1]s "
		if g.Ported {
			out = append(out, lists.Each("meta l4proto "+ported+" ct original %[2]s daddr . meta l4proto . ct original proto-dst "+at)...)
			continue
		}
		for _, p := range lists.PortLists(g.Ports) {
			out = append(out, lists.Each(p.Dialled()+"ct original %[2]s daddr "+at)...)
		}
	}
	return out
}

const (
	servicesSet = "services" // State.Services
	namedChain  = "named"
)

// namedRules are asked of a connection that a rule by name accepts, which looks at what was dialled. Its
// translation may lead anywhere: tenants write Services with spec.externalIPs. A packet that returns is not
// accepted by the rule.
func namedRules(accept string) []string {
	return slices.Concat([]string{"ct status & dnat == 0 " + accept},
		lists.Each("ct original %[2]s daddr @"+servicesSet+"%[1]s "+accept), []string{"fib daddr type local " + accept})
}
