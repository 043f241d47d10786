package client

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/testkit/accesstest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// restServer is the part of the API that a caller's side asks: pods and Leases of a fake,
// for valid tokens and certificates.
func restServer(t *testing.T, api *accesstest.API) *httptest.Server {
	t.Helper()
	send := func(w http.ResponseWriter, o any, err error) {
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
			o = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404}
		}
		_ = json.NewEncoder(w).Encode(o)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/pods/{name}", func(w http.ResponseWriter, r *http.Request) {
		p, err := api.CoreV1().Pods(r.PathValue("ns")).Get(r.Context(), r.PathValue("name"), metav1.GetOptions{})
		if err == nil {
			p.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: corev1.SchemeGroupVersion.String()}
		}
		send(w, p, err)
	})
	mux.HandleFunc("GET /apis/coordination.k8s.io/v1/namespaces/{ns}/leases/{name}", func(w http.ResponseWriter, r *http.Request) {
		l, err := api.CoordinationV1().Leases(r.PathValue("ns")).Get(r.Context(), r.PathValue("name"), metav1.GetOptions{})
		if err == nil {
			l.TypeMeta = metav1.TypeMeta{Kind: "Lease", APIVersion: coordinationv1.SchemeGroupVersion.String()}
		}
		send(w, l, err)
	})
	s := httptest.NewTLSServer(mux)
	t.Cleanup(s.Close)
	return s
}

// kubeconfig writes a file for a server and a user, in YAML's flow style.
func kubeconfig(t *testing.T, s *httptest.Server, user, context string) string {
	t.Helper()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: %s}]
contexts: [{name: here, context: {cluster: c, user: u%s}}, {name: there, context: {cluster: c, user: u, namespace: far}}]
current-context: here
`, s.URL, ca, user, context)
	path := filepath.Join(t.TempDir(), "config")
	fatal.If(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestKubeconfig: every kind of credentials that kubectl has brings the caller to
// the agent of its pod.
func TestKubeconfig(t *testing.T) {
	ours := accesstest.NewCA(t)
	api := accesstest.NewAPI(accesstest.Pod("shop", "cart", "n1"), accesstest.ClientCA(ours.PEM()))
	api.Tokens["alice's"] = authenticationv1.UserInfo{Username: "alice"}
	api.Rights["alice"], api.Rights["carol"] = []string{"shop"}, []string{"shop"}
	agent(t, api, told)
	rest := restServer(t, api)
	certificate, key := ours.Issue(t, nil)
	dir := t.TempDir()
	file := func(name string, content []byte, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		fatal.If(t, os.WriteFile(path, content, mode))
		return path
	}
	plugin := func(name, status string) string {
		return file(name, []byte("#!/bin/sh\ncat <<'EOF'\n"+
			`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":`+status+"}\nEOF\n"), 0o700)
	}
	text := func(b []byte) string { t, _ := json.Marshal(string(b)); return string(t) }
	exec := `{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: %q}}`
	for _, c := range []struct{ name, user, want string }{
		{"a token", `{token: "alice's"}`, "alice"},
		{"a file with a token", fmt.Sprintf(`{tokenFile: %q}`, file("token", []byte("alice's\n"), 0o600)), "alice"},
		{"a certificate", fmt.Sprintf(`{client-certificate-data: %s, client-key-data: %s}`, base64.StdEncoding.EncodeToString(certificate), base64.StdEncoding.EncodeToString(key)), "carol"},
		{"files with a certificate", fmt.Sprintf(`{client-certificate: %q, client-key: %q}`, file("crt", certificate, 0o600), file("key", key, 0o600)), "carol"},
		{"a plugin with a token", fmt.Sprintf(exec, plugin("plugin-a", `{"token":"alice's"}`)), "alice"},
		{"a plugin with a certificate", fmt.Sprintf(exec, plugin("plugin-b", fmt.Sprintf(`{"clientCertificateData":%s,"clientKeyData":%s}`, text(certificate), text(key)))), "carol"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl, err := Connect(Login{Kubeconfig: kubeconfig(t, rest, c.user, ", namespace: shop")})
			fatal.If(t, err)
			a, err := cl.OfPod(t.Context(), cl.Namespace(), "cart")
			fatal.If(t, err)
			var resp *http.Response
			fatal.Await(t, "the authority is known", func() bool {
				resp, err = a.Ask(t.Context(), "/v1/pods", map[string][]string{"namespace": {"shop"}})
				return statusOf(err) != http.StatusServiceUnavailable
			})
			diff.Equal(t, "rows for "+c.want+" of /v1/pods", body(t, resp, err))
		})
	}
}

// TestNamespaceOfLogin: the flag's, else the context's, else default.
func TestNamespaceOfLogin(t *testing.T) {
	rest := restServer(t, accesstest.NewAPI())
	plain := kubeconfig(t, rest, "{token: x}", "")
	for _, c := range []struct {
		login Login
		want  string
	}{
		{Login{}, "default"},
		{Login{Context: "there"}, "far"},
		{Login{Context: "there", Namespace: "flag"}, "flag"},
		{Login{Namespace: "flag"}, "flag"},
	} {
		c.login.Kubeconfig = plain
		cl, err := Connect(c.login)
		fatal.If(t, err)
		diff.Equal(t, c.want, cl.Namespace(), c.login)
	}
	t.Setenv("KUBECONFIG", kubeconfig(t, rest, "{token: x}", ", namespace: env"))
	cl, err := Connect(Login{})
	fatal.If(t, err)
	diff.Equal(t, "env", cl.Namespace(), "namespace of KUBECONFIG")
}

// TestBadKubeconfig: each is a wrong command line, and says what to do.
func TestBadKubeconfig(t *testing.T) {
	rest := restServer(t, accesstest.NewAPI())
	plain := kubeconfig(t, rest, "{token: x}", "")
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	for _, c := range []struct {
		name  string
		login Login
		want  string
	}{
		{"nothing", Login{}, "write --kubeconfig FILE, or set KUBECONFIG"},
		{"no file", Login{Kubeconfig: "/nowhere"}, "/nowhere: no such file"},
		{"no context", Login{Kubeconfig: plain, Context: "nowhere"}, "context was not found for specified context: nowhere"},
		{"impersonation", Login{Kubeconfig: kubeconfig(t, rest, "{token: x, as: root}", "")}, "refuse impersonation"},
		{"a group", Login{Kubeconfig: kubeconfig(t, rest, "{token: x, as: a, as-groups: [b]}", "")}, "refuse impersonation"},
		{"no plugin's version", Login{Kubeconfig: kubeconfig(t, rest, "{exec: {command: x}}", "")}, "apiVersion"},
	} {
		_, err := Connect(c.login)
		var misused *console.Misused
		if !errors.As(err, &misused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}
