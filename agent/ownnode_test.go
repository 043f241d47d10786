package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fakedynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/audit/denial"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/source/kube"
	"github.com/namegate/namegate/status"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/linktest"
)

// TestOutsideClusterRanges: an agent that watches its own Node alone reports the addresses and
// ranges of it that are outside of the Corefile's cluster ranges, in its status, log and metrics,
// until a Corefile has them. Then the guard of every agent keeps outside names from them.
func TestOutsideClusterRanges(t *testing.T) {
	var lines lockedBuffer
	log := slog.New(slog.NewTextHandler(&lines, nil))
	a, _ := agentOnFakes(t, log)
	inet, bridge := knftables.NewFake(knftables.InetFamily, layout.TableName), knftables.NewFake(knftables.BridgeFamily, layout.TableName)
	a.kernel = &kernel{Kernel: enforcer.Kernel{Links: linktest.NewFake(), Tables: nft.New(layout.All[:2], inet, bridge)}}
	a.o.Node, a.packets = "n1", noneLost{}
	a.denials = denial.New(denial.Options{Memory: recent.NewMemory(), Logger: log, Snapshot: func() *policy.Snapshot { return nil }})
	a.selfTest = newSelfTest(func(context.Context, policy.PodRef) (path enforcer.Path, err error) { return path, nil }, a.views, log)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "203.0.113.1"}}
	scheme := runtime.NewScheme()
	fatal.If(t, v1alpha1.AddToScheme(scheme))
	client, policies := fake.NewClientset(node), fakedynamic.NewSimpleDynamicClient(scheme)
	a.cluster = &cluster{log: log}
	var err error
	a.cluster.source, err = kube.New(kube.Options{Client: client, Dynamic: policies, NodeName: "n1", OwnNodeOnly: true, Log: log})
	fatal.If(t, err)
	a.cluster.reporter, err = status.New(status.Options{Client: client, Dynamic: policies, Namespace: "namegate", Node: "n1", Identity: "agent-1", DaemonSet: "agents", Log: log})
	fatal.If(t, err)
	a.source = a.cluster
	fatal.If(t, a.source.follow(a.config.Load()))

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.rollout.Run(ctx) })
	running.Go(func() {
		if err := a.source.run(ctx, a.rollout.Offer); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })

	get := func(h http.Handler, path string) string {
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequest("GET", path, nil))
		return r.Body.String()
	}
	// expect waits for the problems of these addresses and ranges, and of no others.
	expect := func(count string, outside ...string) {
		t.Helper()
		fatal.Await(t, count+" problems in the metrics", func() bool {
			return strings.Contains(get(a.metricsHandler(), "/metrics"), `namegate_problems{reason="OutsideClusterRanges"} `+count+"\n")
		})
		text := get(a.console()(asRoot), console.StatusPath)
		for _, what := range []string{"203.0.113.1", "10.244.1.0/24"} {
			message := what + " is outside of the cluster ranges of the configuration"
			wanted := slices.Contains(outside, what)
			if strings.Contains(text, message) != wanted {
				t.Errorf("the status has %q: %v, want %v\n%s", message, !wanted, wanted, text)
			}
			if wanted && strings.Count(lines.String(), message) != 1 {
				t.Errorf("the log has %q not once:\n%s", message, lines.String())
			}
		}
	}
	outside, err := fqdn.ParseName("www.example.org")
	fatal.If(t, err)
	reload := func(ranges string) {
		t.Helper()
		c, err := corefile.Parse("Corefile", ". {\n forward . 198.51.100.53\n cluster cluster.local "+ranges+"\n}")
		fatal.If(t, err)
		a.reconfigure(c)
	}
	neighbour := netip.MustParseAddr("203.0.113.2") // of a Node that the agent does not watch
	guard := func() string {
		return a.stateOf("n1", a.rollout.Status()).Blocked(outside, neighbour)
	}
	<-a.rollout.First()
	expect("2", "203.0.113.1", "10.244.1.0/24")
	diff.Equal(t, "", guard(), "the guard's reason for the address of another node, without ranges")
	reload("10.244.0.0/16")
	expect("1", "203.0.113.1")
	reload("10.244.0.0/16 203.0.113.0/24")
	expect("0")
	diff.Equal(t, "cluster", guard(), "the guard's reason for the address of another node")
}

