package policy

import "testing"

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
