package netpolicyfor

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	var out T
	fatal.If(t, yaml.UnmarshalStrict([]byte(text), &out))
	return &out
}

func out(t *testing.T, spec string) *v1alpha1.FQDNNetworkPolicy {
	return read[v1alpha1.FQDNNetworkPolicy](t, "metadata: {name: out, namespace: shop}\nspec: "+spec)
}

var addr = netip.MustParseAddr

func net(t *testing.T, namespace, spec string) *networkingv1.NetworkPolicy {
	return read[networkingv1.NetworkPolicy](t, "metadata: {name: np, namespace: "+namespace+"}\nspec: "+spec)
}

const dns = `{"ports":[{"protocol":"UDP","port":53},{"protocol":"TCP","port":53}],"to":[{"ipBlock":{"cidr":"169.254.20.0/24"}},{"ipBlock":{"cidr":"fd5c:7a1e:93b4::/64"}},{"ipBlock":{"cidr":"192.0.2.53/32"}}]}`

// relayed is the same with the port of connections whose server name is required.
var relayed = strings.Replace(dns, "}],", `},{"protocol":"TCP","port":9956}],`, 1)

// rulesOf returns the rules of the one object, without the one for DNS alone.
func rulesOf(t *testing.T, all []*networkingv1.NetworkPolicy) string {
	t.Helper()
	if len(all) == 0 {
		return "nothing"
	}
	var texts []string
	for _, r := range all[0].Spec.Egress {
		text, err := json.Marshal(r)
		fatal.If(t, err)
		texts = append(texts, string(text))
	}
	if len(all) > 1 || texts[0] != dns && texts[0] != relayed {
		t.Fatalf("%d objects, the first with %s", len(all), texts[0])
	}
	if texts[0] == dns {
		texts = texts[1:]
	}
	return strings.Join(texts, " ")
}

// TestPorts: DNS to the endpoint, and the ports of the rules with those to which Services lead.
func TestPorts(t *testing.T) {
	domain, err := fqdn.ParseName("cluster.local")
	fatal.If(t, err)
	services := Services{domain, []*policy.Service{
		{Ref: policy.ServiceRef{Namespace: "shop", Name: "db"}, Ports: []policy.ServicePort{{Protocol: policy.TCP, Port: 80, Target: 8080}, {Protocol: policy.TCP, Port: 81, TargetName: "http"}}},
		{Ref: policy.ServiceRef{Namespace: "shop", Name: "other"}, Ports: []policy.ServicePort{{Protocol: policy.TCP, Port: 80, Target: 9090}}},
	}}
	for spec, want := range map[string]string{
		`{egress: [{matches: [{name: a.test}], ports: [{protocol: TCP, port: 443}, {protocol: UDP, port: 1, endPort: 9}]}]}`: `{"ports":[{"protocol":"TCP","port":443},{"protocol":"UDP","port":1,"endPort":9}]}`,
		`{egress: [{matches: [{name: a.test}], ports: [{protocol: TCP}]}, {matches: [{name: b.test}], ports: [{port: 1}]}]}`: `{"ports":[{"protocol":"TCP"},{"protocol":"UDP","port":1},{"protocol":"SCTP","port":1}]}`,
		`{egress: [{matches: [{name: a.test}]}]}`:                                                           `{}`,
		`{egress: [{matches: [{name: a.test}], ports: [{protocol: TCP, port: 443}], serverName: Require}]}`: relayed,
		`{egress: [{matches: [{name: a.test}], ports: [{protocol: TCP, port: 443}], serverName: Require}, {matches: [{name: b.test}], ports: [{protocol: TCP, port: 80}]}]}`: relayed + ` {"ports":[{"protocol":"TCP","port":80}]}`,
		`{egress: []}`: "nothing",
		`{egress: [{matches: [{name: "a..b"}]}]}`:                                                             "nothing",
		`{enforcement: Audit, egress: [{matches: [{name: a.test}]}]}`:                                         "nothing",
		`{egress: [{matches: [{name: db.shop.svc.cluster.local}], ports: [{protocol: TCP, port: 80}]}]}`:      `{"ports":[{"protocol":"TCP","port":80},{"protocol":"TCP","port":8080}]}`,
		`{egress: [{matches: [{pattern: "d*.shop.svc.cluster.local"}], ports: [{protocol: TCP, port: 81}]}]}`: `{"ports":[{"protocol":"TCP","port":81},{"protocol":"TCP","port":"http"}]}`,
	} {
		if got := rulesOf(t, Of(out(t, spec), services).Beside([]*networkingv1.NetworkPolicy{net(t, "shop", "{policyTypes: [Egress]}")}, Endpoint(addr("192.0.2.53"), addr("169.254.20.53")).Relay(9956))); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", spec, got, want)
		}
	}
}

