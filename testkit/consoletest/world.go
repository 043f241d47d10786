// Package consoletest has a small node for tests of the console: its policies, pods and log, an agent that
// answers about it, and viewers with different rights.
package consoletest

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/source/manifest"
	"github.com/namegate/namegate/stats"
	"github.com/namegate/namegate/testkit/policytest"
)

// Noon is the moment of everything here.
var Noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// Clock returns Noon.
func Clock() time.Time { return Noon }

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

// World is a small node and its agent's knowledge.
type World struct {
	Name            string
	Input           compile.Input
	Snap            *policy.Snapshot
	NetworkPolicies []*networkingv1.NetworkPolicy

	// Unread is why the pods of Input.Remote are not known.
	Unread   string
	Services map[netip.Addr]*policy.Service

	Open, Ended []policy.GrantInfo
	Flows       map[policy.PodRef][]audit.Flow
	Seen        []recent.Sighting
	Asked       map[fqdn.Name]recent.Decision
	Failing     string
	Trouble     map[policy.PodRef][]string
	Status      console.Status
	Engine      *explain.Engine

	Recent []byte
	// Complete is for how long Recent is complete, by namespace.
	Complete map[string]time.Duration
	// Follow is the log's; nil: nothing comes. NoLog: there is none.
	Follow func() serve.Follower
	NoLog  bool
}

