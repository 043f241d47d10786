package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// twinRule is a rule as the twin reads it: texts, lists and no index.
type twinRule struct {
	tier          policy.Tier
	action        policy.Action
	names         []string // nil for a rule with peers
	kind          policy.PeerKind
	ports         string
	audit, broken bool
	dnsDenied     policy.Unmatched
}

// The peers of the tests: every address ends in the number of a place.
var (
	twinPods  = &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerPods, Key: "pods"}, Addrs: []netip.Addr{place(1), place(2)}}
	twinNets  = &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerNetworks, Key: "nets"}, Networks: []netip.Prefix{netip.PrefixFrom(place(2), 31)}}
	twinPorts = &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerPorts, Key: "named"}, Ports: []policy.PeerPort{{Addr: place(1), Protocol: policy.TCP, Port: 80}}}
	twinNames = []string{"a.test", "b.test", "c.b.test", "d.test", "www.d.test"}
)

const ownPlace = 9

func place(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

func (r twinRule) has(proto policy.Protocol, port uint16) bool {
	switch r.ports {
	case "any":
		return true
	case "tcp":
		return proto == policy.TCP
	}
	return slices.Contains(strings.Split(r.ports, ","), fmt.Sprintf("%v/%d", proto, port))
}

func (r twinRule) covers(name string) bool {
	return slices.ContainsFunc(r.names, func(n string) bool {
		rest, below := strings.CutPrefix(n, "**")
		return n == name || below && strings.HasSuffix(name, rest)
	})
}

// twinView is a view as the twin reads it.
type twinView struct {
	rules             []twinRule
	fqdn, fqdnAudit   bool // an FQDNNetworkPolicy selects the pod
	networkPolicy     bool
	strict            [3]policy.Unmatched
	would             bool
	entries           map[int]bool     // live, of the rules in place of that index; Admin and Baseline
	open              []policy.PortSet // live, of the Namespace tier
	dialled, reached  int              // places
	dialPort, endPort uint16
	proto             policy.Protocol
	implied           bool
}

// in returns the rules of a tier that are in the view, by index.
func (v *twinView) in(tier policy.Tier) (out []int) {
	for i, r := range v.rules {
		if r.tier == tier && (v.would || !r.audit) {
			out = append(out, i)
		}
	}
	return out
}

func (v *twinView) ns() (exists, empty bool) {
	cluster := len(v.in(policy.Admin))+len(v.in(policy.Baseline)) > 0
	selected := v.fqdn || v.would && v.fqdnAudit
	return selected || cluster && v.networkPolicy, !selected && !cluster
}

// hits is that of the design, for a rule by its index.
func (v *twinView) hits(i int) bool {
	r := v.rules[i]
	if r.broken {
		return r.action != policy.Accept
	}
	if r.names != nil {
		live := v.entries[i]
		if r.tier == policy.Namespace {
			live = slices.Contains(v.open, policy.PortSet(r.ports))
		}
		return live && r.has(v.proto, v.dialPort)
	}
	if !r.has(v.proto, v.endPort) {
		return false
	}
	switch r.kind {
	case policy.PeerPods:
		return v.reached == 1 || v.reached == 2
	case policy.PeerNetworks:
		return v.reached == 2 || v.reached == 3
	case policy.PeerPorts:
		return v.reached == 1 && v.proto == policy.TCP && v.endPort == 80
	}
	return true
}

func (v *twinView) ordered(tier policy.Tier) policy.Action {
	for _, i := range v.in(tier) {
		if v.hits(i) {
			if v.rules[i].broken {
				return policy.Deny
			}
			return v.rules[i].action
		}
	}
	return policy.Pass
}

func (v *twinView) evaluate() bool {
	exists, empty := v.ns()
	if empty || v.dialled == ownPlace || v.implied {
		return true
	}
	if a := v.ordered(policy.Admin); a != policy.Pass {
		return a == policy.Accept
	}
	if exists {
		return v.reached == ownPlace || slices.ContainsFunc(v.in(policy.Namespace), v.hits)
	}
	return v.ordered(policy.Baseline) != policy.Deny
}

// decide is the design's Decide: the reply, the verdict, and the rules of g.
func (v *twinView) decide(name, via string, aliases []string, inCluster bool) string {
	covers := func(i int) bool {
		r := v.rules[i]
		return !r.broken && (r.covers(name) || via != "" && r.covers(via) || r.action == policy.Deny && slices.ContainsFunc(aliases, r.covers))
	}
	is := func(g []int, actions ...policy.Action) bool {
		return slices.ContainsFunc(g, func(i int) bool { return slices.Contains(actions, v.rules[i].action) })
	}
	tiers := []policy.Tier{policy.Admin, policy.Baseline}
	if exists, _ := v.ns(); exists {
		tiers[1] = policy.Namespace
	}
	var g []int
	u := policy.Resolve
	for _, tier := range tiers {
		u = max(u, v.strict[tier+1])
		passed, final := false, false
		for _, i := range v.in(tier) {
			r := v.rules[i]
			if !covers(i) {
				continue
			}
			if tier == policy.Namespace {
				g = append(g, i)
				continue
			}
			if r.action == policy.Deny && r.ports == "any" && !is(g, policy.Accept, policy.Pass) && r.dnsDenied != policy.Resolve {
				return fmt.Sprintf("%v denied %v", r.dnsDenied, []int{i})
			}
			g = append(g, i)
			passed = passed || r.action == policy.Pass
			if r.ports == "any" {
				final = r.action != policy.Pass
				break
			}
		}
		if final && !passed {
			break
		}
	}
	all := slices.ContainsFunc(g, func(i int) bool { return v.rules[i].action == policy.Deny && v.rules[i].ports == "any" })
	switch {
	case is(g, policy.Accept):
		return fmt.Sprintf("Resolve allowed %v", g)
	case all:
		return fmt.Sprintf("Resolve denied %v", g)
	case u == policy.Resolve || inCluster:
		return fmt.Sprintf("Resolve unmatched %v", g)
	}
	return fmt.Sprintf("%v refused %v", u, g)
}

// view builds the view that the twin reads, and the flow.
func (v *twinView) view(t *testing.T) (*policy.View, *policy.Flow) {
	out := &policy.View{
		Pod: policy.Pod{IPs: []netip.Addr{place(ownPlace)}}, Enforced: v.fqdn, AdminUnmatched: v.strict[0], Unmatched: v.strict[1], BaselineUnmatched: v.strict[2],
	}
	if v.fqdn || v.fqdnAudit {
		out.Policies = []string{"shop/p"}
	}
	if v.networkPolicy {
		out.NetworkPolicies = []string{"shop/np"}
	}
	f := &policy.Flow{
		Protocol: v.proto, Dialled: netip.AddrPortFrom(place(v.dialled), v.dialPort), Reached: netip.AddrPortFrom(place(v.reached), v.endPort),
		Open: v.open, Implied: v.implied, Would: v.would,
	}
	matches := 0
	for i, from := range v.rules {
		r := &policy.Rule{Tier: from.tier, Action: from.action, Ports: policy.PortSet(from.ports), Policy: fmt.Sprintf("p%03d", i), Audit: from.audit, Broken: from.broken, DNSDenied: from.dnsDenied}
		switch r.Peer.Kind = from.kind; {
		case from.names != nil:
			r.Peer.Kind = policy.PeerNames
		case from.kind == policy.PeerPods:
			r.Peer = twinPods.Peer
		case from.kind == policy.PeerNetworks:
			r.Peer = twinNets.Peer
		case from.kind == policy.PeerPorts:
			r.Peer = twinPorts.Peer
		}
		for j, n := range from.names {
			pattern, err := fqdn.ParsePattern(n)
			fatal.If(t, err)
			r.Matches = append(r.Matches, policy.NewMatch(policy.Match{Policy: r.Policy, Pattern: pattern, Ports: r.Ports, Audit: r.Audit, Rule: r}, j))
			matches++
		}
		if v.entries[i] {
			f.Entries = append(f.Entries, r)
		}
		out.Rules = append(out.Rules, r)
	}
	out.Index = policy.NewIndex(out.Rules, matches)
	return out, f
}

func randomTwin(r *rand.Rand) *twinView {
	v := &twinView{
		fqdn: r.IntN(3) == 0, fqdnAudit: r.IntN(3) == 0, networkPolicy: r.IntN(2) == 0, would: r.IntN(3) == 0, entries: map[int]bool{},
		dialled: 1 + r.IntN(9), dialPort: []uint16{80, 443}[r.IntN(2)], proto: []policy.Protocol{policy.TCP, policy.UDP}[r.IntN(2)], implied: r.IntN(20) == 0,
	}
	v.reached, v.endPort = v.dialled, v.dialPort
	if r.IntN(3) == 0 { // a Service
		v.reached, v.endPort = 1+r.IntN(9), 80
	}
	ports := func() string { return []string{"any", "tcp", "tcp/80", "tcp/443,udp/80"}[r.IntN(4)] }
	add := func(tier policy.Tier) {
		rule := twinRule{tier: tier, ports: ports(), audit: r.IntN(5) == 0}
		if rule.kind = []policy.PeerKind{policy.PeerAnywhere, policy.PeerPods, policy.PeerNetworks, policy.PeerPorts, policy.PeerNames}[r.IntN(5)]; rule.kind == policy.PeerNames || r.IntN(2) == 0 {
			for range 1 + r.IntN(2) {
				rule.names = append(rule.names, []string{"", "**."}[r.IntN(2)]+twinNames[r.IntN(len(twinNames))])
			}
		} else if rule.kind == policy.PeerPorts {
			rule.ports = "any"
		}
		switch {
		case tier == policy.Namespace && rule.names != nil: // of an FQDNNetworkPolicy
			if rule.audit = !v.fqdn || v.fqdnAudit && rule.audit; !v.fqdn && !v.fqdnAudit {
				return
			}
		case tier == policy.Namespace: // of a NetworkPolicy
			if rule.audit = false; !v.networkPolicy {
				return
			}
		default:
			rule.action, rule.broken, rule.dnsDenied = policy.Action(r.IntN(3)), r.IntN(20) == 0, policy.Unmatched(r.IntN(3))
		}
		v.entries[len(v.rules)] = tier != policy.Namespace && rule.names != nil && r.IntN(2) == 0
		v.rules = append(v.rules, rule)
	}
	for _, tier := range []policy.Tier{policy.Admin, policy.Namespace, policy.Baseline} {
		for range r.IntN(5) {
			v.strict[tier+1] = policy.Unmatched(r.IntN(3))
			add(tier)
		}
	}
	for _, tier := range []policy.Tier{policy.Admin, policy.Namespace, policy.Baseline} {
		enforcing := func(r twinRule) bool { return r.tier == tier && !r.audit }
		if tier == policy.Namespace && !v.fqdn || !slices.ContainsFunc(v.rules, enforcing) {
			v.strict[tier+1] = policy.Resolve
		}
	}
	for range r.IntN(3) {
		v.open = append(v.open, policy.PortSet(ports()))
	}
	return v
}

// TestEvaluateLikeTwin compares both evaluations with their texts in the design, on random
// views of all tiers.
func TestEvaluateLikeTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 3))
	in := policy.NewSnapshot(policy.Snapshot{PeerSets: []*policy.PeerSet{twinPods, twinNets, twinPorts}}, nil, nil)
	seen := map[string]int{}
	for n := range 50000 {
		v := randomTwin(r)
		view, f := v.view(t)
		want := v.evaluate()
		if got, by := policy.Evaluate(view, in, f); got != want {
			t.Fatalf("%d: allowed %v by %+v, want %v\n%+v", n, got, by, want, v)
		}
		seen[fmt.Sprint("flow ", want)]++
		name := func() string { return twinNames[r.IntN(len(twinNames))] }
		q, via, aliases := name(), "", []string(nil)
		if r.IntN(3) == 0 {
			via = name()
		}
		for range r.IntN(3) {
			aliases = append(aliases, name())
		}
		ask := policy.Query{Name: parsed(t, q), InCluster: r.IntN(4) == 0, Would: v.would}
		if via != "" {
			ask.Via = parsed(t, via)
		}
		for _, a := range aliases {
			ask.Aliases = append(ask.Aliases, parsed(t, a))
		}
		verdict := v.decide(q, via, aliases, ask.InCluster)
		if got := decided(policy.Decide(view, ask), ask); got != verdict {
			t.Fatalf("%d: %+v is %s, want %s\n%+v", n, ask, got, verdict, v)
		}
		seen[strings.Join(strings.Fields(verdict)[:2], " ")]++
	}
	for _, what := range []string{"flow true", "flow false", "Resolve allowed", "Resolve denied", "NXDomain denied", "Resolve unmatched", "Refuse refused"} {
		if seen[what] < 100 {
			t.Errorf("%q was seen %d times: %v", what, seen[what], seen)
		}
	}
}

func parsed(t *testing.T, s string) fqdn.Name {
	n, err := fqdn.ParseName(s)
	fatal.If(t, err)
	return n
}

// decided is a decision as the twin says it. Matches of Audit policies are for the log.
func decided(d policy.Decision, q policy.Query) string {
	var g []int
	accepted := false
	for _, m := range d.Matches {
		if m.Audit && !q.Would {
			continue
		}
		var i int
		if _, err := fmt.Sscanf(m.Policy, "p%d", &i); err != nil {
			panic(err)
		}
		if !slices.Contains(g, i) {
			g = append(g, i)
		}
		accepted = accepted || m.Rule.Action == policy.Accept
	}
	verdict := "unmatched"
	switch {
	case d.Denied != nil:
		verdict = "denied"
	case accepted:
		verdict = "allowed"
	case d.Reply != policy.Resolve:
		verdict = "refused"
	}
	if accepted != d.Allowed() {
		return "Allowed says otherwise"
	}
	return fmt.Sprintf("%v %s %v", d.Reply, verdict, g)
}
