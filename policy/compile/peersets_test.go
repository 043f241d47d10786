package compile

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
)

// others returns the sets of s that are other pointers than in last, by their keys.
func others(last, s *policy.Snapshot) []string {
	var out []string
	for _, set := range s.PeerSets {
		if last.PeerSet(set.Peer) != set {
			out = append(out, set.Key)
		}
	}
	return out
}

// TestOneChangeIsOneSet: views stay, and so do all sets but the changed one.
func TestOneChangeIsOneSet(t *testing.T) {
	c, in := New(), besideInput(shopCluster(),
		aNet(t, "a", `egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}, {to: [{namespaceSelector: {matchLabels: {team: b}}}]}, {to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]`),
		aNet(t, "b", `egress: [{to: [{podSelector: {matchExpressions: [{key: app, operator: Exists}]}}]}, {ports: [{port: sql}]}]`))
	free := aPod("free", "free", "10.0.0.77")
	free.Namespace = "lone"
	in.Pods = append(in.Pods, free)
	last := c.Compile(in)
	if len(last.PeerSets) != 5 {
		t.Fatal(setTexts(last))
	}
	change := func(i int, f func(*policy.Pod)) func() {
		return func() {
			p := *in.Remote[i]
			p.Labels = maps.Clone(p.Labels)
			f(&p)
			in.Remote = slices.Clone(in.Remote)
			in.Remote[i] = &p
		}
	}
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"nothing", func() {}, ""},
		{"another label", change(0, func(p *policy.Pod) { p.Labels["x"] = "y" }), ""},
		{"no longer a database", change(0, func(p *policy.Pod) { p.Labels["app"] = "x" }), "shop: app=db"},
		{"a database again", change(0, func(p *policy.Pod) { p.Labels["app"] = "db" }), "shop: app=db"},
		{"of team b", change(2, func(p *policy.Pod) { p.IPs = []netip.Addr{addr("10.1.9.9")} }), "ns team=b: *"},
		{"another number", change(1, func(p *policy.Pod) { p.Ports = []policy.NamedPort{{Name: "sql", Protocol: policy.TCP, Port: 1}} }), "sql/tcp of anywhere"},
		{"another name", change(1, func(p *policy.Pod) { p.Ports = []policy.NamedPort{{Name: "tls", Protocol: policy.TCP, Port: 1}} }), "sql/tcp of anywhere"},
		{"it ends", change(1, func(p *policy.Pod) { p.Phase = "Failed" }), "shop: app; shop: app=db"},
		{"another takes its address", func() { in.Remote = append(slices.Clone(in.Remote), farPod("shop/new", "app=db", "10.1.0.2")) }, "shop: app; shop: app=db"},
		{"it comes back beside it", change(1, func(p *policy.Pod) { p.Phase = "Running" }), ""},
		{"and goes", func() { in.Remote = slices.Delete(slices.Clone(in.Remote), 1, 2) }, ""},
		{"a label of a namespace that nobody asks for", func() {
			in.Namespaces = spaces()
			in.Namespaces["bank"]["x"] = "y"
		}, ""},
		{"one that is asked for", func() {
			in.Namespaces = spaces()
			in.Namespaces["lone"]["team"] = "b"
		}, "ns team=b: *"},
		{"a port of a pod of this node that is no view", func() {
			in.Pods = slices.Clone(in.Pods)
			in.Pods[1].Ports = []policy.NamedPort{{Name: "sql", Protocol: policy.TCP, Port: 5}}
		}, "sql/tcp of anywhere"},
		{"the same in other memory", func() {
			for i := range in.NetworkPolicies {
				in.NetworkPolicies[i] = in.NetworkPolicies[i].DeepCopy()
			}
			for i, p := range in.Remote {
				other := *p
				in.Remote[i] = &other
			}
		}, ""},
	} {
		in.NetworkPolicies = slices.Clone(in.NetworkPolicies)
		step.do()
		s := c.Compile(in)
		if got := others(last, s); strings.Join(got, "; ") != step.want {
			t.Errorf("%s: %q changed", step.what, got)
		}
		if s.Views[0] != last.Views[0] {
			t.Errorf("%s: the view is another", step.what)
		}
		if diff := cmp.Diff(netDump(New().Compile(in)), netDump(s)); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}
		last = s
	}
}