// Pod is a pod of the node with labels as "key=value"; addr and change may be zero.
func Pod(namespace, name, addr string, change func(*policy.Pod), labels ...string) policy.Pod {
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

// New returns a node with pods of the namespaces shop and pay.
func New(node string) *World {
	w := &World{Name: node, Asked: map[fqdn.Name]recent.Decision{}, Flows: map[policy.PodRef][]audit.Flow{}}
	for doc := range strings.SplitSeq(policies, "---\n") {
		var p v1alpha1.FQDNNetworkPolicy
		must(yaml.UnmarshalStrict([]byte(doc), &p))
		w.Input.Policies = append(w.Input.Policies, &p)
	}
	w.Input.Pods = []policy.Pod{
		Pod("shop", "cart-7d9f", "10.1.0.10", nil, "app=cart", "pod-template-hash=7d9f"),
		Pod("shop", "front-1", "10.1.0.11", nil, "tier=front"),
		Pod("shop", "batch", "10.1.0.12", nil),
		Pod("shop", "logs", "10.1.0.1", func(p *policy.Pod) { p.HostNetwork = true }, "app=cart"),
		Pod("shop", "done", "10.1.0.13", func(p *policy.Pod) { p.Phase = "Succeeded" }, "app=cart"),
		Pod("shop", "far", "10.2.0.10", func(p *policy.Pod) { p.NodeName = "node-2" }, "app=cart"),
		Pod("pay", "cart-7d9f", "10.1.0.20", nil),
	}
	cart, pay := w.Input.Pods[0].PodRef, w.Input.Pods[6].PodRef
	w.Compile()
	w.beside(cart)
	grant := func(p policy.PodRef, name, addr, by string, in time.Duration) policy.GrantInfo {
		return policy.GrantInfo{Pod: p, Addr: netip.MustParseAddr(addr), Ports: "tcp/443", Name: policytest.Name(name), Until: Noon.Add(in), By: by}
	}
	w.Open = []policy.GrantInfo{
		grant(cart, "www.example.org", "192.0.2.10", "shop/base www.example.org", 250*time.Second),
		grant(cart, "a.cdn.test", "2001:db8::6", "shop/base *.cdn.test", 40*time.Second),
		grant(cart, "old.cdn.test", "192.0.2.11", "shop/base *.cdn.test", -time.Second),
		grant(pay, "bank.test", "198.51.100.1", "", time.Minute),
	}
	w.Open[1].Held = Noon.Add(-5 * time.Minute)
	w.Seen = []recent.Sighting{
		{Pod: pay, Name: policytest.Name("secret.pay.test"), Address: netip.MustParseAddr("203.0.113.7"), Asked: Noon.Add(-time.Minute)},
		{Pod: cart, Name: policytest.Name("bank.test"), Address: netip.MustParseAddr("203.0.113.5"), Asked: Noon.Add(-time.Minute)},
	}
	w.Flows[cart] = []audit.Flow{
		{
			Time: Noon.Add(-30 * time.Second), Last: Noon.Add(-2 * time.Second), Pod: cart, Protocol: policy.TCP, Dialled: netip.MustParseAddrPort("203.0.113.5:443"),
			Names: []audit.FlowName{{Name: policytest.Name("bank.test"), Asked: Noon.Add(-time.Minute)}}, Reason: audit.ReasonUnmatched, Policies: []string{"shop/base"}, Count: 12,
		},
		{
			Time: Noon.Add(-40 * time.Second), Last: Noon.Add(-40 * time.Second), Pod: cart, Protocol: policy.TCP, Dialled: netip.MustParseAddrPort("203.0.113.7:443"),
			Names: []audit.FlowName{{Name: policytest.Name("secret.pay.test"), Pod: pay, Asked: Noon.Add(-time.Minute)}}, Reason: audit.ReasonAnother, Count: 1,
		},
	}
	w.Trouble = map[policy.PodRef][]string{cart: {"its queries do not reach the agent"}}
	w.Status = console.Status{Node: node, Version: "v9", InSync: true, Snapshot: 2, Enforce: console.EnforceSelected, Audit: &console.AuditStatus{Written: 6}}
	return w
}

// Compile makes the snapshot of Input.
func (w *World) Compile() { w.Snap = compile.New().Compile(w.Input) }

// beside gives a pod a NetworkPolicy, in a cluster with a database behind a Service.
func (w *World) beside(ref policy.PodRef) {
	db := policy.Peer{Kind: policy.PeerPods, Key: "shop: app=db"}
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name, p.Spec.PolicyTypes = "shop", "db-out", []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	w.NetworkPolicies = []*networkingv1.NetworkPolicy{p}
	v := w.Snap.ViewOf(ref)
	v.NetworkPolicies = []string{"shop/db-out"}
	v.Rules.Namespace = slices.Concat(v.Rules.Namespace, []*policy.Rule{{Peer: db, Ports: "tcp/5432", Policy: "shop/db-out", Path: "spec.egress[0]"}})
	w.Snap.PeerSets = []*policy.PeerSet{{Peer: db, Addrs: []netip.Addr{netip.MustParseAddr("10.2.0.20")}}}
	v.Ingress = &policy.Ingress{NetworkPolicies: []string{"shop/closed"}, Rules: policy.Rules{Namespace: []*policy.Rule{{Ingress: true, Peer: db, Ports: "tcp/8080", Policy: "shop/closed", Path: "spec.ingress[0]"}}}}
	closed := &networkingv1.NetworkPolicy{}
	closed.Namespace, closed.Name, closed.Spec.PodSelector.MatchLabels = "shop", "closed", map[string]string{"app": "cart"}
	closed.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	w.NetworkPolicies = append(w.NetworkPolicies, closed)
	far := Pod("shop", "db-0", "10.2.0.20", func(p *policy.Pod) { p.NodeName = "node-2" }, "app=db")
	other := Pod("pay", "ledger-0", "10.2.0.30", func(p *policy.Pod) { p.NodeName = "node-2" }, "app=ledger")
	w.Input.Remote = []*policy.Pod{&far, &other}
	at := func(name string, port, target uint16) *policy.Service {
		return &policy.Service{Ref: policy.ServiceRef{Namespace: "shop", Name: name}, Selector: map[string]string{"app": "db"}, Ports: []policy.ServicePort{{Protocol: policy.TCP, Port: port, Target: target}}}
	}
	w.Services = map[netip.Addr]*policy.Service{netip.MustParseAddr("10.96.0.20"): at("db", 5432, 5432), netip.MustParseAddr("10.96.0.21"): at("db-admin", 80, 8080)}
}

// ClusterWorld is a node with two pods and nothing but what AddClusterPolicies adds.
func ClusterWorld(networks string) *World {
	w := New("node-1")
	w.Input.Pods = []policy.Pod{Pod("shop", "cart-7d9f", "10.1.0.10", nil, "app=cart"), Pod("shop", "batch", "10.1.0.12", func(p *policy.Pod) { p.SecondInterfaces = true })}
	w.Open, w.Flows = nil, map[policy.PodRef][]audit.Flow{}
	w.AddClusterPolicies(networks)
	return w
}

// AddClusterPolicies adds a policy of both kinds that select all pods, one of them with a part that cannot be
// read, what they opened and denied, and their lines. The networks are more destinations of the first rule.
func (w *World) AddClusterPolicies(networks string) {
	text := `
metadata: {name: no-pastes}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress:
  - {name: pastes, action: Deny, matches: [{pattern: "**.paste.test"}], networks: [` + networks + `]}
  - {name: registry, action: Accept, matches: [{name: registry.test}]}
`
	var ours v1alpha1.ClusterFQDNNetworkPolicy
	must(yaml.UnmarshalStrict([]byte(text), &ours))
	standard := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "standard-rest"},
		"spec": map[string]any{
			"tier": "Baseline", "priority": int64(7), "subject": map[string]any{"namespaces": map[string]any{}},
			"egress": []any{map[string]any{"action": "Deny", "to": []any{map[string]any{"networks": []any{"0.0.0.0/0", "::/0"}}}}},
		},
	}}
	w.Input.ClusterPolicies, w.Input.ClusterNetworkPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{&ours}, []*unstructured.Unstructured{standard}
	w.Compile()
	cart := w.Input.Pods[0].PodRef
	w.Open = append(w.Open, []policy.GrantInfo{
		{Pod: cart, Addr: netip.MustParseAddr("203.0.113.5"), Ports: "any", Name: policytest.Name("registry.test"), Until: Noon.Add(time.Minute), By: "no-pastes registry.test,shop/base registry.test"},
		{Pod: cart, Addr: netip.MustParseAddr("203.0.113.6"), Ports: "any", Name: policytest.Name("gone.test"), Until: Noon.Add(time.Minute), By: "no-gone gone.test"},
	}...)
	w.Status.Problems = append(w.Status.Problems, w.Snap.Problems...)
	w.Flows[cart] = append([]audit.Flow{{
		Time: Noon, Last: Noon, Pod: cart, Protocol: policy.TCP, Dialled: netip.MustParseAddrPort("203.0.113.5:443"), Reason: audit.ReasonRule,
		Rule: w.Snap.ViewOf(cart).Rules.Admin[0], Count: 3,
	}}, w.Flows[cart]...)
	match := func(id string) string {
		return `{"policy":"` + id + `","path":"spec.egress[0].matches[0]","match":"**.no-match.test"}`
	}
	w.Recent = append(w.Recent, strings.Replace(Line(0, "shop/cart-7d9f", "allowed"), `,"rcode"`, `,"matches":[`+match("no-pastes")+`,`+match("shop/base")+`],"rcode"`, 1)+
		strings.Replace(strings.Replace(Line(1, "shop/cart-7d9f", "denied"), `"policies":["shop/base"]`, `"policies":["no-pastes","clusternetworkpolicy:standard-rest","shop/base"]`, 1),
			`{"name":"own.test",`, `{"name":"own.test","match":`+match("no-pastes")+`,`, 1)+
		strings.Replace(Line(2, "shop/cart-7d9f", "denied"), `"reason"`, `"tier":"Admin","policy":"no-pastes","rule":"pastes of no-pastes","reason"`, 1)+
		Line(3, "shop/cart-7d9f", "denied")...)
}

