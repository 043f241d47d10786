package agent

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/stats"
	"github.com/namegate/namegate/status"
	"github.com/namegate/namegate/testkit/diff"
)

// TestSocketLB: a pod whose queries bypass the agent is reported for each policy.
//
// A pod whose connections of DNS over TCP are dropped is reported as well, and one whose interface is in
// a flow table.
func TestSocketLB(t *testing.T) {
	cart, web := netip.MustParseAddr("10.1.0.10"), netip.MustParseAddr("10.1.0.11")
	p := &v1alpha1.FQDNNetworkPolicy{}
	p.Namespace, p.Name = "shop", "base"
	p.Spec.PodSelector.MatchLabels = map[string]string{"app": "cart"}
	snap := compile.New().Compile(compile.Input{
		Policies: []*v1alpha1.FQDNNetworkPolicy{p},
		Pods: []policy.Pod{
			{PodRef: policy.PodRef{Namespace: "shop", Name: "cart"}, IPs: []netip.Addr{cart}, Labels: map[string]string{"app": "cart"}},
			{PodRef: policy.PodRef{Namespace: "shop", Name: "web"}, IPs: []netip.Addr{web}},
		},
	})
	found := ofStatus(snap, stats.Enforcer{Bypassing: []netip.Addr{cart, web, netip.MustParseAddr("10.1.0.99")}})
	if len(found) != 1 || found[0].Reason != status.SocketLB || found[0].Policy != "shop/base" || found[0].Pod.Name != "cart" || !strings.Contains(found[0].Message, "clusterDNS") {
		t.Errorf("%+v", found)
	}
	found = ofStatus(snap, stats.Enforcer{Offloading: map[netip.Addr]string{cart: "inet router fast", web: "inet router fast"}})
	if len(found) != 1 || found[0].Reason != status.Offloaded || found[0].Pod.Name != "cart" || !strings.Contains(found[0].Message, "inet router fast") {
		t.Errorf("%+v", found)
	}
	found = ofStatus(snap, stats.Enforcer{DroppedTCP: []netip.Addr{cart, web}})
	if len(found) != 1 || found[0].Reason != status.DNSBlocked || found[0].Policy != "shop/base" || found[0].Pod.Name != "cart" || !strings.Contains(found[0].Message, "DNS over TCP") {
		t.Errorf("%+v", found)
	}
}

// TestFindingsOfClusterPolicies: a pod's finding is one of each cluster policy with rules for
// it, once, and of its FQDNNetworkPolicies.
func TestFindingsOfClusterPolicies(t *testing.T) {
	cart := policy.PodRef{Namespace: "shop", Name: "cart"}
	p := &v1alpha1.FQDNNetworkPolicy{}
	p.Namespace, p.Name = "shop", "base"
	standard := func(name, tier string) *unstructured.Unstructured {
		rule := map[string]any{"action": "Pass", "to": []any{map[string]any{"nodes": map[string]any{}}, map[string]any{"namespaces": map[string]any{}}}}
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"tier": tier, "priority": int64(1), "subject": map[string]any{"namespaces": map[string]any{}}, "egress": []any{rule, rule},
		}}}
		u.SetName(name)
		return u
	}
	snap := compile.New().Compile(compile.Input{
		Policies:               []*v1alpha1.FQDNNetworkPolicy{p},
		ClusterNetworkPolicies: []*unstructured.Unstructured{standard("b", "Baseline"), standard("a", "Admin")},
		Pods:                   []policy.Pod{{PodRef: cart, IPs: []netip.Addr{netip.MustParseAddr("10.1.0.10")}}},
	})
	var got []string
	for _, f := range forPolicies(snap, status.Finding{Pod: cart, Reason: status.NotSeen}) {
		got = append(got, f.Policy)
	}
	diff.Error(t, []string{"shop/base", "clusternetworkpolicy:a", "clusternetworkpolicy:b"}, got)
}

