package compile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/short"
)

const everyPod = "subject: {namespaces: {}}"

// TestClusterOrder: by tier, priority, name and index, around the rules of the namespace.
func TestClusterOrder(t *testing.T) {
	in := besideInput(nil, aNet(t, "np", "{podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.9.0.0/16}}]}]}"))
	in.Policies = append(in.Policies, aPolicy("open", "", aRule("a.test")))
	in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{
		aCluster(t, "z", "{tier: Admin, priority: 5, "+everyPod+", egress: [{action: Deny, matches: [{name: z.test}]}], dns: {unmatched: NXDomain}}"),
		aCluster(t, "default", "{tier: Baseline, priority: 0, "+everyPod+", egress: [{action: Deny}], dns: {unmatched: Refuse}}"),
		aCluster(t, "b", "{tier: Admin, priority: 10, "+everyPod+", egress: [{action: Accept, matches: [{pattern: '*.b.test'}], networks: [192.0.2.0/24]}, {action: Pass}]}"),
		aCluster(t, "a", "{tier: Admin, priority: 10, "+everyPod+", egress: [{action: Pass, networks: [192.0.2.0/25], ports: [{port: 53}]}]}"),
		aCluster(t, "watched", "{tier: Admin, priority: 0, enforcement: Audit, "+everyPod+", egress: [{action: Deny}], dns: {unmatched: Refuse}}"),
		aCluster(t, "empty", "{tier: Admin, priority: 0, "+everyPod+", dns: {unmatched: Refuse}}"),
		aCluster(t, "others", "{tier: Admin, priority: 0, subject: {namespaces: {matchLabels: {team: b}}}, egress: [{action: Deny}]}"),
	}
	s := New().Compile(in)
	v := s.Views[0]
	want := []string{
		"Admin watched spec.egress[0] Deny audit 0  any",
		"Admin z spec.egress[0] Deny z.test any",
		"Admin a spec.egress[0] Pass 2 192.0.2.0/25 tcp/53,udp/53,sctp/53",
		"Admin b spec.egress[0] Accept *.b.test any",
		"Admin b spec.egress[0] Accept 2 192.0.2.0/24 any",
		"Admin b spec.egress[1] Pass 0  any",
		"Namespace shop/open spec.egress[0] Accept a.test any",
		"Namespace shop/np spec.egress[0] Accept 2 10.9.0.0/16 any",
		"Baseline default spec.egress[0] Deny 0  any",
	}
	diff.Error(t, want, orderedTexts(v.Rules))
	if v.AdminUnmatched != policy.NXDomain || v.BaselineUnmatched != policy.Refuse || v.Unmatched != policy.Resolve || len(s.Problems) > 0 {
		t.Errorf("%v %v %v %v", v.AdminUnmatched, v.BaselineUnmatched, v.Unmatched, s.Problems)
	}
	if len(v.PortSets()) != 1 || len(s.PeerSets) != 3 {
		t.Errorf("%v %v", v.PortSets(), setTexts(s))
	}
	for name, want := range map[string]string{"z.test": "z z.test", "x.b.test": "b *.b.test", "a.test": "shop/open a.test"} {
		if d := v.Decide(policytest.Name(name)); len(d.Matches) != 1 || d.Matches[0].By() != want {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for a, want := range map[string]string{"192.0.2.1": "Accept b", "192.0.2.200": "Accept b", "198.51.100.1": "", "10.9.0.1": "Accept shop/np"} {
		to := addr(a)
		f := &policy.Flow{Protocol: policy.TCP, Dialled: netip.AddrPortFrom(to, 443), Reached: netip.AddrPortFrom(to, 443)}
		got := ""
		if allowed, by := policy.Evaluate(v, s, f); allowed && by != nil {
			got = by.Action.String() + " " + by.Policy
		}
		diff.Equal(t, want, got, a)
	}
}

// TestExactNamesOfTiers: those of all tiers that enforce, each once; of cluster policies no
// more than each pod can ask for, and no name that is only refused.
func TestExactNamesOfTiers(t *testing.T) {
	in := besideInput(nil)
	in.Policies = append(in.Policies, aPolicy("open", "", aRule("b.test", "a.test", "*.test")))
	in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{
		aCluster(t, "one", "{tier: Admin, priority: 1, "+everyPod+", egress: [{action: Deny, matches: [{name: a.test}, {name: refused.test}]}, {action: Deny, ports: [{port: 80}], matches: [{name: d.test}]}]}"),
		aCluster(t, "shown", "{tier: Admin, priority: 2, "+everyPod+", egress: [{action: Deny, matches: [{name: f.test}]}], dns: {denied: Resolve}}"),
		aCluster(t, "two", "{tier: Baseline, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {}}}, egress: [{action: Pass, matches: [{name: c.test}]}]}"),
		aCluster(t, "seen", "{tier: Admin, priority: 1, enforcement: Audit, "+everyPod+", egress: [{action: Deny, matches: [{name: e.test}]}]}"),
	}
	if opened, denied := New().Compile(in).Views[0].ExactNames(); fmt.Sprint(opened, denied) != "[a.test b.test c.test] [d.test f.test]" {
		t.Errorf("%v, denied %v", opened, denied)
	}
	for i := range 3 {
		p := aCluster(t, fmt.Sprint("many", i), "{tier: Admin, priority: 1, "+everyPod+", dns: {denied: Resolve}}")
		for j := range cfqdnnp.MaxRules {
			rule := v1alpha1.ClusterEgressRule{Action: v1alpha1.ActionDeny}
			for k := range 10 {
				rule.Matches = append(rule.Matches, v1alpha1.Match{Name: ptr(fmt.Sprintf("n%d-%d-%d.test", i, j, k))})
			}
			p.Spec.Egress = append(p.Spec.Egress, rule)
		}
		in.ClusterPolicies = append(in.ClusterPolicies, p)
	}
	// Names that are denied take no room of others.
	opened, denied := New().Compile(in).Views[0].ExactNames()
	if fmt.Sprint(opened) != "[a.test b.test c.test]" || len(denied) != 1024-1 || !slices.IsSorted(denied) || slices.Contains(denied, policytest.Name("a.test")) {
		t.Errorf("%v, and %d denied", opened, len(denied))
	}
}

// TestClusterAlone: a pod that only a cluster policy selects has a view, and is not isolated.
func TestClusterAlone(t *testing.T) {
	pods := []policy.Pod{aPod("web", "web", "10.0.0.1"), aPod("db", "db", "10.0.0.2"), aPod("host", "web", "10.0.0.3"), aPod("stray", "web", "10.0.0.4")}
	pods[2].HostNetwork, pods[3].Namespace, pods[1].SecondInterfaces = true, "unknown", true
	in := Input{Namespaces: spaces(), Pods: pods, ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{
		aCluster(t, "c", "{tier: Admin, priority: 1, "+everyPod+", egress: [{action: Deny, matches: [{name: a.test}]}]}"),
		aCluster(t, "named", "{tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {"+corev1.LabelMetadataName+": unknown}}}, egress: [{action: Pass}]}"),
	}}
	s := New().Compile(in)
	var got []string
	for _, v := range s.Views {
		got = append(got, fmt.Sprint(v.Pod, v.Enforced, len(v.Policies), orderedTexts(v.Rules), len(v.PortSets())))
	}
	diff.Error(t, []string{
		"shop/db false 0 [Admin c spec.egress[0] Deny a.test any] 0", "shop/web false 0 [Admin c spec.egress[0] Deny a.test any] 0",
		"unknown/stray false 0 [Admin c spec.egress[0] Deny a.test any Admin named spec.egress[0] Pass 0  any] 0",
	}, got)
	web, db := s.ViewOf(pods[0].PodRef), s.ViewOf(pods[1].PodRef)
	if &web.Rules.Admin[0] != &db.Rules.Admin[0] || &web.Cluster[0] != &db.Cluster[0] {
		t.Error("views with equal lists do not share them")
	}
	if d := web.Decide(policytest.Name("a.test")); d.Denied == nil || d.Reply != policy.NXDomain {
		t.Errorf("%+v", d)
	}
	if len(s.Problems) != 1 || s.Problems[0].Reason != policy.ReasonSecondInterface || !slices.Equal(s.Problems[0].Policies, []string{"c"}) {
		t.Errorf("%v", s.Problems)
	}
}

// TestClusterShared: views with the same cluster policies share these rules, whatever their
// namespaces' policies are. A change of networks leaves the index of the names as it was.
func TestClusterShared(t *testing.T) {
	in := Input{Namespaces: spaces(), Pods: []policy.Pod{aPod("web", "web", "10.0.0.1"), aPod("db", "db", "10.0.0.2")}}
	in.Policies = []*v1alpha1.FQDNNetworkPolicy{aPolicy("open", "web", aRule("a.test"))}
	nets := func(network string) *v1alpha1.ClusterFQDNNetworkPolicy {
		return aCluster(t, "nets", "{tier: Baseline, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, networks: ["+network+"]}]}")
	}
	names := aCluster(t, "names", "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, matches: [{name: b.test}]}]}")
	in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{names, nets("192.0.2.0/24")}
	c := New()
	before := c.Compile(in)
	web, db := before.ViewOf(in.Pods[0].PodRef), before.ViewOf(in.Pods[1].PodRef)
	if len(web.Rules.Namespace) != 1 || len(db.Rules.Namespace) > 0 || &web.Rules.Admin[0] != &db.Rules.Admin[0] || &web.Rules.Baseline[0] != &db.Rules.Baseline[0] {
		t.Errorf("%+v and %+v do not share the cluster rules", web.Rules, db.Rules)
	}
	in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{names, nets("198.51.100.0/24")}
	after := c.Compile(in).ViewOf(in.Pods[0].PodRef)
	if after.Rules.Baseline[0].Peer.Key != "198.51.100.0/24" || after.Cluster[0] != web.Cluster[0] {
		t.Errorf("after another network: %v, the same index: %v", after.Rules.Baseline[0].Peer, after.Cluster[0] == web.Cluster[0])
	}
}

// TestClusterConflict: an address that two pods claim is closed where a cluster policy
// selects one of them, and enforces.
func TestClusterConflict(t *testing.T) {
	for enforcement, want := range map[string]bool{"Enforce": true, "Audit": false} {
		in := Input{Namespaces: spaces(), Pods: []policy.Pod{aPod("web", "web", "10.0.0.1"), aPod("db", "db", "10.0.0.1")}}
		in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{aCluster(t, "c", "{tier: Admin, priority: 1, denied: Drop, enforcement: "+enforcement+
			", subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}, egress: [{action: Accept}]}")}
		v := New().Compile(in).View(addr("10.0.0.1"))
		if v == nil || v.Enforced != want || v.Ordered() || want && v.Denied != policy.Drop {
			t.Errorf("%s: %+v", enforcement, v)
		}
	}
}

// TestClusterRoom: rules without room are broken, on every node, and no others.
func TestClusterRoom(t *testing.T) {
	const lots = 99
	in := Input{Namespaces: spaces(), Pods: []policy.Pod{aPod("web", "web", "10.0.0.1")}, ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{
		aCluster(t, "one", "{tier: Admin, priority: 2, "+everyPod+", egress: [{action: Deny, matches: [{name: a.test}, {pattern: '**.b.test'}]}, "+
			"{action: Accept, networks: [192.0.2.0/24]}, {action: Pass, networks: [192.0.2.0/25, 192.0.2.128/25]}]}"),
		aCluster(t, "three", "{tier: Baseline, priority: 0, subject: {namespaces: {matchLabels: {team: none}}}, egress: [{action: Pass}]}"),
		aCluster(t, "two", "{tier: Admin, priority: 1, enforcement: Audit, "+everyPod+", egress: [{action: Accept, matches: [{name: a.test}]}, {action: Deny, networks: [192.0.2.0/25]}]}"),
	}}
	for room, want := range map[cost][3]string{ // "b" for each rule that is broken
		{lots, lots, lots, lots, 0}: {"...", ".", ".."},
		{5, lots, lots, lots, 0}:    {"...", ".", ".b"},
		{4, lots, lots, lots, 0}:    {"...", ".", "bb"},
		{2, lots, lots, lots, 0}:    {"..b", "b", "bb"},
		{lots, 2, lots, lots, 0}:    {"...", ".", "b."},
		{lots, 1, lots, lots, 0}:    {"b..", ".", ".."},
		{lots, lots, 0, lots, 0}:    {"b..", ".", ".."},
		{lots, lots, lots, 1, 0}:    {"...", ".", ".b"},
		{lots, lots, lots, 0, 0}:    {".bb", ".", ".b"},
	} {
		c := New()
		c.cluster.room = room
		s := c.Compile(in)
		problems := 0
		for i, p := range in.ClusterPolicies {
			got, known := "", c.cluster.known[p.Name]
			for _, r := range known.rules {
				got += map[bool]string{true: "b", false: "."}[r.Broken]
			}
			diff.Equal(t, want[i], got, room, p.Name)
			if strings.Contains(got, "b") {
				problems++
			}
			for _, r := range known.rules {
				diff.Equal(t, slices.Contains(slices.Collect(s.Views[0].Rules.All()), r), p.Name != "three", room, p.Name, "the view has the rule")
			}
		}
		if len(s.Problems) != problems {
			t.Errorf("%+v: %q", room, problemTexts(s))
		}
	}
	c := New()
	c.cluster.room.rules = 4
	got := problemTexts(c.Compile(in))
	diff.Error(t, []string{"clusterpolicy two NoRoom spec.egress[0]: this rule and 1 more of the policy have no room and match nothing as Accept, and as Deny or Pass " +
		"every connection, which is denied: all cluster policies together have more than 4096 rules, 32768 matches, 131072 labels in patterns or 2048 different lists of networks; " +
		"write fewer, or a wildcard or a wider network for several"}, got)
}

// TestClusterNetworksRoom: the same rules lack room on every node, and those for which there
// is room have it before the namespaces.
func TestClusterNetworksRoom(t *testing.T) {
	c := New()
	c.cluster.room.sets, c.room.sets = 2, 2
	in := besideInput(nil, aNet(t, "np", "{podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.9.0.0/16}}]}, {to: [{ipBlock: {cidr: 10.8.0.0/16}}]}]}"))
	policies := []*v1alpha1.ClusterFQDNNetworkPolicy{
		aCluster(t, "a", "{tier: Admin, priority: 1, "+everyPod+", egress: [{action: Deny, networks: [192.0.2.0/24]}, {action: Pass, networks: [192.0.2.0/24]}]}"),
		aCluster(t, "b", "{tier: Admin, priority: 2, subject: {namespaces: {matchLabels: {team: b}}}, egress: [{action: Deny, networks: [198.51.100.0/24]}]}"),
		aCluster(t, "c", "{tier: Admin, priority: 3, "+everyPod+", egress: [{action: Deny, networks: [203.0.113.0/24]}, {action: Accept, networks: [203.0.113.0/25]}]}"),
	}
	in.ClusterPolicies = policies
	s := c.Compile(in)
	want := []string{
		"Admin a spec.egress[0] Deny 2 192.0.2.0/24 any", "Admin a spec.egress[1] Pass 2 192.0.2.0/24 any",
		"Admin c spec.egress[0] Deny broken 0  any", "Admin c spec.egress[1] Accept broken ",
		"Namespace shop/np spec.egress[0] Accept 2 10.9.0.0/16 any",
	}
	diff.Error(t, want, orderedTexts(s.Views[0].Rules))
	if got := problemTexts(s); len(got) != 2 || !strings.HasPrefix(got[0], "clusterpolicy c NoRoom spec.egress[0]: this rule and 1 more of the policy have no room and match nothing as Accept") ||
		!strings.HasPrefix(got[1], "networkpolicy shop/np") {
		t.Errorf("%q", got)
	}
	in.ClusterPolicies = slices.Delete(slices.Clone(policies), 1, 2) // room for one more
	s = c.Compile(in)
	want[2], want[4] = "Admin c spec.egress[0] Deny 2 203.0.113.0/24 any", ""
	diff.Error(t, want[:4], orderedTexts(s.Views[0].Rules))
}

// clusterTwin returns the rules of the cluster policies for a pod of a tier.
func clusterTwin(in Input, pod *policy.Pod, tier v1alpha1.Tier) []string {
	of := slices.Clone(in.ClusterPolicies)
	slices.SortFunc(of, func(a, b *v1alpha1.ClusterFQDNNetworkPolicy) int {
		if d := *a.Spec.Priority - *b.Spec.Priority; d != 0 {
			return int(d)
		}
		return strings.Compare(a.Name, b.Name)
	})
	space := in.Namespaces[pod.Namespace]
	if space == nil {
		space = map[string]string{corev1.LabelMetadataName: pod.Namespace}
	}
	var out []string
	for _, p := range of {
		selects := false
		switch s := &p.Spec.Subject; {
		case s.Namespaces != nil:
			selects = twinSelects(s.Namespaces, space)
		case s.Pods != nil:
			selects = twinSelects(s.Pods.NamespaceSelector, space) && twinSelects(s.Pods.PodSelector, pod.Labels)
		}
		if selects && p.Spec.Tier == tier {
			for _, r := range cfqdnnp.Read(p).Rules {
				if r.ServerName && !r.Broken {
					r.ID = r.NewID()
				}
				out = append(out, orderedText(r.Rule))
			}
		}
	}
	return out
}

func clusterDump(t *testing.T, s *policy.Snapshot) string {
	t.Helper()
	var b strings.Builder
	for _, v := range s.Views {
		fmt.Fprintln(&b, v.Pod, v.Enforced, v.Policies, v.NetworkPolicies, v.Unmatched, v.AdminUnmatched, v.BaselineUnmatched, v.PortSets())
		fmt.Fprintln(&b, strings.Join(orderedTexts(v.Rules), "\n"))
		r := rand.New(rand.NewPCG(s.Number, 3))
		for range 4 {
			fmt.Fprintln(&b, matchPaths(v.Decide(randomName(t, r))))
		}
	}
	fmt.Fprintln(&b, strings.Join(setTexts(s), "\n"), s.Problems)
	return b.String()
}

// TestClusterHistories lets one compiler follow many short histories: it says what a new one
// says and what the twin says, and views that did not change keep their pointers.
func TestClusterHistories(t *testing.T) {
	kept, rules := 0, 0
	rounds := short.Rounds(20, 60, 600)
	for seed := range uint64(rounds) {
		d := netDice{rand.New(rand.NewPCG(seed, 17))}
		in, c := d.input(), New()
		room := roll(d, c.cluster.room, c.cluster.room, cost{6, 10, 20, 2, 0})
		c.cluster.room = room
		for range 40 {
			in = d.changeCluster(in)
		}
		var last *policy.Snapshot
		for step := range 25 {
			for range d.IntN(4) {
				in = d.changeCluster(in)
			}
			fresh := New()
			fresh.cluster.room, fresh.number = room, c.number
			s := c.Compile(in)
			diff.Fatal(t, clusterDump(t, fresh.Compile(in)), clusterDump(t, s), "seed", seed, "step", step)
			for _, v := range s.Views {
				if strings.Contains(v.Pod.Name, "+") || room.rules < MaxClusterRules {
					continue // closed, or broken for want of room
				}
				want := append(clusterTwin(in, &v.Pod, v1alpha1.TierAdmin), clusterTwin(in, &v.Pod, v1alpha1.TierBaseline)...)
				got := orderedTexts(policy.Rules{Admin: v.Rules.Admin, Baseline: v.Rules.Baseline})
				if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
					t.Fatalf("seed %d, step %d, %v:\n%s", seed, step, v.Pod, diff)
				}
				if !slices.IsSortedFunc(slices.Collect(v.Rules.All()), func(a, b *policy.Rule) int { return int(a.Tier) - int(b.Tier) }) {
					t.Fatalf("seed %d, step %d, %v: tiers are mixed", seed, step, v.Pod)
				}
				rules += len(got)
			}
			again := c.Compile(in)
			if !slices.Equal(again.Views, s.Views) {
				t.Fatalf("seed %d, step %d: without a change the views are others", seed, step)
			}
			if last != nil {
				for _, v := range s.Views {
					if last.ViewOf(v.Pod.PodRef) == v {
						kept++
					}
				}
			}
			last = again
			if len(c.cluster.known) != len(in.ClusterPolicies) || len(c.cluster.unions.unions) > len(in.Pods) || len(c.cluster.spaces) > 3 {
				t.Fatalf("seed %d, step %d: the compiler keeps %d policies, %d unions, %d namespaces",
					seed, step, len(c.cluster.known), len(c.cluster.unions.unions), len(c.cluster.spaces))
			}
		}
	}
	if kept < rounds*20/3 || rules < rounds*20/3 {
		t.Errorf("%d views kept, %d rules: the histories are too simple", kept, rules)
	}
}
