package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/check"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/testkit/fatal"
)

// shopCluster is an API server with a policy, a pod and no other object, and a kubeconfig for it.
// Requests whose path ends in one of refused are forbidden.
func shopCluster(t *testing.T, policyText string, refused ...string) string {
	t.Helper()
	list := func(kind string, texts ...string) []byte {
		u := unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": kind + "List"}}
		for _, text := range texts {
			var o unstructured.Unstructured
			fatal.If(t, yaml.Unmarshal([]byte(text), &o.Object))
			u.Items = append(u.Items, o)
		}
		out, err := u.MarshalJSON()
		fatal.If(t, err)
		return out
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fail := func(code int32, reason metav1.StatusReason) {
			w.WriteHeader(int(code))
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: code})
		}
		for _, end := range refused {
			if strings.HasSuffix(r.URL.Path, end) {
				fail(http.StatusForbidden, metav1.StatusReasonForbidden)
				return
			}
		}
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/namespaces/shop/fqdnnetworkpolicies"), strings.HasSuffix(path, "v1alpha1/fqdnnetworkpolicies"):
			_, _ = w.Write(list("FQDNNetworkPolicy", policyText))
		case strings.HasSuffix(path, "/namespaces/shop/pods"), path == "/api/v1/pods":
			_, _ = w.Write(list("Pod", "{apiVersion: v1, kind: Pod, metadata: {name: cart-1, namespace: shop, labels: {app: cart}}, spec: {nodeName: n1}}"))
		case strings.Contains(path, "/leases/"), strings.HasSuffix(path, "/clusternetworkpolicies"):
			fail(http.StatusNotFound, metav1.StatusReasonNotFound)
		default:
			_, _ = w.Write(list("Thing"))
		}
	}))
	t.Cleanup(s.Close)
	path := filepath.Join(t.TempDir(), "config")
	fatal.If(t, os.WriteFile(path, []byte(`{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "`+s.URL+`"}}], users: [{name: u, user: {token: x}}],
contexts: [{name: c, context: {cluster: c, user: u, namespace: shop}}], current-context: c}`), 0o600))
	return path
}

