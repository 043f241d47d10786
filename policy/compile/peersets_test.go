package compile

import (
	"fmt"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
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
		diff.Fatal(t, netDump(New().Compile(in)), netDump(s), what)
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
	diff.Error(t, asked, allows(s, asked...))
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
	if s := c.Compile(in); len(c.egress.known)+len(c.egress.spaces) > 0 || s.Views[0].PeerRules() != nil || s.Views[0].NetworkPolicies != nil {
		t.Errorf("%d NetworkPolicies of %d namespaces are kept", len(c.egress.known), len(c.egress.spaces))
	}
}

// egressTo is a NetworkPolicy of a namespace for all its pods.
func egressTo(namespace, name string, rules ...networkingv1.NetworkPolicyEgressRule) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, Egress: rules},
	}
}

// TestCostOfExceptions: every agent reads every NetworkPolicy of the cluster,
// and an exception makes up to 127 networks. Those are made for pods with a view alone.
func TestCostOfExceptions(t *testing.T) {
	block := &networkingv1.IPBlock{CIDR: "::/0"}
	for i := range 20000 {
		block.Except = append(block.Except, fmt.Sprintf("%x:%x:0:1::1/128", 0x2000+i, i*7%65536))
	}
	n := egressTo("greedy", "n", networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{IPBlock: block}}})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := New().Compile(Input{NetworkPolicies: []*networkingv1.NetworkPolicy{n}})
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / 20000; got > 1024 {
		t.Errorf("%d bytes are allocated for each exception", got)
	}
	if len(s.Problems) != 1 {
		t.Errorf("problems %v", s.Problems)
	}
}
