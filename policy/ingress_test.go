package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/short"
)

// inbound makes random policies for ingress alone.
func inbound(r *rand.Rand) *world {
	w := &world{Rand: r}
	for range oneOf(w, 0, 1, 2, 3) {
		w.addPolicy(clusterNetwork)
	}
	for range oneOf(w, 0, 0, 1, 2) {
		w.addPolicy(networkPolicy)
	}
	for i := range w.policies {
		p := &w.policies[i]
		for j := range p.rules {
			rule := &p.rules[j]
			rule.names, rule.live = nil, false
			rule.peers = slices.DeleteFunc(rule.peers, func(p twinPeer) bool { return p.kind == policy.PeerPorts })
			if len(rule.peers) == 0 {
				rule.peers = []twinPeer{{oneOf(w, policy.PeerAnywhere, policy.PeerPods), rule.ports}}
			}
		}
	}
	return w
}

// ingress returns the rules of a world for ingress, nil without policies.
func (w *world) ingress(t *testing.T) (*policy.Ingress, map[*policy.Rule]string) {
	if len(w.policies) == 0 {
		return nil, nil
	}
	v, ids, _ := w.view(t)
	for r := range v.Rules.All() {
		r.Ingress = true
	}
	return &policy.Ingress{Rules: v.Rules, NetworkPolicies: v.NetworkPolicies}, ids
}

// evaluateIngress is that of the design: peers are compared with the source.
func (v *twinView) evaluateIngress(f *twinFlow, source twinAddr, fromNode bool) (allowed bool, by []string) {
	if fromNode || len(v.policies) == 0 {
		return true, nil
	}
	from := *f
	from.reached = source
	if verdict, by := v.ordered(policy.Admin, &from); verdict != "" {
		return verdict == "allow", by
	}
	if namespaced := v.in(policy.Namespace); len(namespaced) > 0 {
		for _, p := range namespaced {
			for i := range p.rules {
				if v.hits(p, &p.rules[i], &from) {
					by = append(by, p.rules[i].id)
				}
			}
		}
		return by != nil || source.own() && f.reached.own(), by
	}
	if verdict, by := v.ordered(policy.Baseline, &from); verdict != "" {
		return verdict == "allow", by
	}
	return true, nil
}

// TestIngressLikeTwin compares both directions of random worlds with their texts in the design: the rules of
// one mean nothing for the other.
func TestIngressLikeTwin(t *testing.T) {
	random := rand.New(rand.NewPCG(35, 1))
	in := policy.NewSnapshot(policy.Snapshot{PeerSets: []*policy.PeerSet{twinPods, twinNets, twinPorts}}, nil, nil)
	seen := map[string]int{}
	rounds := short.Rounds(5_000, 20_000, 200_000)
	for n := range rounds {
		out, w := randomWorld(random), inbound(random)
		view, outIDs, live := out.view(t)
		var ids map[*policy.Rule]string
		view.Ingress, ids = w.ingress(t)
		for range 6 {
			f := out.flow()
			if f.reached.n == 0 {
				f.reached = f.dialled
			}
			if w.IntN(4) == 0 {
				f.reached = oneOf(out, twinAddr{9, false}, twinAddr{8, true})
			}
			source, fromNode := w.address(), w.IntN(20) == 0
			asked := out.asked(f, live)
			asked.Source, asked.FromNode = source.addr(), fromNode
			if source.addr().Is4() && w.IntN(4) == 0 {
				asked.Source = netip.AddrFrom16(source.addr().As16())
			}
			want, by := w.evaluateIngress(f, source, fromNode)
			got, rule := policy.EvaluateIngress(view, in, asked)
			if got != want || !(rule == nil && by == nil || slices.Contains(by, ids[rule])) {
				t.Fatalf("%d: from %v allowed %v by %q, want %v by %q\n%+v\n%+v", n, source, got, ids[rule], want, by, f, w.twinView)
			}
			if steps := policy.StepsIngress(view, in, asked); rule != nil && !slices.ContainsFunc(steps, func(s policy.Step) bool { return s.Rule == rule && s.Asked }) {
				t.Fatalf("%d: the rule %s that decides is not among the steps", n, ids[rule])
			}
			seen[fmt.Sprintf("ingress %v by %d", want, min(1, len(by)))]++
			verdict, by := out.evaluate(f)
			got, rule = policy.Evaluate(view, in, asked)
			if verdictWords[policy.VerdictOf(got, rule)] != verdict || !(rule == nil && by == nil || slices.Contains(by, outIDs[rule])) {
				t.Fatalf("%d: egress allowed %v by %q, want %s by %q", n, got, outIDs[rule], verdict, by)
			}
		}
	}
	for _, what := range []string{"ingress true by 0", "ingress true by 1", "ingress false by 0", "ingress false by 1"} {
		if seen[what] < rounds/20 {
			t.Errorf("%q was seen %d times: %v", what, seen[what], seen)
		}
	}
}

