package proxy

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// standardOnly is the snapshot of the lab's pod strict under a ClusterNetworkPolicy with rules,
// and further policies.
func standardOnly(t testing.TB, spec string, more func(*compile.Input)) *policy.Snapshot {
	t.Helper()
	p := &unstructured.Unstructured{}
	fatal.If(t, yaml.Unmarshal([]byte("metadata: {name: standard}\nspec: {priority: 1, subject: {namespaces: {}}, "+spec+"}"), &p.Object))
	in := compile.Input{Namespaces: map[string]map[string]string{"shop": {}}, Pods: labPods[2:3], ClusterNetworkPolicies: []*unstructured.Unstructured{p}}
	if more != nil {
		more(&in)
	}
	snap := compile.New().Compile(in)
	if len(snap.Problems) > 0 {
		t.Fatalf("problems: %v", snap.Problems)
	}
	return snap
}

// withNetworkPolicy adds a NetworkPolicy with rules for egress.
func withNetworkPolicy(t testing.TB, egress string) func(*compile.Input) {
	return func(in *compile.Input) {
		p := new(networkingv1.NetworkPolicy)
		fatal.If(t, yaml.Unmarshal([]byte("metadata: {name: np, namespace: shop}\nspec: {policyTypes: [Egress], egress: ["+egress+"]}"), p))
		in.NetworkPolicies = []*networkingv1.NetworkPolicy{p}
	}
}

// The lab's resolver is the Service 10.96.0.10 with the pod 10.1.0.53. Pods that dial it come to
// the address endpoint.
const (
	onDNS      = "protocols: [{udp: {destinationPort: {number: 53}}}, {tcp: {destinationPort: {number: 53}}}]"
	everything = "{name: all, action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}"
	service    = "{action: Accept, to: [{networks: [10.96.0.10/32]}], " + onDNS + "}"
	behindIt   = "{action: Accept, to: [{networks: [10.1.0.53/32]}], " + onDNS + "}"
	notBehind  = "{name: pod, action: Deny, to: [{networks: [10.1.0.53/32]}]}"
)

func resolverAt(endpoints ...string) Cluster {
	c := labCluster
	r := policy.Resolver{ClusterIPs: addrsOf("10.96.0.10")}
	for _, e := range endpoints {
		r.Endpoints = append(r.Endpoints, netip.MustParseAddrPort(e))
	}
	c.Resolvers = map[policy.ServiceRef]policy.Resolver{{Namespace: "kube-system", Name: "kube-dns"}: r}
	return c
}

func resolverLab(t testing.TB) *cacheLab {
	l := newCacheLab(t, map[string][]string{"www.test A": {"www.test. 600 IN A 192.0.2.1"}})
	l.s.dialled.of = func(local netip.Addr) netip.Addr {
		if local == endpoint {
			return mustAddr("10.96.0.10")
		}
		return local
	}
	l.s.SetCluster(resolverAt("10.1.0.53:53", "10.1.0.54:53"))
	return l
}

