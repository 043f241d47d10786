package status

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
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

// TestClusterConditions: a valid policy is accepted and enforced.
func TestClusterConditions(t *testing.T) {
	const enforced = "True NoBlindSpot"
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
		"audit":  {audit, [2]string{"True Accepted", "False Audit"}, "every part of the policy works"},
	} {
		got := clusterConditionsOf(c.policy.Spec.Enforcement, 7, cfqdnnp.Validate(c.policy), nil)
		for i, kind := range []string{policy.ConditionAccepted, ConditionEnforced} {
			if is := got[i]; is.Type != kind || string(is.Status)+" "+is.Reason != c.want[i] || is.ObservedGeneration != 7 {
				t.Errorf("%s: %+v, want %s", name, is, c.want[i])
			}
		}
		if !strings.Contains(got[0].Message, c.says) {
			t.Errorf("%s: %q %q", name, got[0].Message, got[1].Message)
		}
	}
}

// TestSafeguardConditions: a policy with a safeguard says how to confirm its generation until that is
// done, and where nodes only audit it.
func TestSafeguardConditions(t *testing.T) {
	turned := []entry{{Policy: "p", Reason: TurnedToAudit, Message: "the node n1 only audits the policy", Pods: []string{"node n1"}, Count: 1}}
	for name, c := range map[string]struct {
		confirmed string
		change    func(*v1alpha1.NodeNetworkPolicySpec)
		entries   []entry
		want      string
		says      string
	}{
		"unconfirmed": {want: "True Unconfirmed", says: "generation 7 is not confirmed: each node only audits it 5m0s after it came into force there, or after a minute without the API server; " +
			"if the nodes work, run kubectl annotate nnp p namegate.io/confirmed=7 --overwrite"},
		"an earlier generation is confirmed": {confirmed: "6", want: "True Unconfirmed", says: "confirmed=7"},
		"confirmed":                          {confirmed: "7", want: "True NoBlindSpot"},
		"turned":                             {entries: turned, want: "False TurnedToAudit", says: "the node n1 only audits the policy"},
		"audit":                              {change: func(s *v1alpha1.NodeNetworkPolicySpec) { s.Enforcement = v1alpha1.EnforcementAudit }, want: "False Audit"},
		"no safeguard":                       {change: func(s *v1alpha1.NodeNetworkPolicySpec) { s.Safeguard = nil }, want: "True NoBlindSpot"},
	} {
		p := policytest.NodePolicy(t, "p", "{nodeSelector: {}, priority: 1, egress: [{action: Deny}], safeguard: {}}")
		p.Generation = 7
		p.Annotations = map[string]string{v1alpha1.ConfirmedAnnotation: c.confirmed}
		if c.change != nil {
			c.change(&p.Spec)
		}
		is := nodeConditionsOf(p, nnp.Validate(p), c.entries)[1]
		if string(is.Status)+" "+is.Reason != c.want || !strings.Contains(is.Message, c.says) {
			t.Errorf("%s: %+v", name, is)
		}
	}
}

// aStandard is a ClusterNetworkPolicy with a condition of another implementation.
func aStandard(spec string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`{metadata: {name: p, uid: uid, generation: 7, resourceVersion: "3"}, spec: `+spec+`,
		status: {conditions: [{type: Accepted, status: "True", reason: Theirs, message: theirs, lastTransitionTime: "2026-01-02T03:04:05Z"}]}}`), &u.Object); err != nil {
		panic(err)
	}
	u.SetAPIVersion(cnp.Resource().GroupVersion().String())
	u.SetKind(cnp.Kind)
	return u
}

const (
	wholeStandard  = "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{nodes: {}}]}]}"
	brokenStandard = "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{domainNames: [a.org]}]}]}"
)

