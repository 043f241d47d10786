package compile

import (
	"slices"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// TestDefer: a pod that becomes isolated stays as it was, if it can, and all others are
// as the newer snapshot has them.
func TestDefer(t *testing.T) {
	db := aPod("db", "db", "10.0.0.2")
	last := []policy.Pod{aPod("web", "web", "10.0.0.1"), db}
	for _, c := range []struct {
		what            string
		before          []policy.Pod
		policies        []*v1alpha1.FQDNNetworkPolicy // in last
		after           []policy.Pod
		deferred, known bool
	}{
		{"a pod that was there", last, nil, last, true, true},
		{"a pod that comes", []policy.Pod{db}, nil, last, true, false},
		{"a pod that was audited", last, []*v1alpha1.FQDNNetworkPolicy{audited(aPolicy("seen", "web", aRule("a.test")))}, last, true, true},
		{"a pod that was isolated", last, []*v1alpha1.FQDNNetworkPolicy{aPolicy("old", "web")}, last, false, true},
		{"a pod with another's address", []policy.Pod{aPod("old", "old", "10.0.0.1"), db}, nil, last, false, true},
		{"a pod with one address more", last, nil, []policy.Pod{aPod("web", "web", "10.0.0.1", "2001:db8::1"), db}, false, true},
	} {
		compiler := New()
		before := compiler.Compile(Input{Pods: c.before, Policies: c.policies})
		now := compiler.Compile(Input{Pods: c.after, Policies: []*v1alpha1.FQDNNetworkPolicy{aPolicy("new", "web", aRule("www.example.org")), aPolicy("db", "db", aRule("db.test"))}})
		web := now.View(addr("10.0.0.1")).Pod.PodRef
		got := now.Defer(before, map[policy.PodRef]bool{web: true, {Name: "nobody"}: true})
		if (got != now) != c.deferred {
			t.Errorf("%s: deferred %v", c.what, got != now)
			continue
		}
		if got.Isolates(web) == c.deferred || got.ViewOf(web) != before.ViewOf(web) && c.deferred || got.View(addr("10.0.0.1")) != got.ViewOf(web) {
			t.Errorf("%s: the pod's view is %v", c.what, got.ViewOf(web))
		}
		_, known := got.Pod(addr("10.0.0.1"))
		listed := slices.ContainsFunc(got.Pods(), func(p policy.Pod) bool { return p.PodRef == web })
		if known != c.known || listed != c.known {
			t.Errorf("%s: the pod is known %v, listed %v", c.what, known, listed)
		}
		if !got.Isolates(db.PodRef) || got.ViewOf(db.PodRef) != now.ViewOf(db.PodRef) || !slices.Contains(got.Views, now.ViewOf(db.PodRef)) {
			t.Errorf("%s: a neighbour waits too", c.what)
		}
		if !slices.IsSortedFunc(got.Views, func(a, b *policy.View) int { return a.Pod.Compare(b.Pod.PodRef) }) {
			t.Errorf("%s: views %v", c.what, got.Views)
		}
		if !now.Isolates(web) || now.View(addr("10.0.0.1")) != now.ViewOf(web) {
			t.Errorf("%s: the snapshot itself has changed", c.what)
		}
	}
}