// TestCheckCluster: what is read with a cluster, and each way in which it ends, with its exit code.
func TestCheckCluster(t *testing.T) {
	policyText, _, _ := strings.Cut(strings.Replace(checked, "name: out,", `name: out, creationTimestamp: "2026-05-01T08:00:00Z",`, 1), "---\n")
	clean := shopCluster(t, policyText)
	lost := shopCluster(t, strings.Replace(policyText, "app: cart", "app: kart", 1))
	broken := shopCluster(t, strings.Replace(policyText, "name: www.example.org", "name: .", 1))
	noPods, nothing := shopCluster(t, policyText, "/shop/pods"), shopCluster(t, policyText, "/fqdnnetworkpolicies")
	noPay, noSpaces := shopCluster(t, policyText, "/pay/fqdnnetworkpolicies"), shopCluster(t, policyText, "/v1/namespaces")
	file := filepath.Join(t.TempDir(), "p.yaml")
	fatal.If(t, os.WriteFile(file, []byte(strings.Replace(policyText, "app: cart", "app: kart", 1)), 0o644))
	elsewhere, noPolicy := filepath.Join(t.TempDir(), "p.yaml"), filepath.Join(t.TempDir(), "p.yaml")
	fatal.If(t, os.WriteFile(elsewhere, []byte(strings.Replace(policyText, "namespace: shop", "namespace: pay", 1)), 0o644))
	fatal.If(t, os.WriteFile(noPolicy, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: pay}}"), 0o644))
	for _, c := range []struct {
		name      string
		plugin    bool
		args      []string
		code      int
		out, errs string
	}{
		{"kubectl namegate", true, []string{"--kubeconfig", clean}, 0, "namespace shop, 1 policy, 1 pod: 0 errors, 0 warnings\n", ""},
		{"--kube", false, []string{"--kube", "--kubeconfig", clean, "-A"}, 0, "all namespaces, 1 policy, 1 pod: 0 errors, 0 warnings\n", ""},
		{"another namespace", true, []string{"--kubeconfig", clean, "-n", "pay"}, 0, "warning: no FQDNNetworkPolicy of namegate.io/v1alpha1 in namespace pay; --namespace names another", ""},
		{"no agent", true, []string{"--kubeconfig", clean}, 0, "not checked: names in the audit log (Unresolved, SharedAddress): node n1 has no agent that could be asked;", ""},
		{"a warning", true, []string{"--kubeconfig", lost}, 0, "warning: policy shop/out: spec.podSelector: selects no pod: namespace shop has 1 pod in the cluster; compare the labels: pod shop/cart-1 has app=cart\n", ""},
		{"a warning, strictly", true, []string{"--kubeconfig", lost, "--strict"}, 1, "selects no pod", ""},
		{"an error", true, []string{"--kubeconfig", broken}, 1, "error: policy shop/out: spec.egress[0].matches[0].name: ", ""},
		{"no right to list pods", true, []string{"--kubeconfig", noPods, "--strict"}, 0, "you may not list pods in namespace shop; ask an administrator for this permission (kubectl auth can-i list pods -n shop)\n", ""},
		{"no right to list policies", true, []string{"--kubeconfig", nothing}, 4, "", "you may not list fqdnnetworkpolicies.namegate.io in namespace shop;"},
		{"a connection", true, []string{"--kubeconfig", clean, "--pod", "cart-1", "--to", "www.example.org:80"}, 1, "pod shop/cart-1 to www.example.org:80/tcp: denied: \"www.example.org\" of shop/out (spec.egress[0].matches[0]) covers www.example.org on tcp/443, and not on tcp/80\n", ""},
		{"from another namespace", true, []string{"--kubeconfig", clean, "--pod", "cart-1", "--to", "80", "--from", "pay/till"}, 5, "", "--from: the cluster does not have a pod pay/till, and no manifest has a workload that makes it; write one of shop/cart-1, or the address"},
		{"from an address", true, []string{"--kubeconfig", clean, "--pod", "cart-1", "--to", "80", "--from", "192.0.2.1"}, 0, "192.0.2.1 to pod shop/cart-1 on 80/tcp: allowed: ingress: no policy in force has rules for connections to the pod\n", ""},
		{"from a node", true, []string{"--kubeconfig", clean, "--pod", "cart-1", "--to", "80", "--from", "node/n1"}, 0, "node/n1 to pod shop/cart-1 on 80/tcp: allowed: ingress: processes of the pod's node always reach it", ""},
		{"from a namespace that may not be read", true, []string{"--kubeconfig", noPay, "--pod", "cart-1", "--to", "80", "--from", "pay/till"}, 4, "", "you may not list fqdnnetworkpolicies.namegate.io in namespace pay;"},
		{"from without the labels of namespaces", true, []string{"--kubeconfig", noSpaces, "--pod", "cart-1", "--to", "80", "--from", "cart-1"}, 0, "not checked: labels of namespaces (SelectsNothing of cluster policies, answers with --from): you may not list namespaces;", ""},
		{"no such pod", true, []string{"--kubeconfig", clean, "--pod", "kart", "--to", "a.test"}, 5, "", "the cluster does not have a pod shop/kart"},
		{"a file alone", true, []string{file}, 0, "1 file, 1 policy, 0 pods: 0 errors, 0 warnings\n", ""},
		{"a file with the cluster", true, []string{file, "--kube", "--kubeconfig", clean}, 0, "p.yaml:5: warning: policy shop/out: spec.podSelector: selects no pod", ""},
		{"a file with a pod of another namespace", true, []string{elsewhere, "--kube", "--kubeconfig", clean, "--pod", "shop/cart-1", "--to", "www.example.org:80"}, 1, "of shop/out (spec.egress[0].matches[0]) covers www.example.org on tcp/443, and not on tcp/80\n", ""},
		{"a file without a namespace", true, []string{noPolicy, "--kube", "--kubeconfig", clean}, 0, "\n1 file with no namespace, 0 policies, 0 pods", ""},
		{"a log", true, []string{"--kubeconfig", clean, "--log", "/dev/null"}, 0, "not checked: names of shop/out (Unresolved, SharedAddress): the log (without lines) has no answered query of their pods", ""},
		{"JSON", true, []string{"--kubeconfig", noPods, "-o", "json"}, 0, `"unchecked": [`, ""},
		{"no kubeconfig", true, []string{"--kubeconfig", "/nonexistent"}, 2, "", "read the kubeconfig"},
		{"neither a path nor a cluster", false, nil, 2, "", "or --kube for the policies of a cluster"},
		{"a kubeconfig without --kube", true, []string{file, "--kubeconfig", clean}, 2, "", "are for a cluster; write --kube too, or leave them out"},
		{"all and one", true, []string{"-A", "-n", "shop"}, 2, "", "say two things"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := New("v1")
			if c.plugin {
				cmd = NewPlugin("v1")
			}
			out, errs, code := ran(t, cmd, append([]string{"check"}, c.args...)...)
			if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) || c.errs == "" && errs != "" {
				t.Errorf("exit code %d, %q, %q; want %d, %q, %q", code, out, errs, c.code, c.out, c.errs)
			}
		})
	}
}

// anAgent answers with lines, or with an error.
type anAgent struct {
	node, lines string
	complete    string // the seconds, "" of an agent that does not say it
	err         error
}

func (a anAgent) Node() string { return a.node }