// TestEvaluateIngress has what each part of the design says of ingress.
func TestEvaluateIngress(t *testing.T) {
	pods := &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerPods, Key: "pods"}, Addrs: []netip.Addr{v4(1)}}
	nets := &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerNetworks, Key: "10.0.0.0/30 without 10.0.0.2"}, Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/31"), netip.PrefixFrom(v4(3), 32)}}
	in := policy.NewSnapshot(policy.Snapshot{PeerSets: []*policy.PeerSet{pods, nets}}, nil, nil)
	rule := func(tier policy.Tier, action policy.Action, peer policy.Peer, ports policy.PortSet) *policy.Rule {
		return &policy.Rule{Tier: tier, Standard: tier != policy.Namespace, Ingress: true, Action: action, Peer: peer, Ports: ports, Denial: policy.Denial{Denied: policy.Drop}}
	}
	anywhere := policy.Peer{Kind: policy.PeerAnywhere}
	const a, ns, b = policy.Admin, policy.Namespace, policy.Baseline
	isolated := func(rules ...*policy.Rule) *policy.Ingress {
		return &policy.Ingress{NetworkPolicies: []string{"shop/np"}, Rules: policy.Rules{Namespace: rules}}
	}
	accept, pass, deny, base := rule(a, policy.Accept, pods.Peer, "any"), rule(a, policy.Pass, pods.Peer, "any"), rule(a, policy.Deny, pods.Peer, "any"), rule(b, policy.Deny, anywhere, "any")
	ordered := func(admin ...*policy.Rule) *policy.Ingress {
		return &policy.Ingress{Rules: policy.Rules{Admin: admin, Baseline: []*policy.Rule{base}}}
	}
	all := rule(ns, policy.Accept, anywhere, policy.AnyPort)
	web, block := rule(ns, policy.Accept, pods.Peer, "tcp/80"), rule(ns, policy.Accept, nets.Peer, policy.AnyPort)
	span, sctp := rule(ns, policy.Accept, pods.Peer, "tcp/8000-8010,sctp/1"), rule(ns, policy.Accept, pods.Peer, "sctp")
	adminWeb := rule(a, policy.Deny, pods.Peer, "tcp/80")
	unnamed := rule(a, policy.Deny, pods.Peer, "")
	flow := func(source netip.Addr, proto policy.Protocol, port uint16) policy.Flow {
		return policy.Flow{Protocol: proto, Source: source, Dialled: netip.AddrPortFrom(v4(99), 7), Reached: netip.AddrPortFrom(v4(9), port)}
	}
	node := flow(v4(77), policy.TCP, 80)
	node.FromNode = true
	loop := flow(v4(9), policy.TCP, 80)
	for what, c := range map[string]struct {
		in      *policy.Ingress
		f       policy.Flow
		allowed bool
		by      *policy.Rule
	}{
		"no policy":                         {nil, flow(v4(1), policy.TCP, 80), true, nil},
		"default deny":                      {isolated(), flow(v4(1), policy.TCP, 80), false, nil},
		"a Baseline rule":                   {ordered(), flow(v4(1), policy.TCP, 80), false, base},
		"no Baseline rule hits":             {&policy.Ingress{Rules: policy.Rules{Admin: []*policy.Rule{deny}}}, flow(v4(2), policy.TCP, 80), true, nil},
		"Admin Accept ends":                 {ordered(accept, deny), flow(v4(1), policy.TCP, 80), true, accept},
		"Admin Deny ends":                   {ordered(deny, accept), flow(v4(1), policy.TCP, 80), false, deny},
		"Pass skips the tier":               {ordered(pass, accept), flow(v4(1), policy.TCP, 80), false, base},
		"Pass, isolated":                    {&policy.Ingress{NetworkPolicies: []string{"a/b"}, Rules: policy.Rules{Admin: []*policy.Rule{pass, deny}, Namespace: []*policy.Rule{web}, Baseline: []*policy.Rule{base}}}, flow(v4(1), policy.TCP, 80), true, web},
		"Admin Deny before the union":       {&policy.Ingress{NetworkPolicies: []string{"a/b"}, Rules: policy.Rules{Admin: []*policy.Rule{deny}, Namespace: []*policy.Rule{all}}}, flow(v4(1), policy.TCP, 80), false, deny},
		"no Baseline for an isolated pod":   {&policy.Ingress{NetworkPolicies: []string{"a/b"}, Rules: policy.Rules{Namespace: []*policy.Rule{all}, Baseline: []*policy.Rule{base}}}, flow(v4(1), policy.TCP, 80), true, all},
		"another source":                    {isolated(web), flow(v4(2), policy.TCP, 80), false, nil},
		"another port":                      {isolated(web), flow(v4(1), policy.TCP, 81), false, nil},
		"another protocol":                  {isolated(web), flow(v4(1), policy.UDP, 80), false, nil},
		"the node's process":                {ordered(deny), node, true, nil},
		"the node's process, isolated":      {isolated(), node, true, nil},
		"its own address":                   {isolated(), loop, true, nil},
		"its own address has no exemption":  {ordered(), loop, false, base},
		"another pod of the Service":        {isolated(), flow(v4(8), policy.TCP, 80), false, nil},
		"a network":                         {isolated(block), flow(v4(1), policy.UDP, 53), true, block},
		"except":                            {isolated(block), flow(v4(2), policy.UDP, 53), false, nil},
		"behind the exception":              {isolated(block), flow(v4(3), policy.UDP, 53), true, block},
		"endPort":                           {isolated(web, span), flow(v4(1), policy.TCP, 8010), true, span},
		"behind endPort":                    {isolated(web, span), flow(v4(1), policy.TCP, 8011), false, nil},
		"SCTP":                              {isolated(web, sctp), flow(v4(1), policy.SCTP, 9), true, sctp},
		"a port of SCTP":                    {isolated(span), flow(v4(1), policy.SCTP, 2), false, nil},
		"ICMP where all is open":            {isolated(all), flow(v4(1), 1, 0), true, all},
		"ICMP where ports are":              {isolated(web, span, sctp), flow(v4(1), 1, 0), false, nil},
		"a mapped source":                   {isolated(web), flow(netip.AddrFrom16(v4(1).As16()), policy.TCP, 80), true, web},
		"a source that is not known":        {isolated(web), flow(netip.Addr{}, policy.TCP, 80), false, nil},
		"what is dialled means nothing":     {ordered(adminWeb), flow(v4(1), policy.TCP, 7), false, base},
		"a name that the pod does not have": {&policy.Ingress{Rules: policy.Rules{Admin: []*policy.Rule{unnamed}}}, flow(v4(1), policy.TCP, 80), true, nil},
	} {
		v := &policy.View{Pod: policy.Pod{IPs: []netip.Addr{v4(9), v6(8)}}, Ingress: c.in}
		allowed, by := policy.EvaluateIngress(v, in, &c.f)
		if allowed != c.allowed || by != c.by {
			t.Errorf("%s: allowed %v by %+v", what, allowed, by)
		}
		if out, by := policy.Evaluate(v, in, &c.f); !out || by != nil || v.InForce() {
			t.Errorf("%s: rules for ingress count for egress", what)
		}
	}
	if allowed, by := policy.EvaluateIngress(nil, in, &node); !allowed || by != nil {
		t.Error("a pod without a view is judged")
	}
	for action, want := range map[policy.Action]bool{policy.Accept: true, policy.Deny: false, policy.Pass: false} {
		r := rule(a, action, pods.Peer, "tcp/80")
		r.PortNames = []policy.NamedPort{{Name: "http", Protocol: policy.TCP}}
		broken := r.Break()
		v := &policy.View{Ingress: &policy.Ingress{Rules: policy.Rules{Admin: []*policy.Rule{broken}}}}
		f := flow(v4(7), policy.UDP, 9)
		allowed, by := policy.EvaluateIngress(v, in, &f)
		if diff.Equal(t, want, allowed, action); (by == nil) != want || len(broken.PortNames) > 0 {
			t.Errorf("broken %v: by %+v", action, by)
		}
	}
}
