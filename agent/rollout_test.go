package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/agent/health"
	"github.com/namegate/namegate/agent/metrics"
	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/proxy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/conntracktest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/iptablestest"
	"github.com/namegate/namegate/testkit/linktest"
)

// agentOnFakes is an agent whose kernel is in memory, and the part of that which can
// be made to refuse. It serves nowhere.
func agentOnFakes(t *testing.T, log *slog.Logger) (*agent, *iptablestest.Fake) {
	t.Helper()
	a, chains, _ := agentOn(t, log)
	return a, chains
}

// agentOn is agentOnFakes with the inet table.
func agentOn(t *testing.T, log *slog.Logger) (*agent, *iptablestest.Fake, *knftables.Fake) {
	t.Helper()
	config, err := corefile.Parse("Corefile", ". {\n forward . 198.51.100.53\n}")
	fatal.If(t, err)
	sets, chains, inet := ipset.NewFake(time.Now), iptablestest.NewFake(), knftables.NewFake(knftables.InetFamily, layout.TableName)
	k := enforcer.Kernel{Dataplane: xtables.Config{Sets: sets, Chains: chains}.New, Flows: conntracktest.NewFake(), Links: linktest.NewFake(netip.MustParseAddr("192.0.2.1")),
		Tables: nft.New(layout.All[:2], inet, knftables.NewFake(knftables.BridgeFamily, layout.TableName))}
	a := &agent{log: log, kernel: &kernel{Kernel: k}, health: health.New(time.Now), timing: metrics.NewTiming(time.Now)}
	a.config.Store(config)
	if a.enforce, err = enforcer.New(enforcerConfig(config), k, time.Now, log); err != nil {
		t.Fatal(err)
	}
	if _, err := a.enforce.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if a.proxy, err = proxy.New(proxy.Options{Config: config, Granter: a.enforce.Grants(), Logger: log}); err != nil {
		t.Fatal(err)
	}
	a.relay = a.newRelaying(config)
	a.network = &network{agent: a, host: newHostDNS(a.testLoop, func() {}, time.Now, log)}
	a.network.last = new(intercept.Network)
	*a.network.last = a.network.of(policy.Cluster{}) // nothing new to serve
	a.nodes = &nodeAddresses{read: k.Links.Addrs, parked: a.network.parked, set: a.proxy.SetCluster, log: log}
	a.rollout = rollout.New(rollout.Options{Stages: &stages{a}, Health: a.health, Timing: a.timing, Log: log})
	return a, chains, inet
}

// TestEveryTryIsTimed: the rollout's compilations and commits are in its figures, refused
// ones as failures, until they succeed.
func TestEveryTryIsTimed(t *testing.T) {
	a, chains := agentOnFakes(t, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { a.rollout.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	figures := func() map[string]string { return scraped(t, a) }
	a.rollout.Offer(rollout.State{})
	<-a.rollout.First() // closed within the try, which is counted when it ends
	fatal.Await(t, "the first try is counted", func() bool { return figures()["namegate_apply_seconds_count"] == "1" })
	got := figures()
	for sample, want := range map[string]string{"namegate_compile_seconds_count": "1", "namegate_apply_seconds_count": "1", "namegate_apply_failures_total": "0"} {
		diff.Equal(t, want, got[sample], sample)
	}
	chains.Fail(errors.New("the kernel is busy"))
	pod := policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: "web", UID: "u"}, IPs: []netip.Addr{netip.MustParseAddr("10.1.0.2")}}
	a.rollout.Offer(rollout.State{Input: compile.Input{Pods: []policy.Pod{pod}, Namespaces: map[string]map[string]string{"shop": {}}, Policies: selectAll()}})
	fatal.Await(t, "the refusal is counted", func() bool { return figures()["namegate_apply_failures_total"] != "0" })
	diff.Equal(t, 1, a.rollout.Status().InForce.Number, "in force; the kernel refused the rest")
	chains.Fail(nil)
	fatal.Await(t, "it is in force, and every try is counted", func() bool {
		got = figures()
		return a.rollout.Status().InForce.Number == 2 && count(t, got["namegate_apply_seconds_count"]) == count(t, got["namegate_apply_failures_total"])+2
	})
	diff.Equal(t, "2", got["namegate_compile_seconds_count"], "compiles")
}

