package serve_test

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/peers"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// explainFrom asks about connections from a source to port 8080 of a pod or node, which kind says.
func explainFrom(w *consoletest.World, viewer serve.Viewer, kind, of, from string) (e explain.Explanation, text string, err error) {
	resp, err := w.Agent("", viewer).Ask(context.Background(), console.ExplainPath, url.Values{kind: {of}, "from": {from}, "port": {"8080"}})
	if err != nil {
		return e, "", err
	}
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return e, "", err
	}
	err = json.Unmarshal(all, &e)
	return e, string(all), err
}

// TestExplainFromToNode: connections to the node are explained to callers who may read policies for nodes.
func TestExplainFromToNode(t *testing.T) {
	w := consoletest.New("node-1")
	w.Input.Node = &policy.Node{Name: "node-1", Interfaces: []string{"eth0"}, Addrs: policytest.Addrs("10.1.0.1")}
	w.Input.Nodes = []*policy.Pod{peers.Node("node-2", nil, policytest.Addrs("192.0.2.2"))}
	w.Input.NodePolicies = append(w.Input.NodePolicies, policytest.NodePolicy(t, "api", "{nodeSelector: {}, priority: 1, ingress: [{action: Accept, networks: [192.0.2.0/24]}, {action: Deny}]}"))
	w.Compile()
	for _, c := range []struct {
		from    string
		viewer  serve.Viewer
		verdict explain.Verdict
		want    string
	}{
		{"192.0.2.9", serve.Everything{}, explain.Allowed, "api (spec.ingress[0]) allows 192.0.2.9"},
		{"node/node-2", serve.Everything{}, explain.Allowed, "api (spec.ingress[0]) allows node/node-2"},
		{"shop/batch", serve.Everything{}, explain.Denied, "api (spec.ingress[1]) denies shop/batch"},
		{"shop/logs", serve.Everything{}, explain.Allowed, "loopback"},
		{"node/node-1", serve.Everything{}, explain.Allowed, "loopback"},
		{"192.0.2.9", consoletest.Tenant, "", "you may not see policies for nodes"},
	} {
		e, text, err := explainFrom(w, c.viewer, "node", "node-1", c.from)
		if c.verdict == "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.from, err)
			}
			continue
		}
		fatal.If(t, err, c.from)
		if e.Verdict != c.verdict || !strings.Contains(e.Reason, c.want) || e.Pod != "node node-1" {
			t.Errorf("%s: %s", c.from, text)
		}
	}
}

// TestExplainFrom: sources of every form, and what of them a caller may see.
func TestExplainFrom(t *testing.T) {
	tenant := consoletest.Some{"shop"}
	for _, c := range []struct {
		from    string
		viewer  serve.Viewer
		verdict explain.Verdict
		want    string // in the answer, or in the refusal
		hidden  string
	}{
		{from: "shop/db-0", viewer: tenant, verdict: explain.Allowed, want: "(spec.ingress[0]) allows shop/db-0"},
		{from: "db-0", viewer: tenant, verdict: explain.Allowed, want: "allows shop/db-0"},
		{from: "::ffff:10.2.0.20", viewer: tenant, verdict: explain.Allowed, want: `"pod":"shop/db-0"`},
		{from: "10.2.0.30", viewer: serve.Everything{}, verdict: explain.Denied, want: "app: ledger"},
		{from: "10.2.0.30", viewer: tenant, verdict: explain.Denied, want: "allows the pod at 10.2.0.30 allows this; ask who runs it", hidden: "ledger"},
		{from: "pay/ledger-0", viewer: tenant, want: "you may not see the namespace pay"},
		{from: "batch", viewer: tenant, verdict: explain.Denied, want: "the rules of shop/batch for egress are asked before: explain shop/batch 10.1.0.10:8080/tcp"},
		{from: "logs", viewer: tenant, verdict: explain.Allowed, want: "processes of the pod's node always reach it"},
		{from: "10.1.0.1", viewer: tenant, verdict: explain.Allowed, want: "processes of the pod's node always reach it"},
		{from: "node/node-1", viewer: tenant, verdict: explain.Allowed, want: "processes of the pod's node always reach it"},
		{from: "node/node-2", viewer: tenant, verdict: explain.Denied, want: "192.0.2.2/32"},
		{from: "node/node-3", viewer: tenant, want: "does not know the addresses of the node node-3; write the address"},
		{from: "done", viewer: tenant, want: "the pod shop/done has ended (Succeeded)"},
		{from: "none", viewer: tenant, want: "knows no pod shop/none; `namegate pods` lists those it knows"},
		{from: "pay/far-0", viewer: serve.Everything{}, want: "knows no pod pay/far-0; `namegate pods` lists those it knows; pods of other nodes are not known: no rule of this node's pods has peers in pay; write the address from which it connects"},
	} {
		w := consoletest.New("node-1")
		w.Input.RemoteNamespaces = []string{"shop"}
		w.Input.Nodes = []*policy.Pod{peers.Node("node-2", nil, policytest.Addrs("192.0.2.2"))}
		e, text, err := explainFrom(w, c.viewer, "pod", "shop/cart-7d9f", c.from)
		if c.verdict == "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.from, err)
			}
			continue
		}
		fatal.If(t, err, c.from)
		if e.Verdict != c.verdict || !strings.Contains(text, c.want) || c.hidden != "" && strings.Contains(text, c.hidden) {
			t.Errorf("%s: %s", c.from, text)
		}
	}
}
