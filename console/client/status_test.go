package client

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fakedynamic "k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/testkit/accesstest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestStatus: the nodes are those with a Lease, with what their agents last reported, and the problems are the
// conditions of policies that are bad news.
func TestStatus(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	lease := func(node, kind, report string, age time.Duration) *coordinationv1.Lease {
		renewed := metav1.NewMicroTime(now.Add(-age))
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: accesstest.Namespace, Name: "namegate-node-" + node, Labels: map[string]string{"namegate.io/lease": kind},
			Annotations: map[string]string{"namegate.io/node": node, "namegate.io/findings": report},
		}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
	}
	api := accesstest.NewAPI(
		lease("b", "node", `{"findings":[],"version":"v1","inSync":false}`, time.Second), lease("a", "node", `{"findings":[],"version":"v1","inSync":true,"enforce":"All","node":"x"}`, time.Minute),
		lease("c", "node", `{"version":"v1","inSync":true}`, 4*time.Minute), lease("d", "node", "?", 0), lease("other", "console", "", 0),
	)
	policyOf := func(kind, name string, conditions ...string) runtime.Object {
		u := &unstructured.Unstructured{}
		text := "apiVersion: namegate.io/v1alpha1\nkind: " + kind + "\nmetadata: " + name + "\nstatus: {conditions: [" + strings.Join(conditions, ", ") + "]}"
		fatal.If(t, yaml.Unmarshal([]byte(text), &u.Object))
		return u
	}
	const is = "{type: %s, status: %q, reason: %s, message: m}"
	c := cluster(api, "a token")
	c.dynamic = fakedynamic.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.GroupVersionResource(): "FQDNNetworkPolicyList", v1alpha1.ClusterGroupVersionResource(): "ClusterFQDNNetworkPolicyList", v1alpha1.NodeGroupVersionResource(): "NodeNetworkPolicyList", cnp.Resource(): "ClusterNetworkPolicyList",
	},
		policyOf("FQDNNetworkPolicy", "{namespace: shop, name: good}", fmt.Sprintf(is, "Accepted", "True", "Accepted"), fmt.Sprintf(is, "Enforced", "True", "NoBlindSpot"), fmt.Sprintf(is, "DNSBlocked", "False", "Reachable")),
		policyOf("FQDNNetworkPolicy", "{namespace: shop, name: watch}", fmt.Sprintf(is, "Enforced", "False", "Audit")),
		policyOf("FQDNNetworkPolicy", "{namespace: shop, name: blocked}", fmt.Sprintf(is, "DNSBlocked", "True", "DNSBlocked"), "{type: Strange}"),
		policyOf("FQDNNetworkPolicy", "{namespace: pay, name: blind}", fmt.Sprintf(is, "Enforced", "False", "NotSeen")),
		policyOf("ClusterFQDNNetworkPolicy", "{name: odd}", fmt.Sprintf(is, "Accepted", "False", "Invalid")),
	)
	all, err := c.Status(t.Context(), "", now)
	fatal.If(t, err)
	nodes := []console.NodeReport{
		{Node: "a", Version: "v1", InSync: true, Enforce: console.EnforceAll, Renewed: now.Add(-time.Minute)}, {Node: "b", Version: "v1", Renewed: now.Add(-time.Second)},
		{Node: "c", Version: "v1", Renewed: now.Add(-4 * time.Minute), Silent: true}, {Node: "d", Renewed: now},
	}
	diff.Error(t, nodes, all.Nodes)
	told := func(s console.ClusterStatus) (out []string) {
		for _, p := range s.Problems {
			out = append(out, p.Kind+" "+p.Namespace+"/"+p.Name+" "+p.Condition+" "+p.Reason)
		}
		return out
	}
	blind, blocked, odd := "FQDNNetworkPolicy pay/blind Enforced=False NotSeen", "FQDNNetworkPolicy shop/blocked DNSBlocked=True DNSBlocked", "ClusterFQDNNetworkPolicy /odd Accepted=False Invalid"
	diff.Error(t, []string{blind, blocked, odd}, told(all))
	one, err := c.Status(t.Context(), "shop", now)
	fatal.If(t, err)
	diff.Error(t, []string{blocked, odd}, told(one))
	refuse(api, "list", "leases", forbidden("leases"))
	if _, err := c.Status(t.Context(), "", now); statusOf(err) != http.StatusForbidden || !strings.Contains(err.Error(), "bind the Role there whose name ends in -status to you, or ask an agent with --node NODE, or all with --all-agents") {
		t.Errorf("without the right: %v", err)
	}
}

// TestTokensAreNotForAllAgents: all agents are asked with a token only if the caller says so, whatever the token comes
// from, and with a client certificate in any case.
func TestTokensAreNotForAllAgents(t *testing.T) {
	api := accesstest.NewAPI()
	accesstest.PublishAt(t, api, "n1", [32]byte{1}, anAddress)
	c := cluster(api, "secret")
	for _, ask := range []func() ([]Agent, error){
		func() ([]Agent, error) { return c.All(t.Context()) },
		func() ([]Agent, error) { return c.OfNamespace(t.Context(), "empty") }, // all agents, as none has its pods
	} {
		if _, err := ask(); console.ExitCode(err) != console.ExitForbidden || !strings.Contains(err.Error(), "--node NODE") || !strings.Contains(err.Error(), "--all-agents") {
			t.Errorf("with a token: %v", err)
		}
	}
	if a, err := c.OfNode(t.Context(), "n1"); err != nil || a.Node() != "n1" {
		t.Errorf("one node: %v", err)
	}
	c.login.AllAgents = true
	if all, err := c.All(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("with --all-agents: %v", err)
	}
	c = cluster(api, "")
	c.transport.TLS.CertData, c.transport.TLS.KeyData = accesstest.NewCA(t).Issue(t, nil)
	if all, err := c.All(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("with a certificate: %v", err)
	}
	s := restServer(t, api)
	exec := `{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: %q}}`
	plugin := t.TempDir() + "/plugin"
	fatal.If(t, os.WriteFile(plugin, []byte("#!/bin/sh\necho '"+`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"secret"}}`+"'\n"), 0o700))
	p, err := Connect(Login{Kubeconfig: kubeconfig(t, s, fmt.Sprintf(exec, plugin), "")})
	fatal.If(t, err)
	if _, err := p.All(t.Context()); console.ExitCode(err) != console.ExitForbidden {
		t.Errorf("with a token of a plugin: %v", err)
	}
}
