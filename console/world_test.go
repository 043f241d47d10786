package console

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/source/manifest"
	"github.com/namegate/namegate/stats"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// noon is the moment of everything here.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func clock() time.Time { return noon }

// golden compares a text with testdata/NAME.golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		fatal.If(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with go test ./console -update", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s is not as it was (-want +got):\n%s", path, d)
	}
}

const policies = `
metadata: {name: base, namespace: shop}
spec:
  podSelector: {matchLabels: {app: cart}}
  egress:
  - matches: [{name: www.example.org}, {pattern: "*.cdn.test"}]
    ports: [{protocol: TCP, port: 443}]
---
metadata: {name: watch, namespace: shop}
spec:
  podSelector: {matchLabels: {tier: front}}
  enforcement: Audit
  egress:
  - matches: [{name: bank.test}]
---
metadata: {name: closed, namespace: pay}
spec:
  podSelector: {}
  denied: Drop
  dns: {unmatched: NXDomain}
`

func pod(namespace, name string, addr string, change func(*policy.Pod), labels ...string) policy.Pod {
	p := policy.Pod{PodRef: policy.PodRef{Namespace: namespace, Name: name, UID: "uid-" + name}, Labels: map[string]string{}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		p.Labels[key] = value
	}
	if addr != "" {
		p.IPs = []netip.Addr{netip.MustParseAddr(addr)}
	}
	if change != nil {
		change(&p)
	}
	return p
}

// world is a Source with a small node.
type world struct {
	node     string
	snap     *policy.Snapshot
	policies []v1alpha1.FQDNNetworkPolicy

	networkPolicies  []*networkingv1.NetworkPolicy
	remote           []*policy.Pod
	unread           string
	remoteNamespaces []string
	services         map[netip.Addr]*policy.Service

	open    []policy.GrantInfo
	ended   []policy.GrantInfo
	flows   map[policy.PodRef][]audit.Flow
	seen    []recent.Sighting
	asked   map[fqdn.Name]recent.Decision
	failing string
	trouble map[policy.PodRef][]string
	recent  []byte
	// complete is for how long recent is complete, by namespace.
	complete map[string]time.Duration
	follow   func() Follower
	status   Status
}