// TestPortsOfTheCluster: the rules by which the Admin tier accepts, in namespaces that the policy selects.
func TestPortsOfTheCluster(t *testing.T) {
	const accept = "egress: [{action: Accept, matches: [{name: a.test}], ports: [{protocol: TCP, port: 1}]}, {action: Accept, networks: [192.0.2.0/24], ports: [{protocol: TCP, port: 2}]}, " +
		"{action: Pass, matches: [{name: b.test}], ports: [{protocol: TCP, port: 3}]}, {action: Deny, ports: [{protocol: TCP, port: 4}]}]"
	const both = `{"ports":[{"protocol":"TCP","port":1,"endPort":2}]}`
	for spec, want := range map[string]string{
		"{tier: Admin, priority: 1, subject: {namespaces: {}}, " + accept + "}":                                                                  both,
		"{tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {team: a}}}, " + accept + "}":                                            both,
		"{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {}}}, " + accept + "}":                                  both,
		"{tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {team: b}}}, " + accept + "}":                                            "nothing",
		"{tier: Baseline, priority: 1, subject: {namespaces: {}}, " + accept + "}":                                                               "nothing",
		"{tier: Admin, priority: 1, enforcement: Audit, subject: {namespaces: {}}, " + accept + "}":                                              "nothing",
		"{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, matches: [{name: a.test}], networks: [192.0.2.0/24]}]}": `{}`,
	} {
		p := OfCluster(read[v1alpha1.ClusterFQDNNetworkPolicy](t, "metadata: {name: secret}\nspec: "+spec), "shop", map[string]string{"team": "a"}, Services{})
		all := p.Beside([]*networkingv1.NetworkPolicy{net(t, "shop", "{policyTypes: [Egress]}")}, Endpoint(addr("192.0.2.53")))
		diff.Equal(t, want, rulesOf(t, all), spec)
		if len(all) > 0 && strings.Contains(Text(all), "secret") {
			t.Errorf("an object in a tenant's namespace names the cluster policy: %s", Text(all))
		}
	}
}

// TestWhere: one object for each pair that has pods in common, where the NetworkPolicy limits egress
// and the object is not applied yet.
func TestWhere(t *testing.T) {
	p := Of(out(t, "{podSelector: {matchLabels: {app: web}}, egress: [{matches: [{name: a.test}], ports: [{protocol: TCP, port: 443}]}]}"), Services{})
	for spec, want := range map[string]string{
		"{policyTypes: [Egress]}": "app=web",
		"{policyTypes: [Egress], podSelector: {matchLabels: {app: web}}}":             "app=web",
		"{egress: [{ports: [{port: 1}]}], podSelector: {matchLabels: {tier: front}}}": "app=web,tier=front",
		"{policyTypes: [Egress], podSelector: {matchLabels: {app: db}}}":              "",
		"{policyTypes: [Ingress]}":              "",
		"{}":                                    "",
		"{policyTypes: [Egress], egress: [{}]}": "",
		"{policyTypes: [Egress], podSelector: {matchExpressions: [{key: app, operator: Like}]}}":                                     "",
		"{policyTypes: [Egress], podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [web]}]}}":                     "",
		"{policyTypes: [Egress], podSelector: {matchExpressions: [{key: app, operator: Exists}, {key: x, operator: DoesNotExist}]}}": "app=web,app,!x",
	} {
		all := p.Beside([]*networkingv1.NetworkPolicy{net(t, "shop", spec), net(t, "shop", spec), net(t, "bank", spec)}, Endpoint())
		got := ""
		for _, n := range all {
			selector, err := metav1.LabelSelectorAsSelector(&n.Spec.PodSelector)
			fatal.If(t, err)
			got += selector.String()
		}
		diff.Equal(t, want, got, spec)
		if len(all) == 0 {
			continue
		}
		applied := read[networkingv1.NetworkPolicy](t, Text(all))
		if again := p.Beside([]*networkingv1.NetworkPolicy{net(t, "shop", spec), applied}, Endpoint()); len(again) > 0 {
			t.Errorf("%s: it is applied, and still needed: %s", spec, Text(again))
		}
		applied.Spec.Egress = applied.Spec.Egress[:1]
		if again := p.Beside([]*networkingv1.NetworkPolicy{net(t, "shop", spec), applied}, Endpoint()); len(again) != 1 || again[0].Name != applied.Name {
			t.Errorf("%s: an applied one with other ports is replaced by %v", spec, again)
		}
	}
	if all := p.Beside([]*networkingv1.NetworkPolicy{net(t, "shop", "{policyTypes: [Egress]}")}, Serving{}); all != nil {
		t.Errorf("without an endpoint DNS is open to every address: %s", Text(all))
	}
}

