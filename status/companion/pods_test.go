package companion

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

func TestTrimPod(t *testing.T) {
	p := runningPod("a", "n1")
	p.ResourceVersion, p.Annotations, p.OwnerReferences = "7", map[string]string{"long": "text"}, []metav1.OwnerReference{{Name: "x"}}
	p.Spec.Containers = []corev1.Container{{Name: "main"}}
	object, err := trimPod(p)
	must(t, err)
	kept := object.(*podPlacement)
	want := metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "uid-a", ResourceVersion: "7", Labels: map[string]string{"app": "cart"}}
	if diff := cmp.Diff(want, kept.ObjectMeta); diff != "" || kept.node != "n1" {
		t.Errorf("node %q, %s", kept.node, diff)
	}
	if key, err := cache.MetaNamespaceKeyFunc(kept); key != "shop/a" || err != nil {
		t.Errorf("%q, %v", key, err)
	}
	for _, other := range []any{kept, cache.DeletedFinalStateUnknown{Key: "shop/a"}} {
		if got, err := trimPod(other); got != other || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	}
}

func TestSamePlacement(t *testing.T) {
	pod := func(change func(*podPlacement)) *podPlacement {
		p := &podPlacement{metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "uid-a", ResourceVersion: "1", Labels: map[string]string{"app": "cart"}}, "n1"}
		change(p)
		return p
	}
	for name, c := range map[string]struct {
		after any
		want  bool
	}{
		"a new version":     {pod(func(p *podPlacement) { p.ResourceVersion = "2" }), true},
		"another label":     {pod(func(p *podPlacement) { p.Labels = map[string]string{"app": "db"} }), false},
		"no label":          {pod(func(p *podPlacement) { p.Labels = nil }), false},
		"another node":      {pod(func(p *podPlacement) { p.node = "n2" }), false},
		"ended":             {pod(func(p *podPlacement) { p.node = "" }), false},
		"another pod":       {pod(func(p *podPlacement) { p.UID = types.UID("uid-b") }), false},
		"no pod":            {cache.DeletedFinalStateUnknown{}, false},
		"one not shortened": {runningPod("a", "n1"), false},
	} {
		if got := samePlacement(pod(func(*podPlacement) {}), c.after); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