func newWorld(t *testing.T, node string) *world {
	t.Helper()
	w := &world{node: node, asked: map[fqdn.Name]recent.Decision{}, flows: map[policy.PodRef][]audit.Flow{}}
	for doc := range strings.SplitSeq(policies, "---\n") {
		var p v1alpha1.FQDNNetworkPolicy
		fatal.If(t, yaml.UnmarshalStrict([]byte(doc), &p))
		w.policies = append(w.policies, p)
	}
	pods := []policy.Pod{
		pod("shop", "cart-7d9f", "10.1.0.10", nil, "app=cart", "pod-template-hash=7d9f"),
		pod("shop", "front-1", "10.1.0.11", nil, "tier=front"),
		pod("shop", "batch", "10.1.0.12", nil),
		pod("shop", "logs", "10.1.0.1", func(p *policy.Pod) { p.HostNetwork = true }, "app=cart"),
		pod("shop", "done", "10.1.0.13", func(p *policy.Pod) { p.Phase = "Succeeded" }, "app=cart"),
		pod("shop", "far", "10.2.0.10", func(p *policy.Pod) { p.NodeName = "node-2" }, "app=cart"),
		pod("pay", "cart-7d9f", "10.1.0.20", nil),
	}
	w.snap = compile.New().Compile(compile.Input{Policies: w.policies, Pods: pods})
	w.beside(pods[0].PodRef)
	cart, pay := pods[0].PodRef, pods[6].PodRef
	grant := func(p policy.PodRef, name, addr, by string, in time.Duration) policy.GrantInfo {
		return policy.GrantInfo{Pod: p, Addr: netip.MustParseAddr(addr), Ports: "tcp/443", Name: policytest.Name(name), Until: noon.Add(in), By: by}
	}
	w.open = []policy.GrantInfo{
		grant(cart, "www.example.org", "192.0.2.10", "shop/base www.example.org", 250*time.Second),
		grant(cart, "a.cdn.test", "2001:db8::6", "shop/base *.cdn.test", 40*time.Second),
		grant(cart, "old.cdn.test", "192.0.2.11", "shop/base *.cdn.test", -time.Second),
		grant(pay, "bank.test", "198.51.100.1", "", time.Minute),
	}
	w.open[1].Held = noon.Add(-5 * time.Minute)
	w.seen = []recent.Sighting{
		{Pod: pay, Name: policytest.Name("secret.pay.test"), Address: netip.MustParseAddr("203.0.113.7"), Asked: noon.Add(-time.Minute)},
		{Pod: cart, Name: policytest.Name("bank.test"), Address: netip.MustParseAddr("203.0.113.5"), Asked: noon.Add(-time.Minute)},
	}
	w.flows[cart] = []audit.Flow{
		{
			Time: noon.Add(-30 * time.Second), Last: noon.Add(-2 * time.Second), Pod: cart, Protocol: policy.TCP, Dialled: netip.MustParseAddrPort("203.0.113.5:443"),
			Names: []audit.FlowName{{Name: policytest.Name("bank.test"), Asked: noon.Add(-time.Minute)}}, Reason: audit.ReasonUnmatched, Policies: []string{"shop/base"}, Count: 12,
		},
		{
			Time: noon.Add(-40 * time.Second), Last: noon.Add(-40 * time.Second), Pod: cart, Protocol: policy.TCP, Dialled: netip.MustParseAddrPort("203.0.113.7:443"),
			Names: []audit.FlowName{{Name: policytest.Name("secret.pay.test"), Pod: pay, Asked: noon.Add(-time.Minute)}}, Reason: audit.ReasonAnother, Count: 1,
		},
	}
	w.trouble = map[policy.PodRef][]string{cart: {"its queries do not reach the agent"}}
	w.status = Status{Node: node, Version: "v9", InSync: true, Snapshot: 2, Audit: &AuditStatus{Written: 6}}
	return w
}

// beside gives a pod a NetworkPolicy, in a cluster with a database behind a Service.
func (w *world) beside(ref policy.PodRef) {
	db := policy.Peer{Kind: policy.PeerPods, Key: "shop: app=db"}
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = "shop", "db-out"
	w.networkPolicies = []*networkingv1.NetworkPolicy{p}
	v := w.snap.ViewOf(ref)
	v.NetworkPolicies = []string{"shop/db-out"}
	v.Rules.Namespace = slices.Concat(v.Rules.Namespace, []*policy.Rule{{Peer: db, Ports: "tcp/5432", Policy: "shop/db-out", Path: "spec.egress[0]"}})
	w.snap.PeerSets = []*policy.PeerSet{{Peer: db, Addrs: []netip.Addr{netip.MustParseAddr("10.2.0.20")}}}
	far := pod("shop", "db-0", "10.2.0.20", func(p *policy.Pod) { p.NodeName = "node-2" }, "app=db")
	other := pod("pay", "ledger-0", "10.2.0.30", func(p *policy.Pod) { p.NodeName = "node-2" }, "app=ledger")
	w.remote = []*policy.Pod{&far, &other}
	at := func(name string, port, target uint16) *policy.Service {
		return &policy.Service{Ref: policy.ServiceRef{Namespace: "shop", Name: name}, Selector: map[string]string{"app": "db"}, Ports: []policy.ServicePort{{Protocol: policy.TCP, Port: port, Target: target}}}
	}
	w.services = map[netip.Addr]*policy.Service{netip.MustParseAddr("10.96.0.20"): at("db", 5432, 5432), netip.MustParseAddr("10.96.0.21"): at("db-admin", 80, 8080)}
}

