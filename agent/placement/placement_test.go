package placement

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func node(taints ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a"}}}
	for _, t := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: t, Effect: corev1.TaintEffectNoSchedule})
	}
	return n
}

func agents() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "namegate"}}
}

func begin(t *testing.T, objects ...runtime.Object) (*Watcher, *fake.Clientset) {
	t.Helper()
	c := fake.NewClientset(objects...)
	p, err := New(Options{Client: c, Node: "n1", Namespace: "sys", DaemonSet: "namegate", Log: slog.New(slog.DiscardHandler)})
	fatal.If(t, err)
	return p, c
}

func TestLeaving(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *fake.Clientset){
		"the DaemonSet is deleted": func(t *testing.T, c *fake.Clientset) {
			fatal.If(t, c.AppsV1().DaemonSets("sys").Delete(t.Context(), "namegate", metav1.DeleteOptions{}))
		},
		"the DaemonSet is on its way": func(t *testing.T, c *fake.Clientset) {
			s := agents()
			s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			s.Finalizers = []string{"foregroundDeletion"}
			put(t, c, s)
		},
		"its nodeSelector excludes the node": func(t *testing.T, c *fake.Clientset) {
			s := agents()
			s.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "b"}
			put(t, c, s)
		},
		"its affinity excludes the node": func(t *testing.T, c *fake.Clientset) {
			s := agents()
			s.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"a"}}}},
				}},
			}}
			put(t, c, s)
		},
		"the node loses the label": func(t *testing.T, c *fake.Clientset) {
			s := agents()
			s.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
			put(t, c, s)
			n := node()
			n.Labels = nil
			if _, err := c.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, c := begin(t, node(), agents())
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = p.Run(ctx)
			}()
			fatal.Await(t, "both objects are known", func() bool {
				return p.seen.Load() && p.nodes.HasSynced() && watched(c, "daemonsets") && watched(c, "nodes")
			})
			if p.Leaving() {
				t.Fatal("leaving from the beginning")
			}
			change(t, c)
			fatal.Await(t, "leaving", p.Leaving)
			cancel()
			<-done
			if !p.Leaving() {
				t.Error("forgotten when the agent ended")
			}
		})
	}
}

// watched tells whether objects of a kind are watched: the fake tells a later watch nothing of
// an earlier change.
func watched(c *fake.Clientset, resource string) bool {
	return slices.ContainsFunc(c.Actions(), func(a clienttest.Action) bool { return a.Matches("watch", resource) })
}

func put(t *testing.T, c *fake.Clientset, s *appsv1.DaemonSet) {
	t.Helper()
	if _, err := c.AppsV1().DaemonSets("sys").Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestLeavingDependsOnTheDaemonSet: without knowledge, and after the DaemonSet was
// recreated, nothing is removed.
func TestLeavingDependsOnTheDaemonSet(t *testing.T) {
	p, _ := begin(t)
	if p.Leaving() {
		t.Error("leaving without knowledge")
	}
	p.seen.Store(true)
	if !p.Leaving() {
		t.Error("staying without a DaemonSet")
	}
	fatal.If(t, p.sets.GetStore().Add(agents()))
	fatal.If(t, p.nodes.GetStore().Add(node()))
	if p.Leaving() {
		t.Error("leaving although the DaemonSet is there again")
	}
}

func TestAgents(t *testing.T) {
	p, _ := begin(t)
	diff.Equal(t, 0, p.Agents(), "agents without knowledge")
	s := agents()
	s.Status.DesiredNumberScheduled = 7
	fatal.If(t, p.sets.GetStore().Add(s))
	diff.Equal(t, 7, p.Agents(), "agents")
}

func TestClearTaint(t *testing.T) {
	p, c := begin(t, node("other", Taint))
	conflicts := 2
	c.PrependReactor("patch", "nodes", func(clienttest.Action) (bool, runtime.Object, error) {
		if conflicts--; conflicts >= 0 {
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n1", nil)
		}
		return false, nil, nil
	})
	fatal.If(t, p.ClearTaint(t.Context()))
	n, err := c.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil || len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "other" {
		t.Errorf("taints %v (%v)", n.Spec.Taints, err)
	}
	c.ClearActions()
	fatal.If(t, p.ClearTaint(t.Context()))
	for _, a := range c.Actions() {
		if a.GetVerb() == "patch" {
			t.Error("a node without the taint was written")
		}
	}
	conflicts = 1000
	if _, err := c.CoreV1().Nodes().Update(t.Context(), node(Taint), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.ClearTaint(t.Context()); !apierrors.IsConflict(err) {
		t.Errorf("conflicts without end: %v", err)
	}
}

func TestNewNeedsEverything(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("made of nothing")
	}
}
