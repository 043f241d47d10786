package kube

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestNewNeeds(t *testing.T) {
	client, dyn := fake.NewClientset(), dynamicfake.NewSimpleDynamicClient(k8sruntime.NewScheme())
	whole := Options{Client: client, Dynamic: dyn, NodeName: ourNode, Log: slog.New(slog.DiscardHandler)}
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"nothing", func(*Options) {}, ""},
		{"a node", func(o *Options) { o.NodeName = "" }, "write --node-name"},
		{"a client", func(o *Options) { o.Client = nil }, "both clients"},
		{"a dynamic client", func(o *Options) { o.Dynamic = nil }, "both clients"},
		{"a log", func(o *Options) { o.Log = nil }, "a log"},
	} {
		o := whole
		c.change(&o)
		_, err := New(o)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// running is a source that runs on the system's clock.
type running struct {
	t      *testing.T
	source *Source
	states chan State
	last   State
	stop   func()
}

func run(t *testing.T, client kubernetes.Interface, dyn dynamic.Interface, log *slog.Logger, services ...policy.ServiceRef) *running {
	t.Helper()
	return runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, Log: log, Services: services})
}

func runWith(t *testing.T, o Options, change ...func(*Source)) *running {
	t.Helper()
	s, err := New(o)
	fatal.If(t, err)
	for _, do := range change {
		do(s)
	}
	r := &running{t: t, source: s, states: make(chan State, 1000)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, func(s State) { r.states <- s }) }()
	r.stop = func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("Run goes on after its context")
		}
		r.stop = func() {}
	}
	t.Cleanup(func() { r.stop() })
	return r
}

func runAt(t *testing.T, api *apiServer, services ...policy.ServiceRef) *running {
	client, dyn := api.clients()
	return run(t, client, dyn, slog.New(slog.DiscardHandler), services...)
}

// until returns the first state that reads as wanted, by text.
func (r *running) until(want string, text func(State) string) State {
	r.t.Helper()
	deadline := time.After(time.Minute)
	got := text(r.last)
	for got != want {
		select {
		case r.last = <-r.states:
			got = text(r.last)
		case <-deadline:
			r.t.Fatalf("the last state is\n%s\nwant\n%s", got, want)
		}
	}
	return r.last
}

func (r *running) untilHealth(what string, wanted func(Health) bool) Health {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		h := r.source.Health()
		if wanted(h) {
			return h
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("health is %+v, want %s", h, what)
		}
	}
}

func away(h Health) bool { return !h.Disconnected.IsZero() && h.LastError != "" }
func well(h Health) bool { return h == Health{} }

func podText(s State) string {
	var words []string
	for _, p := range s.Input.Pods {
		words = append(words, fmt.Sprintf("%s%v", p.Name, p.IPs))
	}
	return strings.Join(words, " ")
}

func policyText(s State) string {
	var words []string
	for _, p := range s.Input.Policies {
		words = append(words, p.Name+":"+*p.Spec.Egress[0].Matches[0].Name)
	}
	return strings.Join(words, " ")
}

func resolverText(s State) string { return fmt.Sprint(s.Cluster.Resolvers) }

func TestRunFollowsEverything(t *testing.T) {
	api := newAPIServer(t)
	api.put("namespaces", aNamespace("shop", map[string]string{"team": "a"}))
	api.put("nodes", aNode(ourNode, "192.0.2.1", "10.0.0.0/16"))
	api.put("pods", aPod("web", "10.0.0.1"))
	api.put("pods", with(aPod("far", "10.1.0.1"), func(p *corev1.Pod) { p.Spec.NodeName = "node-b" }))
	api.put(v1alpha1.Resource, aPolicy("p", "www.example.org"))
	api.put("services", aService(kubeDNS.Namespace, kubeDNS.Name, "10.96.0.10"))
	api.put("endpointslices", dnsSlice("a", "10.0.0.9"))
	r := runAt(t, api, kubeDNS)
	s := r.until("web[10.0.0.1]", podText)
	if policyText(s) != "p:www.example.org" || s.Input.Namespaces["shop"]["team"] != "a" || fmt.Sprint(s.Cluster.LocalRanges) != "[10.0.0.0/16]" ||
		resolverText(s) != "map[kube-dns.kube-system:{[10.96.0.10] [10.0.0.9:1053]}]" {
		t.Errorf("the first state lacks something: %+v", s)
	}
	if h := r.source.Health(); !well(h) {
		t.Errorf("health %+v", h)
	}
	api.put("pods", aPod("web", "10.0.0.1", "2001:db8::1"))
	r.until("web[10.0.0.1 2001:db8::1]", podText)
	api.remove("pods/shop/web")
	r.until("", podText)
	api.put(v1alpha1.Resource, aPolicy("p", "example.org"))
	r.until("p:example.org", policyText)
	api.put("namespaces", aNamespace("shop", map[string]string{"team": "b"}))
	r.until("b", func(s State) string { return s.Input.Namespaces["shop"]["team"] })
	api.put("nodes", aNode("node-b", "192.0.2.2", "10.1.0.0/16"))
	r.until("[192.0.2.1 192.0.2.2]", func(s State) string { return fmt.Sprint(s.Cluster.Nodes) })
	api.put("endpointslices", dnsSlice("a", "10.0.0.9", "10.1.0.9"))
	r.until("map[kube-dns.kube-system:{[10.96.0.10] [10.0.0.9:1053 10.1.0.9:1053]}]", resolverText)
	api.remove("services/kube-system/kube-dns")
	s = r.until("map[kube-dns.kube-system:{[] []}]", resolverText)
	diff.Empty(t, s.Cluster.Services, "Services")
}

