package explain

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// The pods of the cluster beside cart, and its Services.
var (
	db1     = remote("db-1", "10.2.0.5", map[string]string{"app": "db", "pod-template-hash": "1"}, policy.NamedPort{Name: "pg", Protocol: policy.TCP, Port: 5432})
	db2     = remote("db-2", "10.2.0.6", map[string]string{"app": "db"}, policy.NamedPort{Name: "pg", Protocol: policy.TCP, Port: 5433})
	other   = remote("other", "10.2.0.7", map[string]string{"app": "other"})
	bare    = remote("bare", "10.2.0.8", nil)
	hidden  = policy.Pod{PodRef: policy.PodRef{Namespace: "pay", Name: "ledger"}, Labels: map[string]string{"app": "ledger"}, IPs: []netip.Addr{netip.MustParseAddr("10.2.0.9")}}
	onHost  = policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: "node-exporter"}, Labels: map[string]string{"app": "exporter"}, IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, HostNetwork: true}
	tcp     = policy.TCP
	service = func(name string, selector map[string]string, ports ...policy.ServicePort) *policy.Service {
		return &policy.Service{Ref: policy.ServiceRef{Namespace: "shop", Name: name}, Selector: selector, Ports: ports}
	}
)

func remote(name, addr string, labels map[string]string, ports ...policy.NamedPort) policy.Pod {
	return policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: name}, Labels: labels, NodeName: "node-2", IPs: []netip.Addr{netip.MustParseAddr(addr)}, Ports: ports}
}

// rule is what one rule of the NetworkPolicy shop/db-out allows.
func rule(kind policy.PeerKind, key string, ports policy.PortSet, i string) *policy.Rule {
	return &policy.Rule{Peer: policy.Peer{Kind: kind, Key: key}, Ports: ports, Policy: "shop/db-out", Path: "spec.egress[" + i + "]"}
}

// beside gives the pod of facts a NetworkPolicy with rules, in a cluster.
func beside(f *Facts, rules ...*policy.Rule) {
	addr := netip.MustParseAddr
	f.Snapshot = &policy.Snapshot{PeerSets: []*policy.PeerSet{
		{Peer: policy.Peer{Kind: policy.PeerPods, Key: "shop: app=db"}, Addrs: []netip.Addr{addr("10.2.0.5"), addr("10.2.0.6")}},
		{Peer: policy.Peer{Kind: policy.PeerPods, Key: "shop: half"}, Addrs: []netip.Addr{addr("10.2.0.5")}},
		{Peer: policy.Peer{Kind: policy.PeerNetworks, Key: "198.51.100.0/24"}, Networks: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}},
		{Peer: policy.Peer{Kind: policy.PeerPorts, Key: "pg TCP shop: app=db"}, Ports: []policy.PeerPort{{Addr: addr("10.2.0.5"), Protocol: tcp, Port: 5432}, {Addr: addr("10.2.0.6"), Protocol: tcp, Port: 5433}}},
	}}
	view := *f.View
	view.NetworkPolicies = nil
	view.Rules.Namespace = slices.DeleteFunc(slices.Clone(view.Rules.Namespace), func(r *policy.Rule) bool { return r.Peer.Kind != policy.PeerNames })
	view.Rules.Namespace = append(view.Rules.Namespace, rules...)
	if len(rules) > 0 {
		view.NetworkPolicies = []string{"shop/db-out"}
	}
	f.View = &view
	all := []policy.Pod{f.Pod, db1, db2, other, bare, hidden, onHost}
	f.Pods = func(yield func(*policy.Pod) bool) {
		for i := range all {
			if !yield(&all[i]) {
				return
			}
		}
	}
	f.Services = map[netip.Addr]*policy.Service{
		addr("10.96.0.5"):  service("db", map[string]string{"app": "db"}, policy.ServicePort{Protocol: tcp, Port: 80, TargetName: "pg"}, policy.ServicePort{Protocol: tcp, Port: 81, Target: 9187}),
		addr("10.96.0.6"):  service("empty", map[string]string{"app": "nobody"}, policy.ServicePort{Protocol: tcp, Port: 80, Target: 80}),
		addr("10.96.0.7"):  service("api", nil, policy.ServicePort{Protocol: tcp, Port: 443, Target: 6443}),
		addr("10.96.0.8"):  service("self", map[string]string{"app": "cart"}, policy.ServicePort{Protocol: tcp, Port: 80, Target: 8080}),
		addr("10.96.0.9"):  service("exporter", map[string]string{"app": "exporter"}, policy.ServicePort{Protocol: tcp, Port: 9100, Target: 9100}),
		addr("10.96.0.11"): {Ref: policy.ServiceRef{Namespace: "pay", Name: "ledger"}, Selector: map[string]string{"app": "ledger"}, Ports: []policy.ServicePort{{Protocol: tcp, Port: 80, Target: 80}}},
	}
}