// TestStandardConditions: as of cluster policies of ours.
func TestStandardConditions(t *testing.T) {
	unseen := []entry{{Reason: NotSeen, Message: "m"}}
	crowded := []policy.Problem{{Reason: policy.ReasonNoRoom, Path: "spec.egress[0]", Message: "no room"}}
	for name, c := range map[string]struct {
		spec    string
		more    []policy.Problem
		entries []entry
		want    [2]string
	}{
		"whole":          {wholeStandard, nil, nil, [2]string{"True Accepted", "True NoBlindSpot"}},
		"unseen":         {wholeStandard, nil, unseen, [2]string{"True Accepted", "False NotSeen"}},
		"broken":         {brokenStandard, nil, nil, [2]string{"True PartiallyInvalid", "False PartiallyInvalid"}},
		"crowded":        {wholeStandard, crowded, nil, [2]string{"True PartiallyInvalid", "False PartiallyInvalid"}},
		"ingress":        {"{tier: Baseline, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}", nil, nil, [2]string{"True Accepted", "True NoBlindSpot"}},
		"broken ingress": {"{tier: Baseline, priority: 1, subject: {namespaces: {}}, ingress: [{}]}", nil, nil, [2]string{"True PartiallyInvalid", "False PartiallyInvalid"}},
		"invalid":        {"{tier: Admin}", nil, unseen, [2]string{"False Invalid", "False NotAccepted"}},
	} {
		p := cnp.Read(aStandard(c.spec))
		for i, got := range standardConditionsOf(7, append(p.Problems, c.more...), c.entries) {
			if kind := [2]string{"namegate.io/Accepted", "namegate.io/Enforced"}[i]; got.Type != kind || string(got.Status)+" "+got.Reason != c.want[i] || got.ObservedGeneration != 7 {
				t.Errorf("%s: %+v, want %s", name, got, c.want[i])
			}
		}
	}
}

// TestElectedWritesClusterPolicies: the elected agent writes the conditions of both kinds, with
// the problems that a compile found, and leaves those of others, also where these cannot be read. The events
// are in kube-system.
func TestElectedWritesClusterPolicies(t *testing.T) {
	ours, theirs := aClusterPolicy(v1alpha1.ClusterSubject{Namespaces: &metav1.LabelSelector{}}), aStandard(wholeStandard)
	theirs.SetUID("uid-of-the-standard")
	for name, c := range map[string]struct {
		odd     bool
		version schema.GroupVersion // of theirs, which alone is served
		writes  int
	}{
		"readable": {false, cnp.Versions()[0], 2}, "unreadable": {true, cnp.Versions()[0], 2}, "earlier CRD": {false, cnp.Versions()[1], 3}, // one of which finds no such version
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, nil, func(t *testing.T, w *world) {
				theirs := theirs.DeepCopy()
				theirs.SetAPIVersion(c.version.String())
				if c.odd {
					fatal.If(t, unstructured.SetNestedSlice(theirs.Object, []any{map[string]any{"type": "Odd", "lastTransitionTime": "later"}}, "status", "conditions"))
				}
				w.policies = newPolicyServer(t, ours, theirs)
				defer w.start("n1")()
				w.cluster = State{ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{ours}, ClusterNetworkPolicies: []*unstructured.Unstructured{theirs}, Compiled: []policy.Problem{
					{Object: cfqdnnp.Object("p"), Reason: policy.ReasonNoRoom, Message: "no room"}, {Object: "clusternetworkpolicy p", Reason: policy.ReasonNoRoom, Message: "no room"},
				}}
				w.pass(time.Minute)
				for of, n := range map[schema.GroupVersionResource]int{v1alpha1.ClusterGroupVersionResource(): 2, c.version.WithResource(cnp.Resource().Resource): 3} {
					u, err := w.policies.Resource(of).Get(t.Context(), "p", metav1.GetOptions{})
					fatal.If(t, err)
					conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
					fatal.If(t, err)
					says := 0
					for _, is := range conditions {
						if is := is.(map[string]any); is["reason"] == policy.ReasonPartiallyInvalid && is["message"] == "no room" {
							says++
						}
					}
					if len(conditions) != n || says == 0 {
						t.Errorf("%s: %+v", of.Resource, conditions)
					}
				}
				diff.Equal(t, c.writes, len(w.policies.written()), "writes")
				events, err := w.client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
				fatal.If(t, err)
				for _, e := range events.Items {
					if e.Namespace != metav1.NamespaceSystem || strings.Contains(e.Note, "no room") {
						t.Errorf("%s: %s", e.Namespace, e.Note)
					}
				}
				if len(events.Items) == 0 {
					t.Error("no events")
				}
			})
		})
	}
}