// TestNothingBeforeAllIsKnown: one kind that cannot be read holds everything back,
// and Health says which. Agents go on without cluster policies where these are forbidden.
func TestNothingBeforeAllIsKnown(t *testing.T) {
	for resource := range kinds {
		if resource == v1alpha1.ClusterResource || resource == v1alpha1.NodeResource || resource == cnp.Resource().Resource {
			continue
		}
		t.Run(resource, func(t *testing.T) {
			api := newAPIServer(t)
			api.forbid = resource
			api.put("pods", aPod("web", "10.0.0.1"))
			r := runAt(t, api, kubeDNS)
			h := r.untilHealth("an error", away)
			if !strings.HasPrefix(h.LastError, resource) || len(r.states) > 0 {
				t.Errorf("health %+v, %d states", h, len(r.states))
			}
			api.mu.Lock()
			api.forbid = ""
			api.mu.Unlock()
			r.until("web[10.0.0.1]", podText)
			r.untilHealth("well", well)
		})
	}
}

func TestFollowChanges(t *testing.T) {
	api := newAPIServer(t)
	other := policy.ServiceRef{Namespace: "shop", Name: "names"}
	api.put("services", aService(kubeDNS.Namespace, kubeDNS.Name, "10.96.0.10"))
	api.put("services", aService(other.Namespace, other.Name, "10.96.0.11"))
	api.put("endpointslices", dnsSlice("a", "10.0.0.9"))
	api.put("endpointslices", aSlice(other.Namespace, other.Name, "b", "10.0.0.8"))
	r := runAt(t, api)
	r.until("[10.96.0.10 10.96.0.11]", func(s State) string { return fmt.Sprint(s.Cluster.Services) })
	diff.Equal(t, "map[]", resolverText(r.last), "resolvers", r.last.Cluster.Resolvers)
	r.source.Follow([]policy.ServiceRef{kubeDNS, kubeDNS})
	first := r.until("map[kube-dns.kube-system:{[10.96.0.10] [10.0.0.9:1053]}]", resolverText)
	r.source.Follow([]policy.ServiceRef{other, kubeDNS})
	r.until("map[kube-dns.kube-system:{[10.96.0.10] [10.0.0.9:1053]} names.shop:{[10.96.0.11] [10.0.0.8:1053]}]", resolverText)
	r.source.Follow([]policy.ServiceRef{other})
	r.until("map[names.shop:{[10.96.0.11] [10.0.0.8:1053]}]", resolverText)
	r.source.Follow(nil)
	r.until("map[]", resolverText)
	if got := resolverText(first); !strings.Contains(got, "10.0.0.9:1053") || strings.Contains(got, "shop") {
		t.Errorf("a state that was handed out has changed: %s", got)
	}
}

// TestFollowedButForbidden: a Service that is followed later and cannot be read holds nothing back.
func TestFollowedButForbidden(t *testing.T) {
	api := newAPIServer(t)
	api.forbid = "endpointslices"
	api.put("services", aService(kubeDNS.Namespace, kubeDNS.Name, "10.96.0.10"))
	r := runAt(t, api)
	r.until("[10.96.0.10]", func(s State) string { return fmt.Sprint(s.Cluster.Services) })
	r.source.Follow([]policy.ServiceRef{kubeDNS})
	r.until("map[kube-dns.kube-system:{[10.96.0.10] []}]", resolverText)
	api.put("pods", aPod("web", "10.0.0.1"))
	r.until("web[10.0.0.1]", podText)
	r.untilHealth("an error", away)
	r.source.Follow(nil)
	r.until("map[]", resolverText)
	r.untilHealth("well, as nothing fails that is still asked", well)
}

// TestOtherChangesAreNoState: unused fields of an object change nothing.
func TestOtherChangesAreNoState(t *testing.T) {
	api := newAPIServer(t)
	api.put("pods", aPod("web", "10.0.0.1"))
	r := runAt(t, api)
	r.until("web[10.0.0.1]", podText)
	for i := range 20 {
		api.put("pods", with(aPod("web", "10.0.0.1"), func(p *corev1.Pod) { p.Status.Message = fmt.Sprint(i) }))
	}
	api.put("pods", aPod("zoo", "10.0.0.2"))
	r.until("web[10.0.0.1] zoo[10.0.0.2]", podText)
	diff.Equal(t, 0, len(r.states), "more states")
}