const denies = "no match of the pod's policies covers the name"

func TestPeers(t *testing.T) {
	const nobody = "no pod of this node resolved the address lately: the pod dials it as an address, or learnt it elsewhere"
	const behindDB = "NetworkPolicies are judged on what is really reached: behind the Service shop/db, tcp/80 leads to the port called pg of its pods"
	podsAny, half := rule(policy.PeerPods, "shop: app=db", policy.AnyPort, "0"), rule(policy.PeerPods, "shop: half", policy.AnyPort, "0")
	pods, named := rule(policy.PeerPods, "shop: app=db", "tcp/5432", "0"), rule(policy.PeerPorts, "pg TCP shop: app=db", policy.AnyPort, "1")
	nets, everywhere := rule(policy.PeerNetworks, "198.51.100.0/24", "tcp/443", "2"), rule(policy.PeerAnywhere, "", "tcp/443", "3")
	claimed := func(f *Facts) {
		a := netip.MustParseAddr("198.51.101.7")
		f.Services[a], f.CountsByName = f.Services[netip.MustParseAddr("10.96.0.5")], func(of netip.Addr) bool { return of != a }
		for _, ports := range []policy.PortSet{"tcp/80", "tcp/443"} {
			f.Open = append(f.Open, policy.GrantInfo{Pod: f.Pod.PodRef, Addr: a, Ports: ports, Name: policytest.Name("www.example.org"), Until: noon.Add(time.Minute), By: "shop/base www.example.org"})
		}
	}
	for _, c := range []struct {
		what, to string
		rules    []*policy.Rule
		facts    func(*Facts)
		verdict  Verdict
		reason   string
		notes    string // in them
		do       string // in it
		manifest string // in the NetworkPolicy; "" for none
	}{
		{what: "a pod", to: "10.2.0.5:5432", rules: []*policy.Rule{pods}, verdict: Allowed, reason: "NetworkPolicy shop/db-out (spec.egress[0]) allows 10.2.0.5"},
		{what: "a pod on another port", to: "10.2.0.5:80", rules: []*policy.Rule{pods}, verdict: Denied, reason: nobody, do: "apply the NetworkPolicy below: the pod may", manifest: "port: 80"},
		{what: "a port by its name", to: "10.2.0.6:5433", rules: []*policy.Rule{named}, verdict: Allowed, reason: "NetworkPolicy shop/db-out (spec.egress[1]) allows 10.2.0.6"},
		{what: "the other pod's number", to: "10.2.0.6:5432", rules: []*policy.Rule{named}, verdict: Denied, reason: nobody, manifest: "port: 5432"},
		{what: "its own address, which a Service leads elsewhere", to: "10.1.0.10:80", rules: []*policy.Rule{nets}, verdict: Denied, reason: nobody, notes: behindDB, manifest: "port: pg", facts: func(f *Facts) { f.Services[f.Pod.IPs[0]] = f.Services[netip.MustParseAddr("10.96.0.5")] }},
		{what: "an open address that a Service leads elsewhere", to: "198.51.101.7:80", rules: []*policy.Rule{nets}, verdict: Denied, manifest: "port: pg",
			reason: "the Service shop/db leads 198.51.101.7 elsewhere, and no policy allows what is reached", notes: "where names do not count", facts: claimed},
		{what: "the same to pods that are allowed", to: "198.51.101.7:80", rules: []*policy.Rule{podsAny}, verdict: Allowed, notes: "where names do not count",
			reason: "NetworkPolicy shop/db-out (spec.egress[0]) allows 198.51.101.7, behind the Service shop/db", facts: claimed},
		{what: "the same on a port that no Service leads on", to: "198.51.101.7:443", rules: []*policy.Rule{nets}, verdict: Allowed,
			reason: "the pod asked for www.example.org, and the address is open on tcp/443 until 2026-05-01T12:01:00Z", facts: claimed},
		{what: "its own address on a port that no Service leads on", to: "10.1.0.10:82", rules: []*policy.Rule{nets}, verdict: Allowed, reason: "10.1.0.10 is the pod itself, which it may always reach", facts: func(f *Facts) { f.Services[f.Pod.IPs[0]] = f.Services[netip.MustParseAddr("10.96.0.5")] }},
		{what: "no port", to: "10.2.0.6", rules: []*policy.Rule{named}, verdict: Allowed, reason: "NetworkPolicy shop/db-out (spec.egress[1]) allows 10.2.0.6"},
		{what: "a network", to: "198.51.100.7:443", rules: []*policy.Rule{nets}, verdict: Allowed, reason: "NetworkPolicy shop/db-out (spec.egress[2]) allows 198.51.100.7"},
		{what: "beside the network", to: "198.51.101.7:443", rules: []*policy.Rule{nets}, verdict: Denied, reason: nobody, do: "if the address itself is meant", manifest: "cidr: 198.51.101.7/32"},
		{what: "everywhere", to: "203.0.113.9:443", rules: []*policy.Rule{everywhere}, verdict: Allowed, reason: "NetworkPolicy shop/db-out (spec.egress[3]) allows 203.0.113.9"},
		{what: "everywhere, a name nobody asked for", to: "bank.test:443", rules: []*policy.Rule{everywhere}, verdict: Allowed, reason: "NetworkPolicy shop/db-out (spec.egress[3]) allows bank.test"},
		{what: "everywhere, another port", to: "bank.test:80", rules: []*policy.Rule{everywhere}, verdict: Denied, reason: denies},
		{
			what: "everywhere, but the question is refused", to: "bank.test:443", rules: []*policy.Rule{everywhere}, verdict: Denied, reason: denies + "; its question gets REFUSED (dns.unmatched: Refuse)",
			facts: func(f *Facts) { v := *f.View; v.Unmatched = policy.Refuse; f.View = &v },
		},
		{
			what: "a name that was answered", to: "far.test:443", rules: []*policy.Rule{nets}, verdict: Allowed, reason: "NetworkPolicy shop/db-out (spec.egress[2]) allows 198.51.100.7, the address of the name",
			facts: func(f *Facts) {
				f.Asked = &recent.Decision{Name: policytest.Name("far.test"), Asked: noon, Answers: []netip.Addr{netip.MustParseAddr("198.51.100.7")}}
			},
		},
		{
			what: "a name that was answered with more", to: "far.test:443", rules: []*policy.Rule{nets}, verdict: Denied,
			reason: "NetworkPolicies allow 1 of the 2 known addresses of the name, and not 198.51.101.8:443/tcp",
			facts: func(f *Facts) {
				f.Asked = &recent.Decision{Name: policytest.Name("far.test"), Asked: noon, Answers: []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("198.51.101.8")}}
			},
		},
		{
			what: "a Service", to: "10.96.0.5:80", rules: []*policy.Rule{named}, verdict: Allowed,
			reason: "NetworkPolicy shop/db-out (spec.egress[1]) allows 10.96.0.5, behind the Service shop/db", notes: behindDB,
		},
		{
			what: "a Service by its name", to: "db.shop.svc.cluster.local:80", rules: []*policy.Rule{podsAny}, verdict: Allowed,
			reason: "NetworkPolicy shop/db-out (spec.egress[0]) allows 10.96.0.5, the address of the name, behind the Service shop/db",
		},
		{
			what: "half of a Service", to: "10.96.0.5:80", rules: []*policy.Rule{half}, verdict: Denied,
			reason: "NetworkPolicies allow 1 of the 2 addresses behind the Service shop/db, and not 10.2.0.6:5433/tcp", notes: behindDB, manifest: "port: pg",
		},
		{what: "the Service's own number is not what counts", to: "10.96.0.5:80", rules: []*policy.Rule{rule(policy.PeerPods, "shop: app=db", "tcp/80", "0")}, verdict: Denied, reason: nobody, manifest: "port: pg"},
		{
			what: "a Service by its name, denied", to: "db.shop.svc.cluster.local:80", verdict: Denied, reason: denies,
			do: addIt + "; or apply the NetworkPolicy below instead: it allows what is really reached, whatever name or Service leads there; " + firstOne, manifest: "kubernetes.io/metadata.name: shop",
		},
		{what: "a Service without a port", to: "10.96.0.5", rules: []*policy.Rule{named}, verdict: Allowed, reason: "NetworkPolicy shop/db-out (spec.egress[1]) allows 10.96.0.5, behind the Service shop/db"},
		{what: "a port that the Service has not", to: "10.96.0.5:99", rules: []*policy.Rule{podsAny}, verdict: Denied, reason: nobody, notes: "the Service shop/db has nothing on tcp/99"},
		{what: "a Service of no pod", to: "10.96.0.6:80", rules: []*policy.Rule{podsAny}, verdict: Denied, reason: nobody, notes: "the Service shop/empty selects no pod", manifest: "app: nobody"},
		{what: "itself behind a Service", to: "10.96.0.8:80", verdict: Allowed, reason: "10.96.0.8 is the pod itself, behind the Service shop/self, which it may always reach"},
		{
			what: "a Service without a selector", to: "10.96.0.7:443", rules: []*policy.Rule{nets}, verdict: Unknown,
			reason: "no name opens it for the pod, and where the Service shop/api leads is not known here: it has no selector, and its EndpointSlices say where connections arrive, which is what NetworkPolicies are judged on",
			do:     "kubectl get endpointslices -n shop -l kubernetes.io/service-name=api",
		},
		{what: "one without a selector, and no rule for TCP", to: "10.96.0.7:443", rules: []*policy.Rule{rule(policy.PeerAnywhere, "", "udp/53", "0")}, verdict: Denied, reason: nobody},
		{
			what: "one without a selector, and a rule for whatever is there", to: "10.96.0.7:443", rules: []*policy.Rule{rule(policy.PeerAnywhere, "", "tcp/6443", "0")}, verdict: Allowed,
			reason: "NetworkPolicy shop/db-out (spec.egress[0]) allows 10.96.0.7, behind the Service shop/api",
		},
		{what: "pods on the host network", to: "10.96.0.9:9100", verdict: Denied, reason: nobody, do: "by an ipBlock with the addresses of their nodes, such as 192.0.2.1"},
		{
			what: "pods of other nodes are not known", to: "10.2.0.99:5432", rules: []*policy.Rule{pods}, verdict: Unknown, facts: func(f *Facts) { f.OtherPods = "they are being read" },
			reason: "no name opens it for the pod, and whether 10.2.0.99 is a pod that NetworkPolicies allow is unknown: they are being read", do: "if 10.2.0.99 is a pod's, allow that by its labels", manifest: "10.2.0.99/32",
		},
		{what: "they are not known, and no rule is about pods", to: "10.2.0.99:5432", rules: []*policy.Rule{nets}, verdict: Denied, reason: nobody, facts: func(f *Facts) { f.OtherPods = "nobody needs them" }, manifest: "10.2.0.99/32"},
		{
			what: "pods of other nodes behind a Service are not known", to: "10.96.0.5:80", rules: []*policy.Rule{named}, verdict: Unknown, facts: func(f *Facts) { f.OtherPods = "they are being read" },
			reason: "no name opens it for the pod, and the pods of other nodes behind the Service shop/db are not known: they are being read", manifest: "app: db",
		},
		{
			what: "pods of other namespaces are not read", to: "10.2.0.99:5432", rules: []*policy.Rule{pods}, verdict: Denied, facts: func(f *Facts) { f.OtherNamespaces = []string{"shop"} },
			reason: nobody, do: "if 10.2.0.99 is a pod's, allow that by its labels", manifest: "10.2.0.99/32",
		},
		{
			what: "a Service of a namespace that is not read", to: "10.96.0.6:80", rules: []*policy.Rule{podsAny}, verdict: Denied, facts: func(f *Facts) { f.OtherNamespaces = []string{"pay"} },
			reason: nobody, notes: "judged on what is really reached: behind the Service shop/empty", manifest: "app: nobody",
		},
		{
			what: "a Service of a namespace that is not read, and a network", to: "10.96.0.6:80", rules: []*policy.Rule{rule(policy.PeerNetworks, "198.51.100.0/24", "tcp/80", "0")}, verdict: Unknown,
			facts:    func(f *Facts) { f.OtherNamespaces = []string{"pay"} },
			reason:   "no name opens it for the pod, and the pods of other nodes behind the Service shop/empty are not known: no NetworkPolicy for pods of this node leads to the namespace's pods, so the agent does not read them",
			manifest: "app: nobody",
		},
		{
			what: "no namespace is read", to: "10.96.0.6:80", rules: []*policy.Rule{rule(policy.PeerNetworks, "198.51.100.0/24", "tcp/80", "0")}, verdict: Unknown,
			facts:    func(f *Facts) { f.OtherNamespaces = []string{} },
			reason:   "no name opens it for the pod, and the pods of other nodes behind the Service shop/empty are not known: no NetworkPolicy for pods of this node leads to the namespace's pods, so the agent does not read them",
			manifest: "app: nobody",
		},
		{
			what: "a Service of a namespace that is read", to: "10.96.0.5:80", rules: []*policy.Rule{named}, verdict: Allowed, facts: func(f *Facts) { f.OtherNamespaces = []string{"shop"} },
			reason: "NetworkPolicy shop/db-out (spec.egress[1]) allows 10.96.0.5, behind the Service shop/db", notes: behindDB,
		},
		{what: "a pod without labels", to: "10.2.0.8:80", verdict: Denied, reason: nobody, do: "give the pod shop/bare a label"},
		{what: "a pod that may not be seen", to: "10.2.0.9:80", verdict: Denied, reason: nobody, do: "ask who runs it for its labels", facts: func(f *Facts) { f.Sees = func(ns string) bool { return ns == "shop" } }},
		{what: "a Service that may not be seen", to: "10.96.0.11:80", verdict: Denied, reason: nobody, do: "behind a Service allows this too", facts: func(f *Facts) { f.Sees = func(ns string) bool { return ns == "shop" } }},
		{what: "a node", to: "192.0.2.200:10250", verdict: Denied, reason: nobody, facts: func(f *Facts) { f.Inside = "node" }, manifest: "cidr: 192.0.2.200/32"},
		{what: "ICMP to a pod", to: "10.2.0.5/icmp", rules: []*policy.Rule{podsAny}, verdict: Allowed, reason: "NetworkPolicy shop/db-out (spec.egress[0]) allows 10.2.0.5"},
		{what: "ICMP, and a rule with ports", to: "10.2.0.5/icmp", rules: []*policy.Rule{pods}, verdict: Denied, reason: nobody, manifest: "app: db"},
		{what: "ICMP to a Service goes on to no pod", to: "10.96.0.5/icmp", rules: []*policy.Rule{podsAny}, verdict: Denied, reason: nobody, notes: "it leads TCP, UDP and SCTP on"},
		{
			what: "an open name comes first", to: "www.example.org:443", rules: []*policy.Rule{everywhere}, verdict: Allowed, reason: "the pod asked for the name, and 1 address is open on tcp/443 until 2026-05-01T12:01:00Z",
			facts: func(f *Facts) {
				f.Open = []policy.GrantInfo{{Pod: f.Pod.PodRef, Addr: netip.MustParseAddr("192.0.2.1"), Ports: "tcp/443", Name: policytest.Name("www.example.org"), Until: noon.Add(time.Minute)}}
			},
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			f := about(t, cart(), manifests(t, base))
			beside(&f, c.rules...)
			if c.facts != nil {
				c.facts(&f)
			}
			e := Explain(Question{To: target(t, c.to)}, f)
			notes, do, manifest := strings.Join(e.Notes, "; "), "", ""
			if e.Advice != nil {
				do, manifest = strings.Join(e.Advice.Do, "; "), e.Advice.NetworkPolicy
			}
			if e.Verdict != c.verdict || e.Reason != c.reason || !strings.Contains(notes, c.notes) || !strings.Contains(do, c.do) {
				t.Errorf("%s: %s\nnotes: %s\ndo: %s", e.Verdict, e.Reason, notes, do)
			}
			if (manifest == "") != (c.manifest == "") || !strings.Contains(manifest, c.manifest) {
				t.Errorf("the NetworkPolicy is\n%s", manifest)
			}
		})
	}
}