func (a anAgent) Ask(_ context.Context, path string, _ url.Values) (*http.Response, error) {
	if a.err != nil || path != console.AuditPath {
		return nil, a.err
	}
	resp := &http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a.lines))}
	if a.complete != "" {
		resp.Header.Set("Namegate-Complete-Seconds", a.complete)
	}
	return resp, nil
}

// TestCheckAgents: the lines of all agents are compared with the policies, agents that fail are
// named, and no name is unresolved where the log of an agent is not complete.
func TestCheckAgents(t *testing.T) {
	const line = `{"v":1,"kind":"dns","time":"2026-05-01T12:00:00Z","node":"n","verdict":"allowed","pod":{"namespace":"shop","name":"cart-1","ip":"10.0.0.1"},` +
		`"question":{"name":"NAME","type":"A","class":"IN"},"answers":[{"address":"192.0.2.1","granted":true}],"rcode":"NOERROR","protocol":"udp"}` + "\n"
	const unknown = "does not say for how long its log is complete"
	one, other := strings.Replace(line, "NAME", "www.example.org", 1), strings.Replace(line, "NAME", "a.test", 1)
	away := anAgent{node: "n3", err: errors.New("gone")}
	for _, c := range []struct {
		name       string
		agents     []client.Agent
		unresolved string // a part of the finding about b.test
		shared     bool
		unchecked  string
	}{
		{"complete", []client.Agent{anAgent{"n1", one, "11520", nil}, anAgent{"n2", other, "90000", nil}},
			"no pod of namespace shop queried it in the last 3h12m, the time for which the logs of all agents are complete", true, ""},
		{"another order", []client.Agent{anAgent{"n2", other, "90000", nil}, anAgent{"n1", one, "11520", nil}}, "in the last 3h12m,", true, ""},
		{"one agent", []client.Agent{anAgent{"n1", one, "600", nil}}, "in the last 10m,", false, ""},
		{"short", []client.Agent{anAgent{"n1", one, "599", nil}, anAgent{"n2", other, "90000", nil}}, "", true,
			"complete for the last 9m only, and 10m are necessary: the agent of node n1 started then"},
		{"just started", []client.Agent{anAgent{"n1", one, "90000", nil}, anAgent{"n2", "", "0", nil}}, "", false,
			"complete for the last 0s only, and 10m are necessary: the agent of node n2 started then"},
		{"an earlier release", []client.Agent{anAgent{"n1", one, "90000", nil}, anAgent{"n2", other, "", nil}}, "", true, "node n2: the agent " + unknown},
		{"only earlier releases", []client.Agent{anAgent{"n1", one, "", nil}}, "", false, "node n1: the agent " + unknown},
		{"one is away", []client.Agent{anAgent{"n1", one, "90000", nil}, away, anAgent{"n2", other, "90000", nil}}, "", true, "node n3: gone"},
		{"all are away", []client.Agent{away}, "", false, "(Unresolved, SharedAddress): node n3: gone"},
		{"one is away, another earlier", []client.Agent{away, anAgent{"n1", one, "", nil}}, "", false, "node n3: gone; node n1: the agent " + unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := check.New()
			policy, _, _ := strings.Cut(strings.Replace(checked, "name: out,", `name: out, creationTimestamp: "2026-05-01T08:00:00Z",`, 1), "---\n")
			api := onePolicy{t, strings.Replace(policy, "name: www.example.org", "name: www.example.org\n    - name: b.test", 1)}
			fatal.If(t, m.ReadCluster(t.Context(), api, []string{"shop"}, check.Options{ClusterDomain: "cluster.local"}))
			checking := checking{o: check.Options{ClusterDomain: "cluster.local"}}
			checking.readAgents(t.Context(), m, c.agents, nil, io.Discard)
			unresolved, shared := "", false
			report := m.Report(m.Lint(checking.o), nil)
			for _, f := range report.Findings {
				shared = shared || f.Reason == check.SharedAddress
				if f.Reason == check.Unresolved {
					unresolved += f.Message
				}
			}
			unchecked := ""
			for _, u := range report.Unchecked {
				unchecked += u.String() + "\n"
			}
			if (unresolved == "") != (c.unresolved == "") || !strings.Contains(unresolved, c.unresolved) || shared != c.shared ||
				(unchecked == "") != (c.unchecked == "") || !strings.Contains(unchecked, c.unchecked) {
				t.Errorf("unresolved %q, shared %v, unchecked %q", unresolved, shared, unchecked)
			}
		})
	}
}

// onePolicy is an API server with one policy.
type onePolicy struct {
	t    *testing.T
	text string
}

func (o onePolicy) List(_ context.Context, kind schema.GroupVersionResource, _ string, each func(*unstructured.Unstructured) error) error {
	if kind.Resource != "fqdnnetworkpolicies" {
		return nil
	}
	var u unstructured.Unstructured
	fatal.If(o.t, yaml.Unmarshal([]byte(o.text), &u.Object))
	return each(&u)
}
