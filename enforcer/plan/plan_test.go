package plan

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/policytest"
)

// selected is the snapshot of the node's pods that policies by their own names select.
func selected(pods []policy.Pod, names ...string) *policy.Snapshot {
	in := compile.Input{Pods: pods}
	for _, name := range names {
		in.Policies = append(in.Policies, policytest.Policy(name, "tcp/443 "+name+".example.org"))
	}
	return compile.New().Compile(in)
}

func TestOf(t *testing.T) {
	if got := Of(nil, Placement{}, NewLists()); len(got) != 0 {
		t.Errorf("without a snapshot: %v", got)
	}
	web := policytest.Pod("web", "10.1.0.5 10.1.0.6 10.1.0.7", "allow")
	s := selected([]policy.Pod{web, policytest.Pod("free", "10.1.0.8")}, "allow")
	home := Home{Home: homeAt("port5"), Pod: web.PodRef}
	for _, test := range []struct {
		change func(v *policy.View)
		want   dataplane.Subject
	}{
		{func(*policy.View) {}, dataplane.Subject{Isolated: true, Staged: true}},
		{func(v *policy.View) { v.Denied = policy.Drop }, dataplane.Subject{Isolated: true, Staged: true, Drop: true}},
		{func(v *policy.View) { v.Enforced = false }, dataplane.Subject{}},
	} {
		test.change(s.Views[0])
		at := Placement{Homes: map[netip.Addr]Home{web.IPs[0]: home, web.IPs[1]: {Pod: web.PodRef}}, BridgesUnseen: true}
		all := Of(s, at, NewLists())
		got := all[web.PodRef]
		if len(all) != 1 || !got.Intercept || !got.BridgesUnseen || got.Isolated != test.want.Isolated || got.Staged != test.want.Staged || got.Drop != test.want.Drop {
			t.Fatalf("%d subjects, of which %+v", len(all), got)
		}
		if d := cmp.Diff(web.IPs, got.Addrs, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
			t.Error(d)
		}
		if isolated := slices.Equal(got.Grants, []policy.PortSet{"tcp/443"}) && got.Homes[web.IPs[0]] == home.Home && len(got.Homes) == 1 &&
			slices.Equal(got.Homeless, web.IPs[1:2]) && slices.Equal(got.Views, s.Views); isolated != test.want.Isolated {
			t.Errorf("enforced %v, and the subject is %+v", test.want.Isolated, got)
		}
	}
}

// networks are rules of the Namespace tier, a network each.
func networks(keys ...string) (out []*policy.Rule) {
	for _, key := range keys {
		out = append(out, &policy.Rule{Peer: policy.Peer{Kind: policy.PeerNetworks, Key: key}, Ports: "tcp/80", Action: policy.Accept})
	}
	return out
}

func accept(network string) dataplane.Rule {
	return dataplane.Rule{Peer: policy.Peer{Kind: policy.PeerNetworks, Key: network}, Ports: "tcp/80"}
}

// TestListsAreKept for as long as a snapshot asks for them.
func TestListsAreKept(t *testing.T) {
	rules := networks("192.0.2.0/24", "198.51.100.0/24")
	m := NewLists()
	first := m.of(rules)
	if want := []dataplane.Rule{accept("192.0.2.0/24"), accept("198.51.100.0/24")}; !slices.Equal(first.Rules, want) {
		t.Errorf("the rules are %v", first.Rules)
	}
	m.Prune()
	if m.of(rules) != first || m.of(nil) != nil || len(m.of(rules[:1]).Rules) != 1 {
		t.Error("a list is not that of its rules")
	}
	m.Prune()
	m.Prune()
	if len(m.peers) != 0 || m.of(rules) == first {
		t.Error("a list that nobody asks for is kept")
	}
}

func TestUnion(t *testing.T) {
	old, heir := policytest.Pod("old", "10.1.0.5", "one"), policytest.Pod("heir", "10.1.0.5 10.1.0.6", "two")
	stays, grows := policytest.Pod("stays", "10.1.0.7", "one"), policytest.Pod("stays", "10.1.0.7 10.1.0.8", "one", "two")
	at := Placement{Homes: map[netip.Addr]Home{stays.IPs[0]: {Home: homeAt("port5"), Pod: stays.PodRef}, heir.IPs[1]: {Home: homeAt("port6"), Pod: heir.PodRef}}}
	now := Of(selected([]policy.Pod{old, stays}, "one", "two"), at, NewLists())
	next := Of(selected([]policy.Pod{heir, grows}, "one", "two"), at, NewLists())
	for _, closed := range []bool{false, true} {
		all := Union(now, next, map[policy.PodRef]bool{heir.PodRef: closed})
		o, h, s := all[old.PodRef], all[heir.PodRef], all[stays.PodRef]
		if len(all) != 3 || !slices.Equal(o.Addrs, old.IPs) || len(o.Judged) != 0 || !o.Isolated || !o.Intercept {
			t.Errorf("the pod that goes is %+v", o)
		}
		if !slices.Equal(h.Judged, heir.IPs) || !slices.Equal(h.Addrs, heir.IPs[1:]) || h.Isolated != closed || !h.Staged || h.Intercept || len(h.Homes) != 0 {
			t.Errorf("closed %v: the pod that comes is %+v", closed, h)
		}
		if !slices.Equal(s.Addrs, stays.IPs) || !slices.Equal(s.Judged, grows.IPs) || !s.Isolated || len(s.Views) != 2 ||
			!slices.Equal(s.Grants, []policy.PortSet{"tcp/443"}) || s.Homes[stays.IPs[0]] != homeAt("port5") {
			t.Errorf("the pod that stays is %+v", s)
		}
	}
	ref := stays.PodRef
	now[ref].Isolated, now[ref].Peers, next[ref].Peers = false, listOf(networks("192.0.2.0/24")), listOf(networks("198.51.100.0/24"))
	for _, closed := range []bool{false, true} {
		got := Union(now, next, map[policy.PodRef]bool{ref: closed})[ref]
		if got.Isolated != closed || !slices.Equal(got.Peers.Rules, []dataplane.Rule{accept("192.0.2.0/24"), accept("198.51.100.0/24")}) {
			t.Errorf("closed %v: a pod that becomes isolated is %+v, with the peers %v", closed, got, got.Peers)
		}
	}
	if got := Removed(now, next); len(got) != 1 || got[old.IPs[0]] != old.PodRef {
		t.Errorf("%v are gone", got)
	}
}