// TestDialledResolver: where no policy of our kinds selects the pod, the policies of the standards
// decide whether it may ask the resolver.
func TestDialledResolver(t *testing.T) {
	np := func(egress string) func(*compile.Input) { return withNetworkPolicy(t, egress) }
	fqdn := func(enforcement string) func(*compile.Input) {
		return func(in *compile.Input) {
			in.Policies = policiesOf(t, "metadata: {name: ours, namespace: shop}\nspec: {podSelector: {}, egress: [{matches: [{name: a.test}]}], enforcement: "+enforcement+"}")
		}
	}
	cluster := func(enforcement string) func(*compile.Input) {
		return func(in *compile.Input) {
			in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{clusterPolicy(t, "ours",
				"tier: Baseline, priority: 1, egress: [{action: Accept, matches: [{name: a.test}]}], enforcement: "+enforcement)}
		}
	}
	for _, c := range []struct {
		name, rules string
		more        func(*compile.Input)
		udp, tcp    string // the rule that denies, "" for answered
	}{
		{"everything is denied", everything, nil, "all", "all"},
		{"another destination", "{action: Accept, to: [{networks: [10.1.0.55/32]}], " + onDNS + "}, " + everything, nil, "all", "all"},
		{"the Service", service + ", " + everything, nil, "", ""},
		{"a pod of the Service", behindIt + ", " + everything, nil, "", ""},
		{"a pod, on another port", "{action: Accept, to: [{networks: [10.1.0.53/32]}], protocols: [{udp: {destinationPort: {number: 54}}}]}, " + everything, nil, "all", "all"},
		{"one protocol", "{action: Accept, to: [{networks: [10.1.0.53/32]}], protocols: [{tcp: {destinationPort: {number: 53}}}]}, " + everything, nil, "all", ""},
		{"a pod of two is denied", notBehind, nil, "", ""},
		{"the pods before the Service", notBehind + ", {name: other, action: Deny, to: [{networks: [10.1.0.54/32]}]}, " + service, nil, "other", "other"},
		{"the Service before its pods", service + ", " + notBehind + ", {name: other, action: Deny, to: [{networks: [10.1.0.54/32]}]}", nil, "", ""},
		{"passed, and no further policy", "{action: Pass, to: [{networks: [0.0.0.0/0]}]}, " + everything, nil, "", ""},
		{"passed to a NetworkPolicy that has no rule", "{action: Pass, to: [{networks: [0.0.0.0/0]}]}", np(""), "default", "default"},
		{"passed to a NetworkPolicy that has a rule", "{action: Pass, to: [{networks: [0.0.0.0/0]}]}", np("{to: [{ipBlock: {cidr: 10.1.0.53/32}}]}"), "", ""},
		{"ours enforces", everything, fqdn("Enforce"), "", ""},
		{"ours is for the log", everything, fqdn("Audit"), "all", "all"},
		{"ours of the cluster enforces", everything, cluster("Enforce"), "", ""},
		{"ours of the cluster is for the log", everything, cluster("Audit"), "all", "all"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := resolverLab(t)
			l.s.Publish(standardOnly(t, "tier: Admin, egress: ["+c.rules+"]", c.more))
			for _, tcp := range []bool{false, true} {
				by, why := c.udp, "15 denied by a cluster policy (Admin)"
				if tcp {
					by = c.tcp
				}
				if by == "default" {
					why = "15 no NetworkPolicy allows the resolver"
				}
				l.upstreamAsked()
				r := parsed(t, l.decidedAgain(strictPod, packed(t, withOPT(newQuery("www.test", dns.TypeA))), tcp))
				rec := l.lines.all[0]
				if by == "" {
					if r.Rcode != dns.RcodeSuccess || len(r.Answer) != 1 || rec.Verdict == audit.Refused {
						t.Errorf("TCP %v: %v, logged %v", tcp, r, rec.Verdict)
					}
					continue
				}
				if r.Rcode != dns.RcodeRefused || len(r.Answer) > 0 || reason(r) != why || rec.Verdict != audit.Refused || rec.Rcode != dns.RcodeRefused || rec.Would != audit.None {
					t.Errorf("TCP %v: %v, logged %v would %v", tcp, r, rec.Verdict, rec.Would)
				}
				if d := rec.Rule; by == "default" && d != nil || by != "default" && (d == nil || d.Tier != policy.Admin || d.Policy != "clusternetworkpolicy:standard" || d.Name != by) {
					t.Errorf("TCP %v: denied by %+v, want %s", tcp, d, by)
				}
				diff.Equal(t, 0, l.upstreamAsked(), "questions to the upstream; TCP", tcp)
			}
		})
	}
}

