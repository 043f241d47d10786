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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/check"
	"github.com/namegate/namegate/e2e/fatal"
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
		{"a connection", true, []string{"--kubeconfig", clean, "--pod", "cart-1", "--to", "www.example.org:80"}, 1, "pod shop/cart-1 to www.example.org:80/tcp: denied: shop/out spec.egress[0].matches[0] (www.example.org) covers it, but on tcp/443 alone;", ""},
		{"no such pod", true, []string{"--kubeconfig", clean, "--pod", "kart", "--to", "a.test"}, 5, "", "the cluster does not have a pod shop/kart"},
		{"a file alone", true, []string{file}, 0, "1 file, 1 policy, 0 pods: 0 errors, 0 warnings\n", ""},
		{"a file with the cluster", true, []string{file, "--kube", "--kubeconfig", clean}, 0, "p.yaml:5: warning: policy shop/out: spec.podSelector: selects no pod", ""},
		{"a file with a pod of another namespace", true, []string{elsewhere, "--kube", "--kubeconfig", clean, "--pod", "shop/cart-1", "--to", "www.example.org:80"}, 1, "shop/out spec.egress[0].matches[0] (www.example.org) covers it, but on tcp/443 alone", ""},
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
	err         error
}

func (a anAgent) Node() string { return a.node }

func (a anAgent) Ask(_ context.Context, path string, _ url.Values) (*http.Response, error) {
	if a.err != nil || path != console.AuditPath {
		return nil, a.err
	}
	return &http.Response{Body: io.NopCloser(strings.NewReader(a.lines))}, nil
}

// TestCheckAgents: the lines of all agents are compared with the policies, and agents that fail are named.
func TestCheckAgents(t *testing.T) {
	const line = `{"v":1,"kind":"dns","time":"2026-05-01T12:00:00Z","node":"n","verdict":"allowed","pod":{"namespace":"shop","name":"cart-1","ip":"10.0.0.1"},` +
		`"question":{"name":"NAME","type":"A","class":"IN"},"answers":[{"address":"192.0.2.1","granted":true}],"rcode":"NOERROR","protocol":"udp"}` + "\n"
	one, other := anAgent{"n1", strings.Replace(line, "NAME", "www.example.org", 1), nil}, anAgent{"n2", strings.Replace(line, "NAME", "a.test", 1), nil}
	away := anAgent{"n3", "", errors.New("gone")}
	for _, c := range []struct {
		agents []console.Agent
		failed string
		all    bool
		shared bool
	}{
		{[]console.Agent{one, other}, "", false, true},
		{[]console.Agent{one}, "", false, false},
		{[]console.Agent{one, away, other}, "node n3: gone", false, true},
		{[]console.Agent{away}, "node n3: gone", true, false},
	} {
		m := check.New()
		fatal.If(t, m.Add("p.yaml", []byte(checked)))
		log := check.NewLog(m)
		lines := logLines{errs: io.Discard}
		failed, all := lines.ofAgents(t.Context(), c.agents, nil, log, time.Now)
		text := ""
		if failed != nil {
			text = failed.Error()
		}
		shared := false
		for _, f := range m.Lint(check.Options{ClusterDomain: "cluster.local", Log: log}) {
			shared = shared || f.Reason == check.SharedAddress
		}
		if text != c.failed || all != c.all || shared != c.shared {
			t.Errorf("%v: %q, all %v, shared %v", c.agents, text, all, shared)
		}
	}
}