// TestWider: an applied object serves where it opens the same and more, to the same pods.
func TestWider(t *testing.T) {
	p := Of(out(t, "{podSelector: {matchLabels: {app: web}}, egress: [{matches: [{name: a.test}], ports: [{protocol: TCP, port: 443}, {protocol: UDP, port: 5000, endPort: 5010}]}]}"), Services{})
	other := net(t, "shop", "{policyTypes: [Egress]}")
	const dns = `{ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}], to: [{ipBlock: {cidr: 169.254.20.0/24}}, {ipBlock: {cidr: "fd5c:7a1e:93b4::/64"}}]}`
	for egress, serves := range map[string]bool{
		dns + ", {ports: [{protocol: TCP, port: 443}, {protocol: UDP, port: 5000, endPort: 5010}]}":                              true,
		dns + ", {ports: [{protocol: TCP, port: 443}, {protocol: TCP, port: 8443}, {protocol: UDP, port: 4000, endPort: 6000}]}": true,
		dns + ", {ports: [{protocol: TCP}, {protocol: UDP}]}":                                                                    true,
		dns + ", {}": true,
		"{}":         true,
		dns + ", {ports: [{protocol: TCP, port: 443}, {protocol: UDP, port: 5000, endPort: 5009}]}":                                        false,
		dns + ", {ports: [{protocol: UDP, port: 443}, {protocol: UDP, port: 5000, endPort: 5010}]}":                                        false,
		dns + ", {ports: [{protocol: TCP, port: https}, {protocol: UDP, port: 5000, endPort: 5010}]}":                                      false,
		dns + ", {to: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{protocol: TCP, port: 443}, {protocol: UDP, port: 5000, endPort: 5010}]}": false,
		dns: false,
		strings.Replace(dns, "169.254.20.0", "169.254.21.0", 1) + ", {ports: [{protocol: TCP, port: 443}, {protocol: UDP, port: 5000, endPort: 5010}]}": false,
	} {
		applied := net(t, "shop", "{policyTypes: [Egress], podSelector: {matchLabels: {app: web}}, egress: ["+egress+"]}")
		applied.Labels = map[string]string{netpol.IgnoreLabel: netpol.IgnoreValue}
		if again := p.Beside([]*networkingv1.NetworkPolicy{other, applied}, Endpoint()); (len(again) == 0) != serves {
			t.Errorf("%s: %d are needed, want that it serves: %v", egress, len(again), serves)
		}
		applied.Spec.PodSelector.MatchLabels["app"] = "db"
		if again := p.Beside([]*networkingv1.NetworkPolicy{other, applied}, Endpoint()); len(again) != 1 {
			t.Errorf("%s for other pods: %d are needed", egress, len(again))
		}
	}
}

// TestIntersectTwin: the selector selects what both select, and nothing where nothing can have both.
func TestIntersectTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	keys, values := []string{"a", "b"}, []string{"1", "2", ""}
	random := func() *metav1.LabelSelector {
		s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
		for range r.IntN(2) {
			s.MatchLabels[keys[r.IntN(2)]] = values[r.IntN(3)]
		}
		for range r.IntN(3) {
			x := metav1.LabelSelectorRequirement{Key: keys[r.IntN(2)], Operator: []metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}[r.IntN(4)]}
			if strings.HasSuffix(string(x.Operator), "In") {
				x.Values = values[r.IntN(3):]
			}
			s.MatchExpressions = append(s.MatchExpressions, x)
		}
		return s
	}
	selects := func(s *metav1.LabelSelector, set labels.Set) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		fatal.If(t, err)
		return selector.Matches(set)
	}
	seen := map[string]int{}
	for range 5_000 {
		x, y := random(), random()
		both, possible := intersect(x, y)
		any := false
		for _, a := range append(slices.Clone(values), "none") {
			for _, b := range append(slices.Clone(values), "none") {
				set := labels.Set{"a": a, "b": b}
				for _, key := range keys {
					if set[key] == "none" {
						delete(set, key)
					}
				}
				want := selects(x, set) && selects(y, set)
				any = any || want
				if possible && selects(&both, set) != want || !possible && want {
					t.Fatalf("%v of %v and %v: %v, %v", set, x, y, both, possible)
				}
			}
		}
		seen[fmt.Sprint(any, possible)]++
	}
	diff.Error(t, []bool{true, true}, []bool{seen["true true"] > 0, seen["false false"] > 0}, seen)
}