// Line is a line of the audit log: of a pod at a second after noon. The pod dialled an address if the verdict is
// that of a connection, for a name of its own and one that a pod of pay asked for.
func Line(second int, pod, verdict string) string {
	ns, name, _ := strings.Cut(pod, "/")
	at := Noon.Add(time.Duration(second) * time.Second).Format(time.RFC3339)
	if verdict == "denied" || verdict == "would-deny" {
		return fmt.Sprintf(`{"v":1,"kind":"flow","time":%q,"node":"node-1","verdict":%q,"pod":{"namespace":%q,"name":%q,"ip":"10.1.0.10"},"protocol":"tcp","destination":{"address":"203.0.113.7","port":443},`+
			`"names":[{"name":"own.test","asked":"2026-05-01T11:59:00Z"},{"name":"secret.pay.test","asked":"2026-05-01T11:59:00Z","pod":"pay/cart-7d9f"}],"reason":"another","policies":["shop/base"],"count":1}`+"\n", at, verdict, ns, name)
	}
	return fmt.Sprintf(`{"v":1,"kind":"dns","time":%q,"node":"node-1","verdict":%q,"pod":{"namespace":%q,"name":%q,"ip":"10.1.0.10"},"question":{"name":"x%d.test","type":"A","class":"IN"},"rcode":"NOERROR","latency_us":1,"protocol":"udp"}`+"\n", at, verdict, ns, name, second)
}

