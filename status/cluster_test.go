package status

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/statustest"
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
		"nodes":  {aClusterPolicy(v1alpha1.ClusterSubject{Nodes: &metav1.LabelSelector{}}), [2]string{"True Accepted", enforced}, "every part of the policy works"},
	} {
		got := clusterConditionsOf(c.policy, cfqdnnp.Validate(c.policy), nil)
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
	nodes := v1alpha1.ClusterSubject{Nodes: &metav1.LabelSelector{}}
	turned := []entry{{Policy: "p", Reason: TurnedToAudit, Message: "the node n1 only audits the policy", Pods: []string{"node n1"}, Count: 1}}
	for name, c := range map[string]struct {
		confirmed string
		change    func(*v1alpha1.ClusterFQDNNetworkPolicySpec)
		entries   []entry
		want      string
		says      string
	}{
		"unconfirmed": {want: "True Unconfirmed", says: "generation 7 is not confirmed: each node only audits it 5m0s after it came into force there, or after a minute without the API server; " +
			"if the nodes work, run kubectl annotate cfqdnnp p namegate.io/confirmed=7 --overwrite"},
		"an earlier generation is confirmed": {confirmed: "6", want: "True Unconfirmed", says: "confirmed=7"},
		"confirmed":                          {confirmed: "7", want: "True NoBlindSpot"},
		"turned":                             {entries: turned, want: "False TurnedToAudit", says: "the node n1 only audits the policy"},
		"audit":                              {change: func(s *v1alpha1.ClusterFQDNNetworkPolicySpec) { s.Enforcement = v1alpha1.EnforcementAudit }, want: "False Audit"},
		"no safeguard":                       {change: func(s *v1alpha1.ClusterFQDNNetworkPolicySpec) { s.Safeguard = nil }, want: "True NoBlindSpot"},
	} {
		p := aClusterPolicy(nodes)
		p.Spec.Safeguard = &v1alpha1.Safeguard{}
		p.Annotations = map[string]string{v1alpha1.ConfirmedAnnotation: c.confirmed}
		if c.change != nil {
			c.change(&p.Spec)
		}
		is := clusterConditionsOf(p, cfqdnnp.Validate(p), c.entries)[1]
		if string(is.Status)+" "+is.Reason != c.want || !strings.Contains(is.Message, c.says) {
			t.Errorf("%s: %+v", name, is)
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

// TestStandardConditions: as of cluster policies of ours; no ingress is called enforced.
func TestStandardConditions(t *testing.T) {
	unseen := []entry{{Reason: NotSeen, Message: "m"}}
	crowded := []policy.Problem{{Reason: policy.ReasonNoRoom, Path: "spec.egress[0]", Message: "no room"}}
	for name, c := range map[string]struct {
		spec    string
		more    []policy.Problem
		entries []entry
		want    [2]string
	}{
		"whole":   {wholeStandard, nil, nil, [2]string{"True Accepted", "True NoBlindSpot"}},
		"unseen":  {wholeStandard, nil, unseen, [2]string{"True Accepted", "False NotSeen"}},
		"broken":  {brokenStandard, nil, nil, [2]string{"True PartiallyInvalid", "False PartiallyInvalid"}},
		"crowded": {wholeStandard, crowded, nil, [2]string{"True PartiallyInvalid", "False PartiallyInvalid"}},
		"ingress": {"{tier: Baseline, priority: 1, subject: {namespaces: {}}, ingress: [{}]}", nil, nil, [2]string{"True Accepted", "False IngressNotEnforced"}},
		"invalid": {"{tier: Admin}", nil, unseen, [2]string{"False Invalid", "False NotAccepted"}},
	} {
		p := cnp.Read(aStandard(c.spec))
		for i, got := range standardConditionsOf(p, 7, append(p.Problems, c.more...), c.entries) {
			if kind := [2]string{"namegate.io/Accepted", "namegate.io/Enforced"}[i]; got.Type != kind || string(got.Status)+" "+got.Reason != c.want[i] || got.ObservedGeneration != 7 {
				t.Errorf("%s: %+v, want %s", name, got, c.want[i])
			}
		}
	}
}

// TestStandardStatus: conditions of others stay as they are, also where they cannot be read;
// an unreadable list is not written at all.
func TestStandardStatus(t *testing.T) {
	server := newPolicyServer(t)
	server.versions["/p"] = 3
	server.PrependReactor("patch", cnp.Resource().Resource, server.patch)
	s, recorder := newStatuses(server)
	u := aStandard(brokenStandard)
	resource := server.Resource(cnp.Resource())
	_, err := resource.Create(t.Context(), u, metav1.CreateOptions{})
	fatal.If(t, err)
	of, ok := standardStatus(u)
	of.want = standardConditionsOf(cnp.Read(u), 7, cnp.Read(u).Problems, nil)
	if !ok || of.UID != "uid" || of.ResourceVersion != "3" {
		t.Fatalf("%v %+v", ok, of)
	}
	s.write(t.Context(), time.Now, []status{of})
	after, err := resource.Get(t.Context(), "p", metav1.GetOptions{})
	fatal.If(t, err)
	read, ok := standardStatus(after)
	if !ok || len(read.have) != 3 || !reflect.DeepEqual(read.have[0], of.have[0]) || read.have[0].Reason != "Theirs" || meta.FindStatusCondition(read.have, cnp.ConditionAccepted).Reason != policy.ReasonPartiallyInvalid {
		t.Errorf("%v %+v", ok, read.have)
	}
	if e := <-recorder.Events; !strings.Contains(e, "Warning PartiallyInvalid spec.egress[0].to[0].domainNames: domainNames works with Accept alone") {
		t.Error(e)
	}
	read.want = of.want
	if s.write(t.Context(), time.Now, []status{read}); len(server.written()) != 1 {
		t.Errorf("written again: %q", server.written())
	}
	fatal.If(t, unstructured.SetNestedField(u.Object, "later", "status", "conditions"))
	if _, ok := standardStatus(u); ok {
		t.Error("conditions that cannot be read would be lost")
	}
}

// TestCrowded: problems that only a compile finds wake the elected agent once.
func TestCrowded(t *testing.T) {
	r, err := New(Options{Client: kubefake.NewClientset(), Dynamic: &dynamic.DynamicClient{}, Namespace: "namegate-system", Log: statustest.Silent})
	fatal.If(t, err)
	u := aStandard(wholeStandard)
	crowded := policy.Problem{Object: "clusternetworkpolicy p", Reason: policy.ReasonNoRoom, Path: "spec.egress[0]"}
	for i, c := range []struct {
		do   func()
		news bool
	}{
		{func() { r.SetClusterPolicies(nil, []*unstructured.Unstructured{u}, nil) }, true},
		{func() { r.SetClusterPolicies(nil, []*unstructured.Unstructured{u}, nil) }, false},
		{func() { r.SetClusterPolicies(nil, []*unstructured.Unstructured{u.DeepCopy()}, nil) }, true},
		{func() { r.SetCrowded([]policy.Problem{{Object: "pod x", Reason: policy.ReasonAddressConflict}}) }, false},
		{func() { r.SetCrowded([]policy.Problem{crowded}) }, true},
		{func() { r.SetCrowded([]policy.Problem{crowded}) }, false},
		{func() { r.SetCrowded(nil) }, true},
	} {
		c.do()
		news := len(r.leadChanged) > 0
		if news {
			<-r.leadChanged
		}
		if news != c.news {
			t.Errorf("step %d: news %v", i, news)
		}
	}
}

// TestElectedWritesClusterPolicies: the elected agent writes the conditions of both kinds, with
// the problems that a compile found.
func TestElectedWritesClusterPolicies(t *testing.T) {
	inWorld(t, nil, nil, func(t *testing.T, w *world) {
		ours, theirs := aClusterPolicy(v1alpha1.ClusterSubject{Namespaces: &metav1.LabelSelector{}}), aStandard(wholeStandard)
		theirs.SetUID("uid-of-the-standard")
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ours)
		fatal.If(t, err)
		_, err = w.policies.Resource(v1alpha1.ClusterGroupVersionResource()).Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		fatal.If(t, err)
		_, err = w.policies.Resource(cnp.Resource()).Create(t.Context(), theirs, metav1.CreateOptions{})
		fatal.If(t, err)
		stop := w.start("n1")
		defer stop()
		w.agents["n1"].SetClusterPolicies([]*v1alpha1.ClusterFQDNNetworkPolicy{ours}, []*unstructured.Unstructured{theirs}, nil)
		w.agents["n1"].SetCrowded([]policy.Problem{
			{Object: cfqdnnp.Object("p"), Reason: policy.ReasonNoRoom, Message: "no room"}, {Object: "clusternetworkpolicy p", Reason: policy.ReasonNoRoom, Message: "no room"},
		})
		w.pass(time.Minute)
		for _, resource := range []schema.GroupVersionResource{v1alpha1.ClusterGroupVersionResource(), cnp.Resource()} {
			u, err := w.policies.Resource(resource).Get(t.Context(), "p", metav1.GetOptions{})
			fatal.If(t, err)
			read, _ := standardStatus(u)
			kind := policy.ConditionAccepted
			if resource == cnp.Resource() {
				kind = cnp.ConditionAccepted
			}
			if c := meta.FindStatusCondition(read.have, kind); c == nil || c.Reason != policy.ReasonPartiallyInvalid || c.Message != "no room" {
				t.Errorf("%s: %+v", resource.Resource, read.have)
			}
		}
	})
}