// TestPeersListed: the rules that lead to the target are listed, with its objects, also
// those for other ports; at most as many as the bound.
func TestPeersListed(t *testing.T) {
	f := about(t, cart(), manifests(t, base))
	beside(&f, rule(policy.PeerPods, "shop: app=db", "tcp/5432", "0"), rule(policy.PeerPorts, "pg TCP shop: app=db", policy.AnyPort, "1"), rule(policy.PeerAnywhere, "", "udp/53", "2"))
	e := Explain(Question{To: target(t, "10.96.0.5:80")}, f)
	var got []string
	for _, p := range e.Peers {
		on := "no"
		if p.OnPort {
			on = "yes"
		}
		got = append(got, strings.Join([]string{p.Path, p.Peer, p.Address, p.Pod, p.Ports, on}, " "))
	}
	want := []string{
		"spec.egress[0] shop: app=db 10.2.0.5 shop/db-1 tcp/5432 yes", "spec.egress[1] pg TCP shop: app=db 10.2.0.5 shop/db-1 tcp/5432 yes", "spec.egress[2] everywhere 10.2.0.5 shop/db-1 udp/53 no",
		"spec.egress[1] pg TCP shop: app=db 10.2.0.6 shop/db-2 tcp/5433 yes", "spec.egress[0] shop: app=db 10.2.0.6 shop/db-2 tcp/5432 no", "spec.egress[2] everywhere 10.2.0.6 shop/db-2 udp/53 no",
	}
	if !slices.Equal(got, want) || !slices.Equal(e.NetworkPolicies, []string{"shop/db-out"}) {
		t.Errorf("listed are %v\n%s", e.NetworkPolicies, strings.Join(got, "\n"))
	}
	var many []*policy.Rule
	for range 3 * maxPeers {
		many = append(many, rule(policy.PeerAnywhere, "", policy.AnyPort, "0"))
	}
	beside(&f, many...)
	if e := Explain(Question{To: target(t, "10.2.0.5:80")}, f); len(e.Peers) != maxPeers {
		t.Errorf("%d rules are listed", len(e.Peers))
	}
}

