package compile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
)

// TestCompanionsAreNotRead, whichever of the three marks they have: each time the
// NetworkPolicy would open everything.
func TestCompanionsAreNotRead(t *testing.T) {
	owner := func(kind, version string, controls bool) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, APIVersion: version, Name: "p", Controller: ptr(controls)}}
	}
	ours := owner("FQDNNetworkPolicy", "namegate.io/v1alpha1", true)
	label := map[string]string{"app.kubernetes.io/managed-by": "namegate"}
	for what, test := range map[string]struct {
		name      string
		labels    map[string]string
		owners    []metav1.OwnerReference
		companion bool
		problem   string
	}{
		"all three":                      {name: "namegate-dns-0123", labels: label, owners: ours, companion: true},
		"the owner alone":                {name: "renamed", owners: ours, companion: true},
		"a later version":                {name: "renamed", owners: owner("FQDNNetworkPolicy", "namegate.io/v1", true), companion: true},
		"the name alone":                 {name: "namegate-dns-x", companion: true, problem: "metadata.name"},
		"the label alone":                {name: "np", labels: label, companion: true, problem: "metadata.labels"},
		"another's label":                {name: "np", labels: map[string]string{"app.kubernetes.io/managed-by": "helm"}},
		"no name":                        {name: "my-namegate-dns-x"},
		"another's kind":                 {name: "np", owners: owner("FQDNNetworkPolicy", "networking.gke.io/v1alpha1", true)},
		"a group that begins so":         {name: "np", owners: owner("FQDNNetworkPolicy", "namegate.io.example.org/v1", true)},
		"an owner that does not control": {name: "np", owners: owner("FQDNNetworkPolicy", "namegate.io/v1alpha1", false)},
		"the name, owned by another":     {name: "namegate-dns-x", owners: owner("Deployment", "apps/v1", true), companion: true, problem: "metadata.name"},
	} {
		n := aNet(t, test.name, `egress: [{}]`)
		n.Labels, n.OwnerReferences = test.labels, test.owners
		s := New().Compile(besideInput(nil, n))
		if netpol.IsCompanion(n) != test.companion || (len(s.Views[0].NetworkPolicies) == 0) != test.companion || (len(s.Views[0].PeerRules()) == 0) != test.companion {
			t.Errorf("%s: companion %v, %v count", what, netpol.IsCompanion(n), s.Views[0].NetworkPolicies)
		}
		var paths []string
		for _, p := range s.Problems {
			paths = append(paths, p.Path)
			if p.Object != "networkpolicy shop/"+test.name || p.Reason != policy.ReasonInvalid || !strings.Contains(p.Message, "counts for no pod") {
				t.Errorf("%s: problem %v", what, p)
			}
		}
		if strings.Join(paths, " ") != test.problem {
			t.Errorf("%s: problems at %v", what, paths)
		}
	}
}

// TestCompanionsComeAndGo: what makes an object one may change while its spec does not.
func TestCompanionsComeAndGo(t *testing.T) {
	c, n := New(), aNet(t, "np", `egress: [{}]`)
	var got []int
	for i := range 4 {
		now := n.DeepCopy()
		if i%2 == 1 {
			now.Labels = map[string]string{"app.kubernetes.io/managed-by": "namegate"}
		}
		got = append(got, len(c.Compile(besideInput(nil, now)).Views[0].PeerRules()))
	}
	if diff := cmp.Diff([]int{1, 0, 1, 0}, got); diff != "" {
		t.Error(diff)
	}
}
