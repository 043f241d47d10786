package status

import (
	"log/slog"
	"slices"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/statustest"
)

// TestTheSamePoliciesAgain: the source's calls while pods of other nodes come and go do
// not make the elected agent read everything.
func TestTheSamePoliciesAgain(t *testing.T) {
	r, err := New(Options{Client: fake.NewClientset(), Dynamic: &dynamic.DynamicClient{}, Namespace: "namegate-system", Log: slog.New(slog.DiscardHandler)})
	fatal.If(t, err)
	list := []v1alpha1.FQDNNetworkPolicy{*statustest.Policy("shop", "web")}
	bad := policy.Problem{Object: "policy shop/web", Reason: policy.ReasonInvalid, Policies: []string{"shop/web"}}
	for _, c := range []struct {
		what     string
		policies []v1alpha1.FQDNNetworkPolicy
		problems []policy.Problem
		news     bool
	}{
		{"the first", list, nil, true},
		{"the same list", list, nil, false},
		{"a problem", list, []policy.Problem{bad}, true},
		{"the same problem", list, []policy.Problem{bad}, false},
		{"another list", slices.Clone(list), []policy.Problem{bad}, true},
		{"none", nil, nil, true},
	} {
		r.SetPolicies(c.policies, c.problems...)
		news := len(r.leadChanged) > 0
		if news {
			<-r.leadChanged
		}
		if news != c.news || len(r.input.policies) != len(c.policies) {
			t.Errorf("%s: news %v, %d policies known", c.what, news, len(r.input.policies))
		}
	}
}