func TestKnown(t *testing.T) {
	far, host := policytest.Pod("far", "10.2.0.1"), policytest.Pod("host", "192.0.2.1")
	far.NodeName, host.HostNetwork = "node-2", true
	got := Known(selected([]policy.Pod{far, host, policytest.Pod("web", "2001:db8::5 10.1.0.6", "one"), policytest.Pod("free", "10.1.0.5")}, "one"))
	if !slices.Equal(got, policytest.Addrs("10.1.0.5 10.1.0.6 2001:db8::5")) || len(Known(nil)) != 0 {
		t.Errorf("known are %v", got)
	}
}

// TestRandomUnion: between two random snapshots each address is judged by the rules of one
// subject, which is the coming one where there is one, and no pod that is isolated in both
// is open.
func TestRandomUnion(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		draw := func() (pods []policy.Pod) {
			free := policytest.Addrs("10.1.0.1 10.1.0.2 10.1.0.3 10.1.0.4 10.1.0.5")
			r.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
			for _, name := range []string{"a", "b", "c", "d"} {
				p := policytest.Pod(name, "", []string{"none", "one", "two"}[r.IntN(3)])
				n := min(r.IntN(3), len(free))
				p.IPs, free = free[:n:n], free[n:]
				if r.IntN(4) > 0 {
					pods = append(pods, p)
				}
			}
			return pods
		}
		now, next := Of(selected(draw(), "one", "two"), Placement{}, NewLists()), Of(selected(draw(), "one", "two"), Placement{}, NewLists())
		all := Union(now, next, nil)
		judges, coming, held := map[netip.Addr]policy.PodRef{}, Owners(next), Owners(now)
		for ref, p := range all {
			for _, a := range p.Judged {
				if other, twice := judges[a]; twice {
					t.Fatalf("seed %d: %s is judged by the rules of %s and %s", seed, a, other, ref)
				}
				judges[a] = ref
			}
			if was, is := now[ref], next[ref]; was != nil && is != nil && !p.Isolated || was == nil && p.Isolated {
				t.Fatalf("seed %d: %s is isolated: %v", seed, ref, p.Isolated)
			}
		}
		for a, ref := range held {
			want := ref
			if c, ok := coming[a]; ok {
				want = c
			}
			if judges[a] != want {
				t.Fatalf("seed %d: %s is judged by the rules of %s, want %s", seed, a, judges[a], want)
			}
		}
		for a, ref := range coming {
			if judges[a] != ref {
				t.Fatalf("seed %d: %s is judged by the rules of %s, want %s", seed, a, judges[a], ref)
			}
		}
		for a := range Removed(now, next) {
			if c, ok := coming[a]; ok && c == held[a] {
				t.Fatalf("seed %d: %s is gone from %s, which has it", seed, a, c)
			}
		}
	}
}

