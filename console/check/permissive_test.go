package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// lists are policies with pods in common, on different ports, and pods of each kind.
const lists = `apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: cart}}
  enforcement: Enforce
  egress:
  - matches: [{name: www.example.org}, {pattern: "*.cdn.test"}]
    ports: [{protocol: TCP, port: 443}]
---
apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: mail, namespace: shop}
spec:
  podSelector: {matchExpressions: [{key: mail, operator: Exists}]}
  enforcement: Enforce
  egress:
  - matches: [{name: smtp.example.org}, {name: www.example.org}]
    ports: [{protocol: TCP, port: 25}, {protocol: TCP, port: 80, endPort: 90}]
---
apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: plain, namespace: shop}
spec:
  podSelector: {matchLabels: {app: plain}}
  enforcement: Enforce
  dns: {encrypted: Deny}
  egress:
  - matches: [{name: www.example.org}, {pattern: "**.cdn.test"}]
---
{apiVersion: v1, kind: Pod, metadata: {name: plain, namespace: shop, labels: {app: plain}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: cart, namespace: shop, labels: {app: cart}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: mail, namespace: shop, labels: {mail: out}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: both, namespace: shop, labels: {app: cart, mail: out}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: none, namespace: shop, labels: {app: db}}}
---
`

// TestPermissiveNetworkPolicy: a NetworkPolicy that opens every address is found, and what the
// finding says to apply makes every answer the one that it was without the NetworkPolicy.
func TestPermissiveNetworkPolicy(t *testing.T) {
	for _, c := range []struct {
		name, pods, rules string
		voids             int // sets of policies
	}{
		{"everything", "{}", "[{}]", 4},
		{"everything for some pods", "{matchLabels: {app: cart}}", "[{}]", 2},
		{"every address, on the port of a list", "{}", "[{ports: [{port: 443}]}]", 3},
		{"every network", "{}", "[{to: [{ipBlock: {cidr: 0.0.0.0/0}}]}]", 4},
		{"every network of IPv6", "{}", `[{to: [{ipBlock: {cidr: "::/0"}}]}]`, 4},
		{"the Internet", "{}", "[{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8, 169.254.169.254/32]}}]}]", 4},
		{"both halves", "{}", "[{to: [{ipBlock: {cidr: 0.0.0.0/1}}]}, {to: [{ipBlock: {cidr: 128.0.0.0/1}}]}]", 4},
		{"every address, on no port of a list", "{}", "[{ports: [{port: 53, protocol: UDP}]}]", 0},
		{"a network", "{}", "[{to: [{ipBlock: {cidr: 192.0.2.0/24}}]}]", 0},
		{"every pod", "{}", "[{to: [{namespaceSelector: {}}]}]", 0},
		{"pods of no list", "{matchLabels: {app: db}}", "[{}]", 0},
	} {
		for _, enforcement := range []string{"Enforce", "Audit"} {
			t.Run(c.name+" "+enforcement, func(t *testing.T) {
				policies := strings.ReplaceAll(lists, "enforcement: Enforce", "enforcement: "+enforcement)
				network := "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: open, namespace: shop}, spec: {podSelector: " + c.pods + ", policyTypes: [Egress], egress: " + c.rules + "}}\n"
				void := voided(manifests(t, policies+network))
				diff.MustEqual(t, c.voids, len(void), "findings", void)
				if c.voids == 0 {
					return
				}
				text := policies + network
				for _, f := range void {
					_, manifest, _ := strings.Cut(f.Message, " apply: ")
					text += "---\n" + manifest + "\n"
				}
				restored := manifests(t, text)
				for _, f := range restored.Lint(Options{ClusterDomain: "cluster.local"}) {
					if f.Severity == Error || f.Reason == explain.PermissiveNetworkPolicy {
						t.Errorf("with what is to be applied: %s", f)
					}
				}
				sameAnswers(t, manifests(t, policies), manifests(t, policies+network), restored)
			})
		}
	}
}

// voided returns the findings about NetworkPolicies that void a list.
func voided(m *Manifests) []Finding {
	return slices.DeleteFunc(m.Lint(Options{ClusterDomain: "cluster.local"}), func(f Finding) bool { return f.Reason != explain.PermissiveNetworkPolicy })
}

// sameAnswers compares the verdicts on connections by name, and to addresses of no name, of every
// pod whose list was void.
func sameAnswers(t *testing.T, want, void, got *Manifests) {
	t.Helper()
	o := Options{ClusterDomain: "cluster.local"}
	open := void.snapshot(inCluster, want.Pods...)
	before, after := want.snapshot(inCluster, want.Pods...), got.snapshot(inCluster, got.Pods...)
	verdicts := map[explain.Verdict]int{}
	for i := range want.Pods {
		pod := &want.Pods[i]
		if explain.Permissive(open.ViewOf(pod.PodRef), open) == nil {
			continue
		}
		for _, name := range []string{"www.example.org", "smtp.example.org", "a.cdn.test", "other.test"} {
			for _, port := range []string{"", ":25", ":80", ":443", ":444", ":443/udp", ":853", "/icmp"} {
				q, err := explain.ParseTarget(name + port)
				fatal.If(t, err)
				a, b := want.ask(pod, q, o, before), got.ask(pod, q, o, after)
				if verdicts[a.Verdict]++; a.Verdict != b.Verdict {
					t.Errorf("%s\nwithout the NetworkPolicy: %s", b, a)
				}
			}
		}
		for _, to := range []string{"203.0.113.7:443", "203.0.113.7:80", "10.1.0.7:25", "[2001:db8::7]:443"} {
			at := netip.MustParseAddrPort(to)
			f := policy.Flow{Protocol: policy.TCP, Dialled: at, Reached: at, Would: true}
			a, _ := policy.Evaluate(before.ViewOf(pod.PodRef), before, &f)
			if b, by := policy.Evaluate(after.ViewOf(pod.PodRef), after, &f); a != b {
				t.Errorf("%s to %s: %v by %+v, without the NetworkPolicy %v", pod.name(), to, b, by, a)
			}
		}
	}
	if verdicts["allowed"] < 10 || len(verdicts) != 2 {
		t.Errorf("verdicts %v", verdicts)
	}
}

// TestPermissiveNetworkPolicyBesideOthers: what else NetworkPolicies open is said, since the
// printed policy closes it; and a list that is too long for one policy is not cut.
func TestPermissiveNetworkPolicyBesideOthers(t *testing.T) {
	network := func(name, rules string) string {
		return "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: " + name + ", namespace: shop}, spec: {podSelector: {}, policyTypes: [Egress], egress: " + rules + "}}\n"
	}
	list := func(rules string) string {
		return "apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: p, namespace: shop}\nspec:\n  podSelector: {}\n  egress:\n" + rules
	}
	void := voided(manifests(t, list("  - matches: [{name: a.test}]\n")+network("open", "[{}]")+network("db", "[{to: [{podSelector: {}}]}]")))
	if len(void) != 1 || !strings.HasSuffix(void[0].Message, "; before its last rule add what NetworkPolicies shop/db are to open") {
		t.Errorf("%q", void)
	}
	long := ""
	for i := range 64 {
		long += fmt.Sprintf("  - {matches: [{name: a%d.test}], ports: [{protocol: TCP, port: %d}]}\n", i, 1000+2*i)
	}
	void = voided(manifests(t, list(long)+network("open", "[{}]")))
	if len(void) != 1 || !strings.HasSuffix(void[0].Message, "to restore the list, write a ClusterFQDNNetworkPolicy of tier Admin that accepts the names and denies the rest") {
		t.Errorf("%q", void)
	}
}