// TestUnchangedPartsAreShared: the compiler sees by their memory what did not change.
func TestUnchangedPartsAreShared(t *testing.T) {
	api := newAPIServer(t)
	api.put(v1alpha1.Resource, aPolicy("p", "www.example.org"))
	r := runAt(t, api)
	first := r.until("p:www.example.org", policyText)
	api.put("pods", aPod("web", "10.0.0.1"))
	second := r.until("web[10.0.0.1]", podText)
	diff.Equal(t, &second.Input.Policies[0], &first.Input.Policies[0], "the policies after a change of a pod")
	api.put(v1alpha1.Resource, aPolicy("q", "example.org"))
	third := r.until("p:www.example.org q:example.org", policyText)
	diff.Equal(t, &third.Input.Policies[0].Spec.Egress[0], &first.Input.Policies[0].Spec.Egress[0], "a policy after a change of another")
	if len(first.Input.Pods) != 0 || len(first.Input.Policies) != 1 {
		t.Error("a state that was handed out has changed")
	}
}

func TestProblemsAreReported(t *testing.T) {
	api := newAPIServer(t)
	var log syncBuffer
	client, dyn := api.clients()
	api.put("pods", aPod("web", "10.0.0", "10.0.0.1"))
	api.put("nodes", aNode(ourNode, "192.0.2.1", "x"))
	r := run(t, client, dyn, slog.New(slog.NewTextHandler(&log, nil)))
	s := r.until("web[10.0.0.1]", podText)
	if len(s.Problems) != 2 || s.Problems[0].Object != "node "+ourNode || s.Problems[1].Object != "pod shop/web" {
		t.Errorf("problems %v", s.Problems)
	}
	api.put("pods", aPod("zoo", "10.0.0.2"))
	r.until("web[10.0.0.1] zoo[10.0.0.2]", podText)
	if n := strings.Count(log.String(), "an object has a problem"); n != 2 {
		t.Errorf("%d problems are logged:\n%s", n, log.String())
	}
	api.put("pods", aPod("web", "10.0.0.1"))
	r.until("1", func(s State) string { return fmt.Sprint(len(s.Problems)) })
}

// TestFakes: the clients that other packages' tests use cannot stream lists.
func TestFakes(t *testing.T) {
	client := fake.NewClientset(aPod("web", "10.0.0.1"), aNamespace("shop", nil), aService(kubeDNS.Namespace, kubeDNS.Name, "10.96.0.10"), dnsSlice("a", "10.0.0.9"))
	lists := map[schema.GroupVersionResource]string{v1alpha1.GroupVersionResource(): v1alpha1.Kind + "List", v1alpha1.ClusterGroupVersionResource(): v1alpha1.ClusterKind + "List",
		v1alpha1.NodeGroupVersionResource(): v1alpha1.NodeKind + "List"}
	dyn := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(k8sruntime.NewScheme(), lists, aPolicy("p", "www.example.org"))
	s := run(t, client, dyn, slog.New(slog.DiscardHandler), kubeDNS).until("web[10.0.0.1]", podText)
	if policyText(s) != "p:www.example.org" || resolverText(s) != "map[kube-dns.kube-system:{[10.96.0.10] [10.0.0.9:1053]}]" {
		t.Errorf("%+v", s)
	}
}

// TestNoGoroutineIsLeft: when Run has returned, all its goroutines have ended, also while
// the API server is unavailable.
func TestNoGoroutineIsLeft(t *testing.T) {
	for name, down := range map[string]bool{"well": false, "away": true} {
		t.Run(name, func(t *testing.T) {
			api := withPeers(t)
			r := runAt(t, api, kubeDNS)
			r.until("map[kube-dns.kube-system:{[] []}]", resolverText)
			if down {
				api.setAway(true)
				r.untilHealth("an error", away)
			}
			r.stop()
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				all := make([]byte, 1<<20)
				all = all[:runtime.Stack(all, true)]
				if left := ours(string(all)); left == "" {
					return
				} else if time.Now().After(deadline) {
					t.Fatalf("still there:\n%s", left)
				}
			}
		})
	}
}

// ours returns the goroutines that a source started, but for the test's own.
func ours(stacks string) string {
	var left []string
	for _, g := range strings.Split(stacks, "\n\n") {
		if (strings.Contains(g, "kube.(*listWatch)") || strings.Contains(g, "kube.(*Source)") || strings.Contains(g, "cache.(*Reflector)")) && !strings.Contains(g, "testing.tRunner") {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}

const aKubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: me, user: {token: secret}}]
`

func TestConnect(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	fatal.If(t, os.WriteFile(good, []byte(aKubeconfig), 0o600))
	fatal.If(t, os.WriteFile(bad, []byte("clusters: ["), 0o600))
	c, err := Connect(good)
	fatal.If(t, err)
	if c.Host != "https://192.0.2.1:6443" || c.BearerToken != "secret" || c.QPS == 0 || c.Burst == 0 || !strings.Contains(c.ContentType, "protobuf") ||
		c.UserAgent != "namegate" || c.Timeout != 0 { // a timeout would end every watch
		t.Errorf("%v", c)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for path, want := range map[string]string{"": "--kubeconfig PATH", bad: bad, filepath.Join(dir, "nowhere"): "nowhere"} {
		if _, err := Connect(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", path, err)
		}
	}
}