// IngressLine is a denied connection from a pod of pay to one of shop.
const IngressLine = `{"v":1,"kind":"flow","time":"2026-05-01T12:00:00.250000Z","node":"node-1","verdict":"denied","direction":"ingress","pod":{"namespace":"shop","name":"cart-7d9f","ip":"10.1.0.10"},` +
	`"protocol":"tcp","source":{"address":"10.1.0.20","pod":"pay/cart-7d9f"},"destination":{"address":"10.1.0.10","port":8080},"reason":"isolated","policies":["shop/closed"],"count":1}` + "\n"

// HostLine is a denied connection of a process of the node.
const HostLine = `{"v":1,"kind":"flow","time":"2026-05-01T12:00:00.250000Z","node":"node-1","verdict":"would-deny","host":{"uid":42,"gid":7,"ip":"192.0.2.7"},` +
	`"protocol":"tcp","destination":{"address":"198.51.100.80","port":80},"names":[{"name":"mirror.test","pod":"node node-1"}],"reason":"rule","tier":"Admin","policy":"nodenetworkpolicy:workers","rule":"rest","count":1}` + "\n"

// Busy is a status with everything that a status may say.
func Busy() console.Status {
	return console.Status{
		Node: "node-1", Version: "v9", Snapshot: 7, Dataplane: stats.Dataplane{Name: "iptables", Variant: "nft", Reason: "iptables and ipset work on this node"}, Failing: "apply chains: the kernel is full",
		Files:    []manifest.FileError{{File: "/etc/namegate/manifests/a.yaml", Reason: "line 3: no colon", Since: Noon}},
		Problems: []policy.Problem{{Object: "policy shop/base", Reason: policy.ReasonPartiallyInvalid, Path: "spec.egress[0].matches[0]", Message: "a bell \a and \x1b[31mred"}},
		Away:     &console.Away{Since: Noon, Error: "connection refused"}, Paths: []console.FailedPath{{Pod: "shop/cart-7d9f", Path: "dropped"}},
		Enforcer: stats.Enforcer{
			Selected: 3, Grants: 12, Homeless: []netip.Addr{netip.MustParseAddr("10.1.0.10")}, Unseen: []netip.Addr{netip.MustParseAddr("10.1.0.11")},
			Switched: map[netip.Addr]string{netip.MustParseAddr("10.1.0.12"): "br-int"},
			Serving: map[netip.Addr]netip.Addr{
				netip.MustParseAddr("192.0.2.53"): netip.MustParseAddr("169.254.20.64"), netip.MustParseAddr("10.96.0.10"): netip.MustParseAddr("169.254.20.65"),
			},
			Intercepting: true, PeerSets: 2, PeerEntries: 40, Bypassing: []netip.Addr{netip.MustParseAddr("10.1.0.11")}, DroppedTCP: []netip.Addr{netip.MustParseAddr("10.1.0.12")},
			NotCut: []string{"udp 10.1.0.10:4000 to 192.0.2.1:443"}, UnreadTables: []string{"read nft table ip other: chain a, rule with handle 7: revision 9 of MARK is not known"},
		},
		Enforce: console.EnforceAll, NetworkPolicies: 3, RemotePods: 38,
		Proxy: stats.Proxy{Counters: stats.Counters[uint64]{CacheHits: 31, CacheMisses: 12, CacheStale: 3, Prefetches: 4, Followed: 5, ShedPod: 6, ShedAll: 7}, ShedZone: 8},
		Flows: []console.FlowTotal{{Direction: "egress", Verdict: "denied", Reason: "rule", Tier: "Admin", Count: 7}, {Direction: "egress", Verdict: "denied", Reason: "unmatched", Tier: "Namespace", Count: 12},
			{Direction: "egress", Verdict: "denied", Reason: "address", Tier: "Namespace"}, {Direction: "egress", Verdict: "would-deny", Reason: "ports", Tier: "Namespace", Count: 3},
			{Direction: "ingress", Verdict: "denied", Reason: "isolated", Tier: "Namespace", Count: 4}},
		Audit: &console.AuditStatus{Written: 9, Dropped: 1},
	}
}

// ErrAway is the error of an agent that cannot be reached.
var ErrAway = &console.Unreachable{Err: errors.New("no agent answers at 192.0.2.2:9954")}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
