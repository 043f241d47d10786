package cyclonus

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/matcher"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// The pod that pods ask for names, and its number in the lab. Pods that NetworkPolicies isolate for egress ask the
// agents in its place, others the server in it.
const (
	resolver       = "kube-system/dns"
	resolverNumber = 200
)

// resolved is the answer to every question, the world's and the pod's.
func resolved(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: []byte{198, 51, 100, 7}}}
	return m
}

// dnsPolicies are NetworkPolicies that open DNS, or do not. z/a and z/c are in none, and x/c in one for ingress.
const dnsPolicies = `
metadata: {namespace: "x", name: dns}
spec:
  podSelector: {matchLabels: {pod: a}}
  policyTypes: [Egress]
  egress:
  - to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}, podSelector: {matchLabels: {k8s-app: kube-dns}}}]
    ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
---
metadata: {namespace: "x", name: dns-udp}
spec:
  podSelector: {matchLabels: {pod: b}}
  policyTypes: [Egress, Ingress]
  egress: [{to: [{namespaceSelector: {}}], ports: [{protocol: UDP, port: 53}]}]
---
metadata: {namespace: "x", name: ingress}
spec: {podSelector: {matchLabels: {pod: c}}, policyTypes: [Ingress]}
---
metadata: {namespace: "y", name: nothing}
spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress]}
---
metadata: {namespace: "y", name: its-own}
spec: {podSelector: {matchLabels: {pod: b}}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}
---
metadata: {namespace: "y", name: other-port}
spec:
  podSelector: {matchLabels: {pod: c}}
  policyTypes: [Egress]
  egress: [{to: [{namespaceSelector: {}}], ports: [{protocol: UDP, port: 54}, {protocol: TCP, port: 80}]}]
---
metadata: {namespace: "z", name: block}
spec:
  podSelector: {matchLabels: {pod: b}}
  policyTypes: [Egress]
  egress: [{to: [{ipBlock: {cidr: 10.1.0.192/26}}], ports: [{port: 53}]}]
`

// dns asks the resolver from every pod: where the NetworkPolicies of a pod open the connection, by cyclonus'
// simulation, the agent answers, else it refuses.
func (g *ground) dns(t *testing.T) {
	t.Helper()
	c := newCluster(g, true, false)
	_, err := probe.NewDefaultResources(c, []string{"x", "y", "z"}, []string{"a", "b", "c"}, []int{80}, []corev1.Protocol{corev1.ProtocolTCP}, nil, 60, true, "")
	fatal.If(t, err)
	pods := slices.Sorted(maps.Keys(c.pods))
	_, err = c.CreateNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})
	fatal.If(t, err)
	_, err = c.CreatePod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "dns", Labels: map[string]string{"k8s-app": "kube-dns"}}})
	fatal.If(t, err)
	for text := range strings.SplitSeq(dnsPolicies, "---") {
		np := &networkingv1.NetworkPolicy{}
		fatal.If(t, yaml.Unmarshal([]byte(text), np))
		_, err := c.CreateNetworkPolicy(np)
		fatal.If(t, err)
	}
	fatal.If(t, c.tell())
	rows := map[string]int{}
	for _, pod := range pods {
		for _, at := range []netip.Addr{g.pods[resolver].Addr4, g.pods[resolver].Addr6} {
			for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
				to := c.peer(resolver)
				to.IP = at.String()
				want := dns.RcodeRefused
				if c.says.IsTrafficAllowed(&matcher.Traffic{Source: c.peer(pod), Destination: to, ResolvedPort: 53, Protocol: protocol}).Egress.IsAllowed() {
					want = dns.RcodeSuccess
				}
				rows[dns.RcodeToString[want]]++
				r, err := g.pods[pod].Ask(strings.ToLower(string(protocol)), netip.AddrPortFrom(at, 53), "www.example.org.", dns.TypeA, lab.Limit)
				switch what := fmt.Sprintf("%s asks %s over %s", pod, at, protocol); {
				case err != nil:
					t.Errorf("%s: %v", what, err)
				case r.Rcode != want || len(r.Answer) != 1 && want == dns.RcodeSuccess:
					t.Errorf("%s: cyclonus says %s:\n%s", what, dns.RcodeToString[want], r)
				}
			}
		}
	}
	if t.Logf("DNS by NetworkPolicies alone: %v", rows); rows["NOERROR"] != 19 || rows["REFUSED"] != 17 {
		t.Errorf("%v: other rows than were written", rows)
	}
}
