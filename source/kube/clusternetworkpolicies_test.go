package kube

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// aStandard is a ClusterNetworkPolicy that denies what a peer "nodes", "namespaces" selects.
func aStandard(name, peer string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": cnp.Resource().GroupVersion().String(), "kind": cnp.Kind,
		"metadata": map[string]any{"name": name, "managedFields": []any{}, "annotations": map[string]any{lastApplied: "{}"}},
		"spec": map[string]any{
			"tier": "Admin", "priority": int64(5), "subject": map[string]any{"namespaces": map[string]any{}},
			"egress": []any{map[string]any{"action": "Deny", "to": []any{map[string]any{peer: map[string]any{}}}}},
		},
	}}
}

// standardText shows the policies with the peer of their first rule, the nodes and pods that
// are known as peers, and the reasons of problems.
func standardText(s State) string {
	var out []string
	for _, u := range s.Input.ClusterNetworkPolicies {
		read := cnp.Read(u)
		out = append(out, u.GetName()+":"+read.Rules[0].Peer.Key)
	}
	for _, p := range slices.Concat(s.Input.Nodes, s.Input.Remote) {
		out = append(out, p.Name+p.Labels["rack"])
	}
	for _, p := range s.Problems {
		out = append(out, p.Reason+" "+p.Object)
	}
	return strings.Join(out, ", ")
}

func runStandard(t *testing.T, api *apiServer, wanted bool) *running {
	client, dyn := api.clients()
	return runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, Log: slog.New(slog.DiscardHandler), Clock: hastyClock{}, ClusterNetworkPolicies: wanted})
}

// TestClusterNetworkPolicies: they come, change and go, and with them the peers that they
// need. An unchanged policy and an unchanged node keep their pointers.
func TestClusterNetworkPolicies(t *testing.T) {
	api := newAPIServer(t)
	rack := func(n *corev1.Node) { n.Labels = map[string]string{"rack": "1"} }
	api.put("nodes", with(aNode("n1", "192.0.2.1"), rack))
	api.put("pods", aPod("web", "10.0.0.1"))
	api.put("pods", aFarPod("far", "10.0.1.1"))
	api.put("clusternetworkpolicies", aStandard("p", "networks"))
	r := runStandard(t, api, true)
	r.until("p:", standardText) // a broken rule
	api.put("clusternetworkpolicies", aStandard("p", "nodes"))
	first := r.until("p:nodes: *, n11", standardText)
	api.put("clusternetworkpolicies", aStandard("q", "namespaces"))
	second := r.until("p:nodes: *, q:*: *, n11, far", standardText)
	if first.Input.ClusterNetworkPolicies[0] != second.Input.ClusterNetworkPolicies[0] || first.Input.Nodes[0] != second.Input.Nodes[0] {
		t.Error("an unchanged policy or node has another pointer")
	}
	api.put("nodes", with(with(aNode("n1", "192.0.2.1"), rack), func(n *corev1.Node) { n.Labels["rack"] = "2" }))
	r.until("p:nodes: *, q:*: *, n12, far", standardText)
	api.remove("clusternetworkpolicies//p")
	r.until("q:*: *, far", standardText)
	api.remove("clusternetworkpolicies//q")
	r.until("", standardText)
}

// TestClusterNetworkPoliciesNotWanted: by default no request asks for the kind.
func TestClusterNetworkPoliciesNotWanted(t *testing.T) {
	api := newAPIServer(t)
	api.put("nodes", aNode("n1", "192.0.2.1"))
	api.put("pods", aPod("web", "10.0.0.1"))
	api.put("clusternetworkpolicies", aStandard("p", "nodes"))
	r := runStandard(t, api, false)
	r.until("web[10.0.0.1]", podText)
	r.until("", standardText)
	if asked := api.requests("list clusternetworkpolicies") + api.requests("watch clusternetworkpolicies"); asked > 0 {
		t.Errorf("%d requests", asked)
	}
}

// TestClusterNetworkPoliciesServedLater: the agent works without the CRD, finds the kind when
// it is installed, and forgets its policies when it goes.
func TestClusterNetworkPoliciesServedLater(t *testing.T) {
	api := newAPIServer(t)
	api.unserved = "clusternetworkpolicies"
	api.put("pods", aPod("web", "10.0.0.1"))
	api.put("clusternetworkpolicies", aStandard("p", "namespaces"))
	r := runStandard(t, api, true)
	r.until("web[10.0.0.1]", podText)
	diff.Equal(t, "", standardText(r.last), "the state says")
	serve := func(unserved string) {
		api.mu.Lock()
		defer api.mu.Unlock()
		api.unserved = unserved
	}
	serve("")
	r.until("p:*: *", standardText)
	serve("clusternetworkpolicies")
	api.forget()
	api.http.CloseClientConnections()
	r.until("NotServed clusternetworkpolicies", standardText)
}

// TestClusterNetworkPoliciesOfEachVersion: with a CRD that serves the earlier version alone, the later
// one alone or both, and where one becomes the other, as then the API server ends its watches.
func TestClusterNetworkPoliciesOfEachVersion(t *testing.T) {
	api := newAPIServer(t)
	beta, alpha := cnp.Versions()[0].String(), cnp.Versions()[1].String()
	client, _ := api.clients()
	serve := func(lacks string) {
		api.mu.Lock()
		api.lacks = lacks
		api.mu.Unlock()
		api.http.CloseClientConnections()
		served, err := discovered(client, cnp.Resource())()
		fatal.If(t, err)
		diff.Equal(t, true, served, lacks)
	}
	versions := func(s State) (out string) {
		for _, u := range s.Input.ClusterNetworkPolicies {
			out += u.GetName() + " "
		}
		if n := len(s.Input.ClusterNetworkPolicies); n > 0 { // those before may have been listed before
			out += s.Input.ClusterNetworkPolicies[n-1].GetAPIVersion()
		}
		return out
	}
	serve(beta)
	api.put("clusternetworkpolicies", aStandard("p", "namespaces"))
	r := runStandard(t, api, true)
	first := r.until("p "+alpha, versions)
	serve("")
	api.put("clusternetworkpolicies", aStandard("q", "namespaces"))
	r.until("p q "+beta, versions)
	serve(alpha)
	api.put("clusternetworkpolicies", aStandard("r", "namespaces"))
	r.until("p q r "+beta, versions)
	serve(beta)
	api.forget() // all policies are listed anew
	api.http.CloseClientConnections()
	last := r.until("p q r "+alpha, versions)
	was, is := first.Input.ClusterNetworkPolicies[0], last.Input.ClusterNetworkPolicies[0]
	if !cnp.Same(was, is) {
		t.Errorf("%v became %v", was, is)
	}
}

// TestClusterNetworkPoliciesForbidden: the problem says what to do.
func TestClusterNetworkPoliciesForbidden(t *testing.T) {
	api := newAPIServer(t)
	api.forbid = "clusternetworkpolicies"
	r := runStandard(t, api, true)
	r.until("Forbidden clusternetworkpolicies", standardText)
	if p := r.last.Problems[0]; !strings.Contains(p.Message, "clusterNetworkPolicy.enabled=true") {
		t.Errorf("%+v", p)
	}
}
