package status

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// boot is a Node in a boot.
func boot(name, id string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: id}}}
}

// TestBootedNode: a node that was booted has lost its rules, until its agent says anew
// that they are there.
func TestBootedNode(t *testing.T) {
	inShop(t, []runtime.Object{boot("n2", "first"), runningPod("b", "n2")}, func(t *testing.T, w *world) {
		w.pass(3 * time.Second)
		start := func(id string) (stop func()) {
			w.boot = id
			stop = w.start("n2", true)
			w.agents["n2"].SetReady(true)
			return stop
		}
		stop := start("first")
		w.want(renewEvery+soonOpen, "ports", "all are ready")
		stop()
		w.want(10*time.Second, "ports", "the agent is away, its rules are not")
		_, err := w.client.CoreV1().Nodes().Update(t.Context(), boot("n2", "second"), metav1.UpdateOptions{})
		must(t, err)
		w.want(time.Second, "DNS", "the node was booted")
		defer start("second")()
		w.want(20*time.Second, "ports", "its agent is back")
	})
}

func TestBootThatNobodyKnows(t *testing.T) {
	for name, c := range map[string]struct{ node, agent, want string }{
		"the same":                 {"x", "x", "ports"},
		"another":                  {"x", "y", "DNS"},
		"the kubelet does not say": {"", "y", "ports"},
		"the agent does not say":   {"x", "", "ports"},
	} {
		t.Run(name, func(t *testing.T) {
			inShop(t, []runtime.Object{boot("n2", c.node), runningPod("b", "n2")}, func(t *testing.T, w *world) {
				w.pass(3 * time.Second)
				w.boot = c.agent
				defer w.start("n2", true)()
				w.agents["n2"].SetReady(true)
				w.want(renewEvery+soonOpen, c.want, name)
			})
		})
	}
}