// scraped returns the timing's samples as Prometheus scrapes them, by name and labels.
func scraped(t *testing.T, a *agent) map[string]string {
	t.Helper()
	r, facts := httptest.NewRecorder(), func() metrics.Facts { return metrics.Facts{Proxy: a.proxy.Stats()} }
	metrics.Handler(metrics.Options{Facts: facts, Timing: a.timing}).ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
	samples := map[string]string{}
	for line := range strings.Lines(r.Body.String()) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), " "); found && name != "#" {
			samples[name] = value
		}
	}
	return samples
}

func count(t *testing.T, sample string) int {
	t.Helper()
	n, err := strconv.Atoi(sample)
	fatal.If(t, err)
	return n
}

// selectAll is a policy for every pod of the namespace shop.
func selectAll() []*v1alpha1.FQDNNetworkPolicy {
	pattern := "*.example.org"
	p := &v1alpha1.FQDNNetworkPolicy{Spec: v1alpha1.FQDNNetworkPolicySpec{
		Egress: []v1alpha1.EgressRule{{Matches: []v1alpha1.Match{{Pattern: &pattern}}}},
	}}
	p.Namespace, p.Name = "shop", "all"
	return []*v1alpha1.FQDNNetworkPolicy{p}
}

// tally counts the logged messages.
type tally struct {
	slog.Handler
	mu   sync.Mutex
	said map[string]int
}

func (l *tally) Enabled(context.Context, slog.Level) bool { return true }

func (l *tally) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said[r.Message]++
	return nil
}

func (l *tally) count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said[message]
}

// publishes notes the last snapshot that was published.
type publishes struct {
	rollout.Stages
	last *policy.Snapshot
}

func (p *publishes) Publish(s *policy.Snapshot) {
	p.last = s
	p.Stages.Publish(s)
}

// TestPeerChanges: a state that differs only in peers is applied without a line in
// the log, without a repeated problem, and without a call of the proxy, which would have
// to prepare its answers again.
func TestPeerChanges(t *testing.T) {
	log := &tally{said: map[string]int{}}
	a, _ := agentOnFakes(t, slog.New(log))
	published := &publishes{Stages: &stages{a}}
	a.rollout = rollout.New(rollout.Options{Stages: published, Health: a.health, Timing: a.timing, Log: a.log})
	web := policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: "web", UID: "u"}, IPs: []netip.Addr{netip.MustParseAddr("10.1.0.2")}}
	outOfPlace := policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: "loop", UID: "l"}, IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	peers := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "peers"}, Spec: networkingv1.NetworkPolicySpec{
		Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}}}}
	input := compile.Input{Pods: []policy.Pod{web, outOfPlace}, Namespaces: map[string]map[string]string{"shop": {}}, Policies: selectAll(),
		NetworkPolicies: []*networkingv1.NetworkPolicy{peers}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { a.rollout.Run(ctx); close(ended) }()
	for i := range 5 {
		in := input
		in.Remote = []*policy.Pod{{PodRef: policy.PodRef{Namespace: "shop", Name: "far", UID: "f"}, NodeName: "far", IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 2, 0, byte(i)})}}}
		a.rollout.Offer(rollout.State{Input: in})
		fatal.Await(t, "it is in force", func() bool { s := a.rollout.Status().InForce; return s != nil && s.Number == uint64(i+1) })
	}
	cancel()
	<-ended
	diff.Equal(t, 1, log.count("policies in force"), "lines say that policies are in force")
	diff.Equal(t, 1, log.count("part of the input cannot work"), "lines tell of one problem")
	diff.Equal(t, 5, published.last.Number, "the proxy decides by the snapshot")
	if got := a.rollout.Status().InForce.PeerSets[0].Addrs; len(got) != 2 || got[1] != netip.MustParseAddr("10.2.0.4") {
		t.Errorf("peers %v", got)
	}
}