// TestAdvisedNetworkPolicy: an API server accepts it, its name is free, and its selector
// is the one of an advised policy.
func TestAdvisedNetworkPolicy(t *testing.T) {
	f := about(t, cart(), manifests(t, base))
	beside(&f)
	for _, taken := range []string{"allow-db", "allow-db-2"} {
		p := &networkingv1.NetworkPolicy{}
		p.Namespace, p.Name = "shop", taken
		f.NetworkPolicies = append(f.NetworkPolicies, p)
	}
	e := Explain(Question{To: target(t, "10.96.0.5:80")}, f)
	if e.Advice == nil {
		t.Fatalf("%+v", e)
	}
	const want = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: allow-db-3
  namespace: shop
spec:
  podSelector:
    matchLabels:
      app: cart
  egress:
  - ports:
    - protocol: TCP
      port: pg
    to:
    - podSelector:
        matchLabels:
          app: db
      namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: shop
  policyTypes:
  - Egress
`
	diff.Equal(t, want, e.Advice.NetworkPolicy, "written is")
	var p networkingv1.NetworkPolicy
	if err := yaml.UnmarshalStrict([]byte(e.Advice.NetworkPolicy), &p); err != nil {
		t.Error(err)
	}
}

// TestAuditedBesideNetworkPolicy: the pod is denied nothing; the message is about the
// would-be verdict.
func TestAuditedBesideNetworkPolicy(t *testing.T) {
	for to, want := range map[string]Verdict{"10.2.0.5:5432": Allowed, "10.2.0.7:5432": WouldDeny, "10.96.0.5:80": Allowed} {
		f := about(t, cart(), manifests(t, watch))
		beside(&f, rule(policy.PeerPods, "shop: app=db", policy.AnyPort, "0"))
		e := Explain(Question{To: target(t, to)}, f)
		audit := e.Advice != nil && slices.ContainsFunc(e.Advice.Do, func(s string) bool { return strings.Contains(s, "knows no Audit") })
		if e.Verdict != want || audit != (want == WouldDeny) {
			t.Errorf("%s: %s: %s, %+v", to, e.Verdict, e.Reason, e.Advice)
		}
	}
}

// TestUnseenBehindServices: of a Service in a namespace that the caller may not see, the answer tells
// neither the addresses of its pods nor their ports.
func TestUnseenBehindServices(t *testing.T) {
	second := hidden
	second.Name, second.IPs = "ledger-2", []netip.Addr{netip.MustParseAddr("10.2.0.10")}
	for _, c := range []struct {
		what    string
		target  policy.ServicePort
		reached []netip.Addr // by the NetworkPolicy
		verdict Verdict
	}{
		{"all are allowed", policy.ServicePort{Protocol: tcp, Port: 80, Target: 8443}, []netip.Addr{hidden.IPs[0], second.IPs[0]}, Allowed},
		{"one is allowed", policy.ServicePort{Protocol: tcp, Port: 80, Target: 8443}, hidden.IPs, Denied},
		{"none is allowed", policy.ServicePort{Protocol: tcp, Port: 80, Target: 8443}, nil, Denied},
		{"no pod has the port", policy.ServicePort{Protocol: tcp, Port: 80, TargetName: "books"}, nil, Denied},
	} {
		for _, sees := range []bool{true, false} {
			f := about(t, cart(), manifests(t, base))
			beside(&f, rule(policy.PeerPods, "shop: half", policy.AnyPort, "0"))
			f.Snapshot.PeerSets[1].Addrs = c.reached
			f.Services[netip.MustParseAddr("10.96.0.11")].Ports[0] = c.target
			f.Pods = slices.Values(append(slices.Collect(f.Pods), &second))
			f.Sees = func(ns string) bool { return sees || ns == "shop" }
			e := Explain(Question{To: target(t, "10.96.0.11:80")}, f)
			text, err := json.Marshal(e)
			fatal.If(t, err)
			told := slices.ContainsFunc([]string{"10.2.0.9", "10.2.0.10", "8443", "books", "ledger"}, func(secret string) bool { return strings.Contains(string(text), secret) })
			if e.Verdict != c.verdict || told != sees {
				t.Errorf("%s, seen %t: %s", c.what, sees, text)
			}
		}
	}
}