// TestFindingsOfIngress: a bridge that netfilter does not see is a finding of the policies with rules for connections
// to the pod, and of no policy where only NetworkPolicies select it.
func TestFindingsOfIngress(t *testing.T) {
	view := func(name, addr string, in policy.Ingress) *policy.View {
		return &policy.View{Pod: policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: name}, IPs: []netip.Addr{netip.MustParseAddr(addr)}}, Ingress: &in}
	}
	ruled := policy.Rules{Admin: []*policy.Rule{{Policy: "clusternetworkpolicy:a"}, {Policy: "clusternetworkpolicy:a"}}, Baseline: []*policy.Rule{{Policy: "clusternetworkpolicy:b"}}}
	views := []*policy.View{view("cart", "10.1.0.10", policy.Ingress{Rules: ruled}), view("web", "10.1.0.11", policy.Ingress{NetworkPolicies: []string{"shop/closed"}})}
	pods, owners, unseen := []policy.Pod{}, map[netip.Addr]policy.PodRef{}, []netip.Addr{}
	for _, v := range views {
		pods, unseen, owners[v.Pod.IPs[0]] = append(pods, v.Pod), append(unseen, v.Pod.IPs...), v.Pod.PodRef
	}
	var got []string
	for _, f := range ofStatus(policy.NewSnapshot(policy.Snapshot{Views: views}, pods, owners), stats.Enforcer{Unseen: unseen}) {
		got = append(got, f.Reason+" "+f.Pod.Name+" "+f.Policy)
	}
	diff.Error(t, []string{"BridgeNotFiltered cart clusternetworkpolicy:a", "BridgeNotFiltered cart clusternetworkpolicy:b", "BridgeNotFiltered web "}, got)
	closed := &networkingv1.NetworkPolicy{}
	closed.Namespace, closed.Name = "shop", "closed"
	second := policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: "several"}, SecondInterfaces: true}
	snap := compile.New().Compile(compile.Input{NetworkPolicies: []*networkingv1.NetworkPolicy{closed}, Pods: []policy.Pod{second}, EnforceNetworkPolicies: true})
	if found := ofProblems(snap.Problems); len(found) != 1 || found[0].Reason != status.SecondInterface || found[0].Pod != second.PodRef || found[0].Policy != "" {
		t.Errorf("further interfaces of a pod that only NetworkPolicies select: %+v", found)
	}
}

// TestFindingsBesideNetworkPolicies: what cluster policies accept beside a NetworkPolicy that limits egress
// is a finding of its own, with the command that prints the NetworkPolicy to apply.
func TestFindingsBesideNetworkPolicies(t *testing.T) {
	limit := &networkingv1.NetworkPolicy{}
	limit.Namespace, limit.Name = "shop", "limit"
	limit.Spec.PodSelector.MatchLabels = map[string]string{"app": "cart"}
	limit.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	cart, web := netip.MustParseAddr("10.1.0.10"), netip.MustParseAddr("10.1.0.11")
	in := compile.Input{NetworkPolicies: []*networkingv1.NetworkPolicy{limit}, Pods: []policy.Pod{
		{PodRef: policy.PodRef{Namespace: "shop", Name: "cart"}, IPs: []netip.Addr{cart}, Labels: map[string]string{"app": "cart"}},
		{PodRef: policy.PodRef{Namespace: "shop", Name: "web"}, IPs: []netip.Addr{web}},
	}}
	for i, c := range []struct {
		tier        v1alpha1.Tier
		action      v1alpha1.Action
		enforcement v1alpha1.Enforcement
	}{{"Admin", "Accept", ""}, {"Admin", "Deny", ""}, {"Admin", "Accept", "Audit"}, {"Baseline", "Accept", ""}} {
		p := &v1alpha1.ClusterFQDNNetworkPolicy{}
		p.Name = string(rune('a' + i))
		p.Spec.Tier, p.Spec.Priority, p.Spec.Enforcement = c.tier, new(int32), c.enforcement
		p.Spec.Subject.Namespaces = &metav1.LabelSelector{}
		p.Spec.Egress = []v1alpha1.ClusterEgressRule{{Action: c.action, Networks: []v1alpha1.Network{"192.0.2.0/24"}}, {Action: c.action, Networks: []v1alpha1.Network{"198.51.100.0/24"}}}
		in.ClusterPolicies = append(in.ClusterPolicies, p)
	}
	ours := &v1alpha1.FQDNNetworkPolicy{}
	ours.Namespace, ours.Name = "shop", "names"
	in.Policies = []*v1alpha1.FQDNNetworkPolicy{ours}
	snap := compile.New().Compile(in)
	found := besideNetworkPolicies(snap)
	if len(found) != 1 || found[0].Policy != "a" || found[0].Pod.Name != "cart" || found[0].Reason != status.ReasonBesideNetworkPolicies ||
		!strings.Contains(found[0].Message, "NetworkPolicy shop/limit limits the pod shop/cart") || !strings.Contains(found[0].Message, "kubectl namegate explain shop/cart NAME") {
		t.Errorf("%+v", found)
	}
	alone := in
	alone.EnforceNetworkPolicies = true
	diff.Empty(t, besideNetworkPolicies(compile.New().Compile(alone)), "where Namegate enforces all NetworkPolicies")
	open := limit.DeepCopy()
	open.Name, open.Spec.Egress = "open", []networkingv1.NetworkPolicyEgressRule{{}}
	in.NetworkPolicies = append(in.NetworkPolicies, open)
	diff.Empty(t, besideNetworkPolicies(compile.New().Compile(in)), "beside a NetworkPolicy that allows everything")
	var of []string
	for _, f := range ofStatus(snap, stats.Enforcer{Bypassing: []netip.Addr{web}}) {
		of = append(of, f.Policy)
	}
	diff.Error(t, []string{"shop/names", "a", "b", "c", "d"}, of, "findings of")
}