// TestManyChanges: thousands at once are as one after the other.
func TestManyChanges(t *testing.T) {
	const manyDirty = 512 // of package peers
	c, in := New(), netLoad(120, 3*manyDirty, 30)
	in.NetworkPolicies = append(in.NetworkPolicies, aNet(t, "ns0/all", `egress: [{to: [{namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}}], ports: [{}, {port: http}]}]`))
	last := c.Compile(in)
	copies := func(change func(int, *policy.Pod)) {
		in.Remote = slices.Clone(in.Remote)
		for i, p := range in.Remote {
			other := *p
			change(i, &other)
			in.Remote[i] = &other
		}
	}
	for what, do := range map[string]func(){
		"copies": func() { copies(func(int, *policy.Pod) {}) },
		"labels": func() {
			copies(func(i int, p *policy.Pod) {
				p.Labels = map[string]string{"app": fmt.Sprint("app", i%7), "tier": fmt.Sprint(i % 2)}
			})
		},
		"addresses": func() { copies(func(i int, p *policy.Pod) { p.IPs = []netip.Addr{p.IPs[0].Next()} }) },
		"fewer":     func() { in.Remote = in.Remote[:manyDirty/2] },
	} {
		do()
		s := c.Compile(in)
		if diff := cmp.Diff(netDump(New().Compile(in)), netDump(s)); diff != "" {
			t.Fatalf("%s: %s", what, diff)
		}
		for _, set := range s.PeerSets {
			if was := last.PeerSet(set.Peer); was != nil && (was == set) != reflect.DeepEqual(was, set) {
				t.Errorf("%s: %v is another pointer: %v", what, set.Peer, was != set)
			}
		}
		if got := len(others(last, s)); (got == 0) != (what == "copies") {
			t.Errorf("%s: %d sets changed", what, got)
		}
		last = s
	}
}

// TestUnusedSets cost nothing: NetworkPolicies of other pods have no members, and without
// pod peers no pods are looked at.
func TestUnusedSets(t *testing.T) {
	c, in := New(), besideInput(shopCluster(), aNet(t, "bank/np", `egress: [{to: [{podSelector: {}}]}]`), aNet(t, "np", `egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]`))
	pods := aNet(t, "pods", `egress: [{to: [{podSelector: {}}]}]`)
	for i, want := range []int{1, 2, 1} {
		now := in
		if i == 1 {
			now.NetworkPolicies = append(slices.Clone(in.NetworkPolicies), pods)
		}
		s := c.Compile(now)
		if len(s.PeerSets) != want || (c.index != nil) != (want == 2) {
			t.Errorf("%d: %v, pods are indexed: %v", i, setTexts(s), c.index != nil)
		}
	}
	in.Policies = nil
	if s := c.Compile(in); len(s.PeerSets)+len(c.sets)+len(c.egress.unions) > 0 {
		t.Errorf("without a policy: %v", setTexts(s))
	}
	in = besideInput(nil)
	if s := c.Compile(in); len(c.nets.known)+len(c.nets.spaces) > 0 || s.Views[0].PeerRules() != nil || s.Views[0].NetworkPolicies != nil {
		t.Errorf("%d NetworkPolicies of %d namespaces are kept", len(c.nets.known), len(c.nets.spaces))
	}
}

// TestInputIsUnchanged: the compiler does not write to its input.
func TestInputIsUnchanged(t *testing.T) {
	in := besideInput(shopCluster(), aNet(t, "np", `egress: [{to: [{ipBlock: {cidr: 10.0.0.9/8, except: [10.2.0.0/16, 10.1.0.0/16]}}, {podSelector: {matchExpressions: [{key: a, operator: In, values: [z, b]}]}}], ports: [{port: z}, {port: a}]}]`))
	in.Remote[0].IPs = append(in.Remote[0].IPs, addr("127.0.0.1"), addr("::ffff:10.9.9.9"))
	nets, pods := in.NetworkPolicies[0].DeepCopy(), fmt.Sprint(in.Remote[0])
	New().Compile(in)
	if !reflect.DeepEqual([]*networkingv1.NetworkPolicy{nets}, in.NetworkPolicies) || fmt.Sprint(in.Remote[0]) != pods {
		t.Error("the input is another")
	}
}

// TestPeersAtMappedAddresses are peers at IPv4 addresses.
func TestPeersAtMappedAddresses(t *testing.T) {
	s := New().Compile(besideInput(shopCluster(), aNet(t, "np", `egress: [{to: [{podSelector: {}}, {ipBlock: {cidr: 192.0.2.0/24}}]}]`)))
	asked := []string{"::ffff:10.1.0.1 tcp 1", "::ffff:192.0.2.1 tcp 1"}
	if diff := cmp.Diff(asked, allows(s, asked...)); diff != "" {
		t.Error(diff)
	}
}
