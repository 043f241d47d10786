package status

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
)

func aClusterPolicy(subject v1alpha1.ClusterSubject) *v1alpha1.ClusterFQDNNetworkPolicy {
	return &v1alpha1.ClusterFQDNNetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.ClusterKind},
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid", Generation: 7},
		Spec: v1alpha1.ClusterFQDNNetworkPolicySpec{
			Tier: v1alpha1.TierAdmin, Priority: new(int32), Subject: subject, Egress: []v1alpha1.ClusterEgressRule{{Action: v1alpha1.ActionDeny}},
		},
	}
}

// TestClusterConditions: a valid policy is accepted, and no policy of the kind is called
// enforced while no agent enforces it.
func TestClusterConditions(t *testing.T) {
	enforced := "False NotSupported"
	if policy.TiersEnforced {
		enforced = "True NoBlindSpot"
	}
	every := v1alpha1.ClusterSubject{Namespaces: &metav1.LabelSelector{}}
	broken, audit := aClusterPolicy(every), aClusterPolicy(every)
	broken.Spec.Egress[0].Action = "Log"
	audit.Spec.Enforcement = v1alpha1.EnforcementAudit
	for name, c := range map[string]struct {
		policy *v1alpha1.ClusterFQDNNetworkPolicy
		want   [2]string
		says   string
	}{
		"whole":  {aClusterPolicy(every), [2]string{"True Accepted", enforced}, "every part of the policy works"},
		"broken": {broken, [2]string{"True PartiallyInvalid", enforced}, "until then the rule denies every connection"},
		"audit":  {audit, [2]string{"True Accepted", "False NotSupported"}, "every part of the policy works"},
		"nodes":  {aClusterPolicy(v1alpha1.ClusterSubject{Nodes: &metav1.LabelSelector{}}), [2]string{"False Invalid", "False NotAccepted"}, "not supported yet; write pods or namespaces"},
	} {
		got := clusterConditionsOf(c.policy, cfqdnnp.Validate(c.policy), nil)
		for i, kind := range []string{policy.ConditionAccepted, ConditionEnforced} {
			if is := got[i]; is.Type != kind || string(is.Status)+" "+is.Reason != c.want[i] || is.ObservedGeneration != 7 {
				t.Errorf("%s: %+v, want %s", name, is, c.want[i])
			}
		}
		if !strings.Contains(got[0].Message, c.says) || got[1].Reason == ReasonNotSupported && !strings.HasPrefix(got[1].Message, "not enforced yet") {
			t.Errorf("%s: %q %q", name, got[0].Message, got[1].Message)
		}
	}
}

// TestClusterStatus: the conditions are written to the object, which has no namespace.
func TestClusterStatus(t *testing.T) {
	server := newPolicyServer(t)
	s, recorder := newStatuses(server)
	p := aClusterPolicy(v1alpha1.ClusterSubject{})
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	fatal.If(t, err)
	resource := server.Resource(v1alpha1.ClusterGroupVersionResource())
	_, err = resource.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	fatal.If(t, err)
	s.write(t.Context(), time.Now, []status{clusterStatus(p, clusterConditionsOf(p, cfqdnnp.Validate(p), nil))})
	u, err := resource.Get(t.Context(), "p", metav1.GetOptions{})
	fatal.If(t, err)
	fatal.If(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, p))
	if c := meta.FindStatusCondition(p.Status.Conditions, policy.ConditionAccepted); c == nil || c.Reason != policy.ReasonInvalid {
		t.Errorf("%+v", p.Status)
	}
	if e := <-recorder.Events; !strings.Contains(e, "Warning Invalid spec.subject: write exactly one of pods, namespaces and nodes") {
		t.Error(e)
	}
}