// TestKnowledgeOfPeers: explain gets pods of other nodes, or why they are not known.
func TestKnowledgeOfPeers(t *testing.T) {
	far := &policy.Pod{NodeName: "node-2"}
	pods := &policy.Snapshot{PeerSets: []*policy.PeerSet{{Peer: policy.Peer{Kind: policy.PeerPods, Key: "shop: app=db"}}}}
	networks := &policy.Snapshot{PeerSets: []*policy.PeerSet{{Peer: policy.Peer{Kind: policy.PeerNetworks, Key: "192.0.2.0/24"}}}}
	for _, c := range []struct {
		what    string
		cluster bool
		snap    *policy.Snapshot
		state   rollout.State
		unread  string // begins it; "" where all is known
	}{
		{what: "a folder", state: rollout.State{}},
		{what: "nobody needs them", cluster: true, snap: networks, unread: "no pod of this node needs them"},
		{what: "before the first snapshot", cluster: true, unread: "no pod of this node"},
		{what: "needed, and there is none", cluster: true, snap: pods},
		{what: "needed and there", cluster: true, state: rollout.State{Input: compile.Input{Remote: []*policy.Pod{far}, RemoteNamespaces: []string{"shop"}}}},
		{what: "needed of namespaces that do not exist", cluster: true, snap: pods, state: rollout.State{Input: compile.Input{RemoteNamespaces: []string{}}}},
		{what: "needed and not there yet", cluster: true, snap: pods, state: rollout.State{Input: compile.Input{PeersUnknown: true}}, unread: "the agent does not have them yet"},
	} {
		a := &agent{}
		if c.cluster {
			a.cluster = &cluster{}
		}
		remote, namespaces, unread := a.remote(c.state, c.snap)
		if (unread == "") != (c.unread == "") || !strings.HasPrefix(unread, c.unread) || len(remote) != len(c.state.Input.Remote) || !slices.Equal(namespaces, c.state.Input.RemoteNamespaces) ||
			(namespaces == nil) != (c.state.Input.RemoteNamespaces == nil) {
			t.Errorf("%s: %d pods, %q", c.what, len(remote), unread)
		}
	}
}

// TestExplainOfOneGeneration: while later policies are not in force, what explain gets is what the snapshot in force was
// compiled from, and before the first what is coming.
func TestExplainOfOneGeneration(t *testing.T) {
	a, _ := agentOnFakes(t, slog.New(slog.DiscardHandler))
	state := func(names ...string) (s rollout.State) {
		for _, n := range names {
			p := v1alpha1.FQDNNetworkPolicy{}
			p.Namespace, p.Name = "shop", n
			s.Input.Policies = append(s.Input.Policies, &p)
		}
		s.Problems = []policy.Problem{{Object: names[0]}}
		return s
	}
	old, coming := state("old"), state("coming", "more")
	got := a.stateOf("n1", rollout.Status{State: coming, Problems: coming.Problems, Applied: old, InForce: &policy.Snapshot{Problems: []policy.Problem{{Object: "compiled"}}}, Failing: "full"})
	if len(got.Policies) != 1 || got.Policies[0].Name != "old" || len(got.Problems) != 2 || got.Problems[0].Object != "old" || got.Problems[1].Object != "compiled" || got.Failing != "full" {
		t.Errorf("%+v, problems %+v", got.Policies, got.Problems)
	}
	if got := a.stateOf("n1", rollout.Status{State: coming}); len(got.Policies) != 2 || got.Problems[0].Object != "coming" {
		t.Errorf("before the first: %+v", got.Policies)
	}
}