// TestOwnNodeOnly: the option reaches the source, which then asks for the Node of the agent alone.
func TestOwnNodeOnly(t *testing.T) {
	for own, want := range map[bool]string{false: "", true: "metadata.name=n1"} {
		asked := make(chan string, 100)
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/v1/nodes" {
				select {
				case asked <- r.FormValue("fieldSelector"):
				default: // it is asked again and again
				}
			}
			http.NotFound(w, r)
		}))
		t.Cleanup(api.Close)
		file := filepath.Join(t.TempDir(), "kubeconfig")
		fatal.If(t, os.WriteFile(file, []byte(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "`+api.URL+`"}}], contexts: [{name: c, context: {cluster: c}}]}`), 0o600))
		a := &agent{o: Options{Node: "n1"}, log: slog.New(slog.DiscardHandler)}
		a.config.Store(corefile.Default())
		fatal.If(t, a.openCluster(Cluster{Kubeconfig: file, Namespace: "namegate", PodName: "agent-1", DaemonSet: "agents", OwnNodeOnly: own}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.source.run(ctx, func(rollout.State) {}) }()
		diff.Equal(t, want, <-asked, "the field selector of the Nodes; own Node only:", own)
		cancel()
		fatal.If(t, <-ended)
	}
}

// TestEnforceNetworkPolicies: the option reaches the source, which then reads the pods of other nodes that it needs.
// Conditions say nothing of another engine then, and the Lease of the node says which NetworkPolicies are enforced.
func TestEnforceNetworkPolicies(t *testing.T) {
	for _, all := range []bool{false, true} {
		leases := make(chan string, 10)
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPost && path.Base(r.URL.Path) == "leases":
				if lease, _ := io.ReadAll(r.Body); strings.Contains(string(lease), "namegate-node-n1") { // not that of the election
					leases <- string(lease)
				}
				http.Error(w, "", http.StatusConflict)
			case r.Method == http.MethodPost || strings.Contains(r.URL.Path, "/leases/"):
				http.NotFound(w, r)
			case r.FormValue("sendInitialEvents") != "":
				http.Error(w, "", http.StatusBadRequest) // it lists then
			case r.FormValue("watch") != "":
				<-r.Context().Done()
			default:
				version, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/"), "/"+path.Base(r.URL.Path))
				kind := map[string]string{"nodes": "Node", "namespaces": "Namespace", "pods": "Pod", "services": "Service", "networkpolicies": "NetworkPolicy"}[path.Base(r.URL.Path)]
				w.Header().Set("Content-Type", "application/json")
				items := map[string]string{"NetworkPolicy": `{"metadata":{"namespace":"shop","name":"closed"}}`}[kind]
				fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[%s]}`, kind, version, items)
			}
		}))
		t.Cleanup(func() { api.CloseClientConnections(); api.Close() })
		file := filepath.Join(t.TempDir(), "kubeconfig")
		fatal.If(t, os.WriteFile(file, []byte(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "`+api.URL+`"}}], contexts: [{name: c, context: {cluster: c}}]}`), 0o600))
		a := &agent{o: Options{Node: "n1", EnforceNetworkPolicies: all}, log: slog.New(slog.DiscardHandler)}
		a.config.Store(corefile.Default())
		fatal.If(t, a.openCluster(Cluster{Kubeconfig: file, Namespace: "namegate", PodName: "agent-1", DaemonSet: "agents"}))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		got := make(chan bool, 100)
		ended := make(chan error, 1)
		go func() {
			ended <- a.source.run(ctx, func(s rollout.State) { got <- s.Input.EnforceNetworkPolicies })
		}()
		select {
		case is := <-got:
			diff.Equal(t, all, is)
			a.cluster.mu.Lock()
			diff.Equal(t, all, len(a.cluster.state.NetworkPolicies) == 0, "conditions know no NetworkPolicies")
			a.cluster.mu.Unlock()
			reported := make(chan error, 1)
			go func() {
				reported <- a.cluster.report(ctx, func() []status.Finding { return nil }, func() ([]policy.Problem, bool) { return nil, true })
			}()
			lease := <-leases
			diff.Equal(t, all, strings.Contains(strings.ReplaceAll(lease, `\"`, `"`), `"enforce":"All"`), "the Lease", lease)
			defer func() { fatal.If(t, <-reported) }()
		case <-ctx.Done():
			t.Error("the source has no state")
		}
		cancel()
		fatal.If(t, <-ended)
	}
}

// noneLost are packets of denied connections, of which none is lost.
type noneLost struct{}

func (noneLost) Lost() uint64 { return 0 }

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
