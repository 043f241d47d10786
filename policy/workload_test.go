package policy

import (
	"testing"
)

func TestWorkload(t *testing.T) {
	for _, test := range []struct {
		labels map[string]string
		want   string
	}{
		{nil, ""},
		{map[string]string{"pod-template-hash": "7d9f"}, ""},
		{map[string]string{"tier": "front", "app": "cart", "pod-template-hash": "7d9f"}, "app=cart,tier=front"},
		{map[string]string{"app": "", "apps.kubernetes.io/pod-index": "0", "statefulset.kubernetes.io/pod-name": "db-0"}, "app="},
		{map[string]string{"job-name": "nightly-28", "batch.kubernetes.io/job-name": "nightly-28", "controller-uid": "1", "app.kubernetes.io/name": "nightly"}, "app.kubernetes.io/name=nightly"},
	} {
		p := Pod{Labels: test.labels}
		if got := p.Workload(); got != test.want {
			t.Errorf("%v: %q, want %q", test.labels, got, test.want)
		}
	}
}

// TestProblemsOfClosedRules: a rule that is closed for a pod is reported as an object of its policy's kind, by which
// viewers without a right to the kind do not see it.
func TestProblemsOfClosedRules(t *testing.T) {
	pod := Pod{PodRef: PodRef{Namespace: "shop", Name: "web", UID: "1"}}
	ours := &Rule{ID: "a", Policy: "no-pastes", Tier: Admin, Action: Deny}
	standard := &Rule{ID: "b", Policy: "clusternetworkpolicy:rest", Standard: true, Tier: Admin, Action: Deny}
	s := &Snapshot{byRef: map[PodRef]*View{}}
	v := &View{Pod: pod, Enforced: true}
	v.Rules.Admin = []*Rule{ours, standard}
	s.Views = []*View{v}
	closed := s.Close(map[PodRef]map[RuleID]string{pod.PodRef: {ours.ID: "the pod has too many", standard.ID: "the pod has too many"}})
	got := map[string]bool{}
	for _, p := range closed.Problems {
		got[p.Object] = true
	}
	if len(got) != 2 || !got["clusterpolicy no-pastes"] || !got["clusternetworkpolicy rest"] {
		t.Errorf("the problems are of %v", got)
	}
}
