package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// reached parses flags as a command does.
func reached(t *testing.T, kube bool, args ...string) *reach {
	t.Helper()
	r := &reach{kube: kube}
	fl := pflag.NewFlagSet("x", pflag.ContinueOnError)
	r.add(fl)
	fl.SetOutput(io.Discard)
	fatal.If(t, fl.Parse(args))
	return r
}

// emptyCluster is an API server that has nothing, and a kubeconfig for it.
func emptyCluster(t *testing.T, asked *[]string) string {
	t.Helper()
	var mu sync.Mutex // Leases are asked for at once
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		*asked = append(*asked, r.URL.Path)
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		})
	}))
	t.Cleanup(s.Close)
	path := filepath.Join(t.TempDir(), "config")
	text := `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "` + s.URL + `"}}], users: [{name: u, user: {token: x}}],
contexts: [{name: c, context: {cluster: c, user: u, namespace: shop}}], current-context: c}`
	fatal.If(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestKubeFlag: kubectl's command asks the cluster's agents, unless the flag says another.
func TestKubeFlag(t *testing.T) {
	for _, kube := range []bool{false, true} {
		if reached(t, kube).kube != kube || !reached(t, kube, "--kube").kube || reached(t, kube, "--kube=false").kube {
			t.Errorf("by default %v: the flag says nothing", kube)
		}
		if reached(t, kube).login.AllAgents || !reached(t, kube, "--all-agents").login.AllAgents {
			t.Error("--all-agents says nothing")
		}
	}
}

// TestScope: in a cluster the context's namespace is asked about, at a socket all.
func TestScope(t *testing.T) {
	var asked []string
	config := emptyCluster(t, &asked)
	for _, c := range []struct{ args, want string }{
		{"", ""},
		{"-n bank", "bank"},
		{"-A", ""},
		{"--kube --kubeconfig " + config, "shop"},
		{"--kube --kubeconfig " + config + " -n bank", "bank"},
		{"--kube --kubeconfig " + config + " -A", ""},
		{"-A -n bank", "! --all-namespaces and --namespace say two things; leave one out"},
		{"--node n1", "! --kubeconfig, --context, --agents, --node, --all-agents and --address are for --kube"},
		{"--address 127.0.0.1:1", "! --kubeconfig, --context"},
		{"--kubeconfig x", "! --kubeconfig, --context"},
		{"--agents x", "! --kubeconfig, --context"},
		{"--kube --kubeconfig /nowhere", "! read the kubeconfig"},
	} {
		got, err := reached(t, false, strings.Fields(c.args)...).scope()
		if err != nil {
			got = "! " + err.Error()
			diff.Equal(t, console.ExitUsage, console.ExitCode(err), c.args, "exit code")
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
	diff.Empty(t, asked, "questions to the API server")
}

// TestAgentSelection: the objects looked up in the cluster, by flags and by the pod's
// name.
func TestAgentSelection(t *testing.T) {
	for _, c := range []struct {
		args, pod, path string
		code            int
	}{
		{"", "cart", "/api/v1/namespaces/shop/pods/cart", console.ExitUnknown},
		{"-n bank", "till", "/api/v1/namespaces/bank/pods/till", console.ExitUnknown},
		{"-n bank", "shop/cart", "/api/v1/namespaces/shop/pods/cart", console.ExitUnknown},
		{"-A", "shop/cart", "/api/v1/namespaces/shop/pods/cart", console.ExitUnknown},
		{"-A", "cart", "", console.ExitUsage},
		{"", "", "/api/v1/namespaces/shop/pods", console.ExitUnreachable},
		{"-A", "", "/apis/coordination.k8s.io/v1/namespaces/namegate-system/leases/namegate-console-", console.ExitUnreachable},
		{"-A --agents infra", "", "/apis/coordination.k8s.io/v1/namespaces/infra/leases/namegate-console-", console.ExitUnreachable},
		{"--node node-a", "", "/apis/coordination.k8s.io/v1/namespaces/namegate-system/leases/namegate-console-3", console.ExitUnreachable},
		{"--node node-a", "cart", "/apis/coordination.k8s.io/v1/namespaces/namegate-system/leases/namegate-console-3", console.ExitUnreachable},
	} {
		var asked []string
		args := append([]string{"--kubeconfig", emptyCluster(t, &asked)}, strings.Fields(c.args)...)
		_, err := reached(t, true, args...).agents(t.Context(), c.pod)
		diff.Equal(t, c.code, console.ExitCode(err), c.args, c.pod, "exit code", err)
		if (len(asked) == 0) != (c.path == "") || len(asked) > 0 && !strings.HasPrefix(asked[0], c.path) {
			t.Errorf("%s %s: asked %q, want %s", c.args, c.pod, asked, c.path)
		}
	}
	if agents, err := reached(t, false).agentsOf(t.Context(), "", "", ""); err != nil || len(agents) != 1 || agents[0].Node() != "" {
		t.Errorf("at a socket: %v %v", agents, err)
	}
	var asked []string
	if _, err := reached(t, true, "--kubeconfig", emptyCluster(t, &asked)).agentsOf(t.Context(), "", "", ""); console.ExitCode(err) != console.ExitUnreachable || strings.Contains(strings.Join(asked, " "), "/pods") {
		t.Errorf("everybody in a cluster: asked %q: %v", asked, err)
	}
}

// TestDocumentedAgents: docs/commands.md has the default of --agents. The test of all
// commands compares the flags themselves.
func TestDocumentedAgents(t *testing.T) {
	text, err := os.ReadFile("../../docs/commands.md")
	fatal.If(t, err)
	fl := pflag.NewFlagSet("x", pflag.ContinueOnError)
	(&reach{}).add(fl)
	if d := fl.Lookup("agents").DefValue; !strings.Contains(string(text), "| `--agents NAMESPACE` | `"+d+"` |") {
		t.Errorf("docs/commands.md has another default of --agents than %s", d)
	}
}

// TestInterrupted: Ctrl-C ends the reading commands, also without input.
func TestInterrupted(t *testing.T) {
	for _, args := range [][]string{{"suggest", "-"}, {"check", "-"}} {
		typed, keyboard := io.Pipe()
		ctx, interrupt := context.WithCancel(context.Background())
		cmd := New("v1")
		var out, errs bytes.Buffer
		cmd.SetArgs(args)
		cmd.SetIn(typed)
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		code := make(chan int)
		go func() { code <- Execute(ctx, cmd, &errs) }()
		if _, err := io.WriteString(keyboard, "\n"); err != nil { // taken: it reads
			t.Fatal(err)
		}
		interrupt()
		select {
		case got := <-code:
			if got != 1 || !strings.Contains(errs.String(), "interrupted") {
				t.Errorf("%v ends with %d: %s", args, got, errs.String())
			}
		case <-time.After(time.Minute):
			t.Fatalf("%v goes on", args)
		}
		keyboard.Close()
	}
}

// TestInterruptible: the content and the error are the reader's.
func TestInterruptible(t *testing.T) {
	text := strings.Repeat("a line\n", 20000)
	got, err := io.ReadAll(interruptible(context.Background(), strings.NewReader(text)))
	if err != nil || string(got) != text {
		t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
	}
	untouched := strings.NewReader(text)
	interruptible(context.Background(), untouched)
	runtime.Gosched()
	if untouched.Len() != len(text) {
		t.Error("it is read before anybody asks")
	}
	broken := errors.New("the disk is gone")
	if _, err := io.ReadAll(interruptible(context.Background(), io.MultiReader(strings.NewReader("a"), failing{broken}))); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