func (w *world) Node() string               { return w.node }
func (w *world) Status() Status             { return w.status }
func (w *world) Snapshot() *policy.Snapshot { return w.snap }
func (w *world) Policies(namespace string) (out []v1alpha1.FQDNNetworkPolicy) {
	for _, p := range w.policies {
		if namespace == "" || p.Namespace == namespace {
			out = append(out, p)
		}
	}
	return out
}

func (w *world) Problems() []policy.Problem {
	if w.snap == nil {
		return nil
	}
	return w.snap.Problems
}
func (w *world) NetworkPolicies(namespace string) (out []*networkingv1.NetworkPolicy) {
	for _, p := range w.networkPolicies {
		if p.Namespace == namespace {
			out = append(out, p)
		}
	}
	return out
}
func (w *world) Remote() ([]*policy.Pod, []string, string) {
	return w.remote, w.remoteNamespaces, w.unread
}

func (w *world) Services() map[netip.Addr]*policy.Service { return w.services }
func (w *world) CountsByName(netip.Addr) bool             { return true }
func (w *world) Failing() string                          { return w.failing }
func (w *world) Trouble() map[policy.PodRef][]string      { return w.trouble }
func (w *world) Grants(p policy.PodRef) (out []policy.GrantInfo) {
	for _, o := range w.open {
		if o.Pod == p {
			out = append(out, o)
		}
	}
	return out
}
func (w *world) Ended(policy.PodRef, netip.Addr) []policy.GrantInfo { return w.ended }
func (w *world) Denied(p policy.PodRef) []audit.Flow                { return w.flows[p] }
func (w *world) Seen(p policy.PodRef, a netip.Addr) (out []recent.Sighting) {
	for _, s := range w.SeenByAnybody(a) {
		if s.Pod == p {
			out = append(out, s)
		}
	}
	return out
}

func (w *world) SeenByAnybody(a netip.Addr) (out []recent.Sighting) {
	for _, s := range w.seen {
		if s.Address == a {
			out = append(out, s)
		}
	}
	return out
}

func (w *world) Asked(_ policy.PodRef, n fqdn.Name) (recent.Decision, bool) {
	d, ok := w.asked[n]
	return d, ok
}

func (w *world) LedBy(policy.PodRef, fqdn.Name) (via, aliases []fqdn.Name) { return nil, nil }

func (w *world) DeniesResolver(policy.PodRef, netip.Addr) (bool, *policy.Rule) { return false, nil }

func (w *world) Guard() func(fqdn.Name, netip.Addr) string {
	return func(_ fqdn.Name, a netip.Addr) string {
		if a.IsPrivate() {
			return "pod"
		}
		return ""
	}
}
func (w *world) Inside(netip.Addr) string { return "" }
func (w *world) Domain() fqdn.Name        { n, _ := fqdn.ParseName("cluster.local"); return n }
func (w *world) Resolvers() []netip.Addr  { return []netip.Addr{netip.MustParseAddr("10.96.0.10")} }
func (w *world) Recent() []byte           { return w.recent }
func (w *world) Complete(namespace string) (time.Duration, bool) {
	d, known := w.complete[namespace]
	return d, known
}
func (w *world) Follow() Follower {
	if w.follow == nil {
		return silence{}
	}
	return w.follow()
}

// silence is a log to which nothing comes.
type silence struct{}

func (silence) Next(ctx context.Context) ([]byte, uint64, error) {
	<-ctx.Done()
	return nil, 0, ctx.Err()
}
func (silence) Close() {}

// some sees the namespaces that it lists.
type some []string

// Name is that of what it sees.
func (s some) Name() string { return strings.Join(s, ",") }

func (s some) Sees(_ context.Context, namespace string) (bool, error) {
	for _, n := range s {
		if n == namespace {
			return true, nil
		}
	}
	return false, nil
}

// SeesCluster says whether it lists "cluster" or "standard".
func (s some) SeesCluster(_ context.Context, standard bool) (bool, error) {
	return slices.Contains(s, map[bool]string{false: "cluster", true: "standard"}[standard]), nil
}

