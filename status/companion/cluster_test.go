package companion

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/statustest"
)

// aCluster reads the spec of a cluster policy.
func aCluster(t *testing.T, name, spec string) *v1alpha1.ClusterFQDNNetworkPolicy {
	t.Helper()
	p := &v1alpha1.ClusterFQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-cluster", Generation: 1}}
	fatal.If(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
	return p
}

const ofCarts = "subject: {pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: cart}}}}"

// companionsOfCluster returns the companions beside others, once ports are open.
func companionsOfCluster(t *testing.T, s State, others ...*networkingv1.NetworkPolicy) []*networkingv1.NetworkPolicy {
	t.Helper()
	o := options(fake.NewClientset(), events.NewFakeRecorder(9))
	o.Ports = PortsAlways
	c := New(o)
	c.state = s
	c.newRound(statustest.At(0), others)
	all, _ := wanted(c.policies, others, statustest.Endpoint, c.newRound(statustest.At(OpenAfter), others).portsOf)
	return all
}

// TestCompanionsOfClusterPolicies: one in each selected namespace whose NetworkPolicies limit
// egress, that the policy owns, beside those of the namespace's own policies.
func TestCompanionsOfClusterPolicies(t *testing.T) {
	deny := map[string]string{"tier": "front"}
	s := State{
		Policies: statustest.ByID(statustest.Selecting(statustest.Policy("shop", "web"), map[string]string{"app": "cart"})),
		Cluster: []*v1alpha1.ClusterFQDNNetworkPolicy{
			aCluster(t, "web", "{tier: Admin, priority: 1, "+ofCarts+"}"),
			aCluster(t, "refused", "{tier: Admin, priority: 1, subject: {namespaces: {}}}"),
		},
		Namespaces: map[string]map[string]string{"shop": {"team": "a"}, "pay": {"team": "a"}, "open": {"team": "a"}, "other": {"team": "b"}},
		Accepted:   map[string]bool{"shop/web": true, "clusterpolicy web": true},
	}
	all := companionsOfCluster(t, s, statustest.Limit("shop", "deny", deny), statustest.Limit("pay", "deny", deny), statustest.Limit("other", "deny", deny))
	got, names := map[string]int{}, map[string]bool{}
	for _, n := range all {
		owner := metav1.GetControllerOf(n)
		got[n.Namespace+" "+owner.Kind]++
		names[n.Namespace+"/"+n.Name] = true
		if !isCompanion(n) || !netpol.IsCompanion(n) || owner.Name != "web" || owner.Kind == v1alpha1.ClusterKind && owner.UID != "uid-of-cluster" {
			t.Errorf("%+v", n.ObjectMeta)
		}
		if text, _ := yaml.Marshal(n.Spec); (len(n.Spec.Egress) == 1) != (owner.Kind == v1alpha1.ClusterKind) || !strings.Contains(string(text), "cart") || !strings.Contains(string(text), "front") {
			t.Errorf("%s", text)
		}
	}
	if want := map[string]int{"shop FQDNNetworkPolicy": 1, "shop ClusterFQDNNetworkPolicy": 1, "pay ClusterFQDNNetworkPolicy": 1}; !maps.Equal(got, want) || len(names) != len(all) {
		t.Errorf("%v", got)
	}
	unlabelled := &networkingv1.NetworkPolicy{ObjectMeta: *all[0].ObjectMeta.DeepCopy()}
	unlabelled.Labels, unlabelled.Name = nil, "mine"
	if !netpol.IsCompanion(unlabelled) || isCompanion(unlabelled) {
		t.Error("an owner of the cluster's kind does not count")
	}
}

// TestCompanionsOfClusterPoliciesHaveRoomFirst: policies of the namespace do not displace them.
func TestCompanionsOfClusterPoliciesHaveRoomFirst(t *testing.T) {
	own := statustest.Policy("shop", "a")
	s := State{
		Policies: statustest.ByID(own), Cluster: []*v1alpha1.ClusterFQDNNetworkPolicy{aCluster(t, "web", "{tier: Admin, priority: 1, subject: {namespaces: {}}}")},
		Accepted: map[string]bool{"shop/a": true, "clusterpolicy web": true},
	}
	var others []*networkingv1.NetworkPolicy
	for i := range maxCompanions {
		others = append(others, statustest.Limit("shop", fmt.Sprint("np-", i), map[string]string{"app": fmt.Sprint(i)}))
	}
	owners := map[string]int{}
	for _, n := range companionsOfCluster(t, s, others...) {
		owners[metav1.GetControllerOf(n).Kind]++
	}
	if want := map[string]int{v1alpha1.ClusterKind: maxCompanions}; !maps.Equal(owners, want) {
		t.Errorf("%v", owners)
	}
}

// TestPortsOfClusterPolicies: companions open what the Admin tier accepts while it enforces, and
// nothing that comes behind the NetworkPolicies.
func TestPortsOfClusterPolicies(t *testing.T) {
	for spec, want := range map[string]string{
		"tier: Admin, egress: [{action: Accept, matches: [{name: a.test}], ports: [{protocol: TCP, port: 443}]}]":                         "443",
		"tier: Admin, egress: [{action: Accept, networks: [192.0.2.0/24], ports: [{protocol: TCP, port: 8000, endPort: 8010}]}]":          "8000-8010",
		"tier: Admin, egress: [{action: Deny}, {action: Accept}]":                                                                         "all",
		"tier: Admin, egress: [{action: Deny}, {action: Pass, ports: [{port: 1}]}]":                                                       "",
		"tier: Baseline, egress: [{action: Accept}]":                                                                                      "",
		"tier: Admin, enforcement: Audit, egress: [{action: Accept}]":                                                                     "",
		"tier: Admin, egress: [{action: Accept, ports: [{protocol: TCP, port: 1}]}, {action: Accept, ports: [{protocol: TCP, port: 5}]}]": "1 5",
	} {
		p := aCluster(t, "p", "{priority: 1, "+ofCarts+", "+spec+"}")
		s := State{Cluster: []*v1alpha1.ClusterFQDNNetworkPolicy{p}, Namespaces: map[string]map[string]string{"shop": {"team": "a"}}, Accepted: map[string]bool{"clusterpolicy p": true}}
		open := func() (got string) {
			all := companionsOfCluster(t, s, statustest.Limit("shop", "deny", nil))
			if len(all) != 1 {
				t.Fatalf("%s: %d companions", spec, len(all))
			}
			var words []string
			for _, rule := range all[0].Spec.Egress[1:] {
				if len(rule.Ports) == 0 {
					return "all"
				}
				for _, port := range rule.Ports {
					word := port.Port.String()
					if port.EndPort != nil {
						word += "-8010"
					}
					words = append(words, word)
				}
			}
			slices.Sort(words)
			return strings.Join(words, " ")
		}
		if got := open(); got != want {
			t.Errorf("%s opens %q, want %q", spec, got, want)
		}
		s.Bypassed = map[string]Bypass{"clusterpolicy p": {Node: "n", Reason: "NotSeen"}}
		if got := open(); got != "" {
			t.Errorf("%s: bypassed, it opens %q", spec, got)
		}
	}
}

// TestEventsOfClusterPolicies: one of the policy, whatever the number of its namespaces.
func TestEventsOfClusterPolicies(t *testing.T) {
	recorder := events.NewFakeRecorder(9)
	o := options(fake.NewClientset(), recorder)
	p := aCluster(t, "p", "{tier: Admin, priority: 1, subject: {namespaces: {}}}")
	p.Annotations = map[string]string{Annotation: "Port"}
	c := New(o)
	c.state = State{Cluster: []*v1alpha1.ClusterFQDNNetworkPolicy{p}, Accepted: map[string]bool{"clusterpolicy p": true}}
	r := c.newRound(statustest.At(0), []*networkingv1.NetworkPolicy{statustest.Limit("a", "deny", nil), statustest.Limit("b", "deny", nil)})
	c.announce(c.policies, r)
	if got := emitted(recorder); len(got) != 1 || !strings.Contains(got[0], ReasonInvalid) {
		t.Errorf("%q", got)
	}
}