// TestDialledResolverOfKeptReplies: a reply that is kept is not given where the pods behind the
// resolver or the peers have changed, or the address that is asked is another.
func TestDialledResolverOfKeptReplies(t *testing.T) {
	l := resolverLab(t)
	snap := standardOnly(t, "tier: Admin, egress: ["+behindIt+", "+everything+"]", nil)
	l.s.Publish(snap)
	ask := func() (rcode int, hit bool) {
		r, hit := l.any(strictPod, newQuery("www.test", dns.TypeA))
		return r.Rcode, hit
	}
	for range 3 {
		ask()
	}
	if rcode, hit := ask(); rcode != dns.RcodeSuccess || !hit {
		t.Fatalf("%s, from the packet cache: %v", dns.RcodeToString[rcode], hit)
	}
	l.s.SetCluster(resolverAt("10.1.0.54:53"))
	if rcode, hit := ask(); rcode != dns.RcodeRefused || hit {
		t.Errorf("other pods: %s, from the packet cache: %v", dns.RcodeToString[rcode], hit)
	}
	l.s.SetCluster(resolverAt("10.1.0.53:53"))
	if rcode, _ := ask(); rcode != dns.RcodeSuccess {
		t.Errorf("the pods again: %s", dns.RcodeToString[rcode])
	}
	ask()
	other, version := *snap, l.s.version.Load()
	other.PeerSets = append(slices.Clip(snap.PeerSets), &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerPods, Key: "other"}})
	l.s.Publish(&other)
	if rcode, hit := ask(); rcode != dns.RcodeSuccess || !hit || l.s.version.Load() != version {
		t.Errorf("other peers that do not matter: %s, from the packet cache: %v", dns.RcodeToString[rcode], hit)
	}
	moved := *snap // the same view
	moved.PeerSets = slices.Clone(snap.PeerSets)
	for i, p := range moved.PeerSets {
		if p.Contains(mustAddr("10.1.0.53"), policy.UDP, 53) && !p.Contains(mustAddr("192.0.2.1"), policy.UDP, 53) {
			moved.PeerSets[i] = &policy.PeerSet{Peer: p.Peer}
		}
	}
	l.s.Publish(&moved)
	if rcode, hit := ask(); rcode != dns.RcodeRefused || hit {
		t.Errorf("other peers: %s, from the packet cache: %v", dns.RcodeToString[rcode], hit)
	}
	l.s.Publish(snap)
	l.s.dialled.of = func(local netip.Addr) netip.Addr { return local }
	l.s.SetCluster(resolverAt("10.1.0.53:53"))
	if rcode, hit := ask(); rcode != dns.RcodeRefused || hit {
		t.Errorf("the endpoint: %s, from the packet cache: %v", dns.RcodeToString[rcode], hit)
	}
}

// TestDialledResolverOfOwnQueries: the agent's own queries for a pod go on.
func TestDialledResolverOfOwnQueries(t *testing.T) {
	l := resolverLab(t)
	snap := standardOnly(t, "tier: Admin, egress: [{action: Accept, to: [{domainNames: [www.test]}]}]", withNetworkPolicy(t, ""))
	l.s.Publish(snap)
	fatal.If(t, l.s.WarmNames(context.Background(), snap.Views[0], []fqdn.Name{policytest.Name("www.test")}))
	if len(l.kernel.entries()) != 1 {
		t.Errorf("the kernel has %v", l.kernel.entries())
	}
	if r := parsed(t, l.decidedAgain(strictPod, packed(t, newQuery("www.test", dns.TypeA)), false)); r.Rcode != dns.RcodeRefused {
		t.Errorf("the pod's own query: %v", r)
	}
}

// TestHungProxyDoesNotCallItselfAlive: with one query that hangs the self-query,
// asked each second, gets no answer any more; others have been answered all along.
func TestHungProxyDoesNotCallItselfAlive(t *testing.T) {
	l := newLab(t, labTable)
	var clock atomic.Int64
	l.s.now = func() time.Time { return noon.Add(time.Duration(clock.Load())) }
	h := l.holding()
	at := l.listen()
	t.Cleanup(h.release)
	c := client(t, "udp", "127.0.0.2", at)
	fatal.If(t, c.WriteMsg(newQuery("slow.test", dns.TypeA)))
	<-h.entered
	self := func(most time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), most)
		defer cancel()
		return l.s.SelfQuery(ctx, at)
	}
	limit := longest(l.s.setup.Load().config)
	for now := time.Duration(0); now <= limit; now += time.Second {
		clock.Store(int64(now))
		fatal.If(t, self(time.Minute), "at", now, "busy is taken for hung")
		exchange(t, client(t, "udp", "127.0.0.3", at), newQuery("www.example.org", dns.TypeA))
	}
	for range 3 {
		clock.Add(int64(limit))
		l.s.stuck()
	}
	diff.Is(t, context.DeadlineExceeded, self(200*time.Millisecond), "a hung proxy says")
	h.release()
	if _, err := c.ReadMsg(); err != nil {
		t.Fatal(err)
	}
	if err := self(time.Minute); err != nil {
		t.Errorf("after the end of the query: %v", err)
	}
}

func TestLongestCoversTheConfiguration(t *testing.T) {
	c := *newLab(t, nil).s.setup.Load().config
	before := longest(&c)
	c.GrantTimeout += time.Second
	c.Zones = append(c.Zones, c.Zones[0])
	c.Zones[1].Deadline += time.Second
	diff.Equal(t, 3*time.Second, longest(&c)-before, "longer by")
}