// agent asks a handler as a viewer.
type agent struct {
	node    string
	handler http.Handler
	server  *httptest.Server // for streams; nil for one answer at once
	err     error
}

// agentOf is an agent with a source, asked by a viewer.
func agentOf(node string, s Source, v Viewer) *agent {
	return &agent{node: node, handler: Handler(s, func(*http.Request) (Viewer, error) { return v, nil }, clock)}
}

func (a *agent) Node() string { return a.node }

func (a *agent) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	at := path + "?" + query.Encode()
	if a.server != nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.server.URL+at, nil)
		if err != nil {
			return nil, err
		}
		resp, err := a.server.Client().Do(req)
		if err != nil {
			return nil, &Unreachable{Err: err}
		}
		return Received(resp)
	}
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, at, nil))
	return Received(w.Result())
}

var errAway = &Unreachable{Err: errors.New("no agent answers at 192.0.2.2:9954")}

// printed returns a printer and its output.
func printed(format string, colour bool) (*Printer, *bytes.Buffer, *bytes.Buffer) {
	var out, warn bytes.Buffer
	return &Printer{Out: &out, Warn: &warn, Format: format, Colour: colour, Now: clock}, &out, &warn
}

var _ io.Writer = (*bytes.Buffer)(nil)

// busy is a status with everything that a status may say.
func busy() Status {
	return Status{
		Node: "node-1", Version: "v9", Snapshot: 7, Dataplane: stats.Dataplane{Name: "iptables", Variant: "nft", Reason: "iptables and ipset work on this node"}, Failing: "apply chains: the kernel is full",
		Files:    []manifest.FileError{{File: "/etc/namegate/manifests/a.yaml", Reason: "line 3: no colon", Since: noon}},
		Problems: []policy.Problem{{Object: "policy shop/base", Reason: policy.ReasonPartiallyInvalid, Path: "spec.egress[0].matches[0]", Message: "a bell \a and \x1b[31mred"}},
		Away:     &Away{Since: noon, Error: "connection refused"}, Paths: []FailedPath{{"shop/cart-7d9f", "dropped"}},
		Enforcer: stats.Enforcer{
			Selected: 3, Grants: 12, Homeless: []netip.Addr{netip.MustParseAddr("10.1.0.10")}, Unseen: []netip.Addr{netip.MustParseAddr("10.1.0.11")},
			Switched: map[netip.Addr]string{netip.MustParseAddr("10.1.0.12"): "br-int"},
			Serving: map[netip.Addr]netip.Addr{
				netip.MustParseAddr("192.0.2.53"): netip.MustParseAddr("169.254.20.64"), netip.MustParseAddr("10.96.0.10"): netip.MustParseAddr("169.254.20.65"),
			},
			Intercepting: true, PeerSets: 2, PeerEntries: 40, Bypassing: []netip.Addr{netip.MustParseAddr("10.1.0.11")}, DroppedTCP: []netip.Addr{netip.MustParseAddr("10.1.0.12")},
			NotCut: []string{"udp 10.1.0.10:4000 to 192.0.2.1:443"}, UnreadTables: []string{"read nft table ip other: chain a, rule with handle 7: revision 9 of MARK is not known"},
		},
		NetworkPolicies: 3, RemotePods: 38,
		Proxy: stats.Proxy{Counters: stats.Counters[uint64]{CacheHits: 31, CacheMisses: 12, CacheStale: 3, Prefetches: 4, Followed: 5, ShedPod: 6, ShedAll: 7}, ShedZone: 8},
		Flows: []FlowTotal{{"denied", "rule", "Admin", 7}, {"denied", "unmatched", "Namespace", 12}, {"denied", "address", "Namespace", 0}, {"would-deny", "ports", "Namespace", 3}},
		Audit: &AuditStatus{Written: 9, Dropped: 1},
	}
}