// TestTiers: rules of the Admin and the Baseline tier are in order, those of Audit policies
// do not count, and a broken rule denies.
func TestTiers(t *testing.T) {
	rule := func(tier policy.Tier, action policy.Action, network string) *policy.Rule {
		return &policy.Rule{Tier: tier, Action: action, Peer: policy.Peer{Kind: policy.PeerNetworks, Key: network}, Ports: "tcp/80"}
	}
	dropped, audited, broken := rule(policy.Admin, policy.Deny, "b"), rule(policy.Admin, policy.Accept, "c"), rule(policy.Admin, policy.Pass, "d")
	dropped.Denied, audited.Audit, broken.Broken = policy.Drop, true, true
	rules := []*policy.Rule{rule(policy.Admin, policy.Pass, "a"), dropped, audited, broken, rule(policy.Baseline, policy.Deny, "e")}
	of := func(v policy.View) *dataplane.Subject {
		v.Pod, v.Index = policytest.Pod("web", "10.1.0.5"), policy.NewIndex(nil, 0)
		return Of(policy.NewSnapshot(policy.Snapshot{Views: []*policy.View{&v}}, []policy.Pod{v.Pod}, nil), Placement{}, NewLists())[v.Pod.PodRef]
	}
	equal := func(is []*layout.TierRule, want ...dataplane.TierRule) bool {
		return slices.EqualFunc(is, want, func(r *layout.TierRule, w dataplane.TierRule) bool { return reflect.DeepEqual(r, w.TierRule) })
	}
	tierRule := func(action policy.Action, network string, drop bool) dataplane.TierRule {
		return dataplane.NewTierRule(policy.Peer{Kind: policy.PeerNetworks, Key: network}, "", "tcp/80", action, drop)
	}
	admin := []dataplane.TierRule{tierRule(policy.Pass, "a", false), tierRule(policy.Deny, "b", true), dataplane.NewTierRule(policy.Peer{}, "", policy.AnyPort, policy.Deny, false)}
	all := policytest.Rules(rules...)
	alone := of(policy.View{Rules: all})
	if !alone.Isolated || alone.Tiers == nil || alone.Tiers.Namespace || !equal(alone.Tiers.Admin, admin...) || !equal(alone.Tiers.Baseline, tierRule(policy.Deny, "e", false)) {
		t.Errorf("without a namespaced policy: %+v", alone.Tiers)
	}
	for what, v := range map[string]policy.View{"an FQDNNetworkPolicy": {Rules: all, Enforced: true}, "a NetworkPolicy": {Rules: all, NetworkPolicies: []string{"shop/np"}}} {
		if with := of(v); !with.Isolated || !with.Tiers.Namespace || !equal(with.Tiers.Admin, admin...) || with.Tiers.Baseline != nil || with.Tiers.Same(alone.Tiers) {
			t.Errorf("with %s: %+v", what, with.Tiers)
		}
	}
	for what, v := range map[string]policy.View{"no ordered rule": {Enforced: true}, "a Baseline beside a policy": {Rules: policytest.Rules(rules[4:]...), Enforced: true}} {
		if with := of(v); !with.Isolated || with.Tiers != nil {
			t.Errorf("with %s: %+v", what, with.Tiers)
		}
	}
	standard := *rules[0]
	standard.Standard = true
	ofStandard := policytest.Rules(&standard)
	for want, v := range map[bool]policy.View{true: {Rules: all}, false: {Rules: ofStandard, NetworkPolicies: []string{"shop/np"}}} {
		if got := of(v).Tiers; got.DNS != want {
			t.Errorf("DNS before %+v: %v, want %v", v.Rules, got.DNS, want)
		}
	}
	if with := of(policy.View{Rules: ofStandard, Enforced: true}); !with.Tiers.DNS || with.Tiers.Same(of(policy.View{Rules: ofStandard, NetworkPolicies: []string{"shop/np"}}).Tiers) {
		t.Errorf("beside a policy of ours: %+v", with.Tiers)
	}
	if with := of(policy.View{Rules: policytest.Rules(rules[2:3]...)}); with.Isolated || with.Tiers != nil {
		t.Errorf("with an audited rule alone: %+v", with)
	}
}

// TestIngressSharesSets: what accepts by a NetworkPolicy asks the sets of rule lists, whose members change with those of
// egress; what an ordered rule denies asks a set of its own.
func TestIngressSharesSets(t *testing.T) {
	peer := policy.Peer{Kind: policy.PeerPods, Key: "pods"}
	admin := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Ingress: true, Peer: peer, Ports: policy.AnyPort}
	accept := &policy.Rule{Tier: policy.Namespace, Action: policy.Accept, Ingress: true, Peer: peer, Ports: "tcp/80"}
	anywhere := &policy.Rule{Tier: policy.Namespace, Action: policy.Accept, Ingress: true, Peer: policy.Peer{Kind: policy.PeerAnywhere}, Ports: "tcp/81"}
	v := &policy.View{Pod: policytest.Pod("web", "10.1.0.5"), Index: policy.NewIndex(nil, 0), Ingress: &policy.Ingress{
		Rules: policytest.Rules(admin, accept, anywhere), NetworkPolicies: []string{"shop/np"},
	}}
	s := policy.NewSnapshot(policy.Snapshot{Views: []*policy.View{v}}, []policy.Pod{v.Pod}, nil)
	subjects := Of(s, Placement{}, NewLists())
	in := subjects[v.Pod.PodRef].Ingress
	if in.Admin[0].Peers != dataplane.PeersName(peer) || in.Accepts[0].Peers != dataplane.ListPeersName(peer) || in.Accepts[1].Peers != "" {
		t.Errorf("rules ask %q, %q and %q", in.Admin[0].Peers, in.Accepts[0].Peers, in.Accepts[1].Peers)
	}
	for what, got := range map[string][]policy.Peer{"ordered": in.Peers, "listed": in.Listed, "asked": ruleset.AskedPeers(subjects)} {
		if !slices.Equal(got, []policy.Peer{peer}) {
			t.Errorf("%s are %v", what, got)
		}
	}
}
