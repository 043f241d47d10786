package companion

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// boot is a Node in a boot.
func boot(name, id string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: id}}}
}

func TestTrimNode(t *testing.T) {
	n := boot("n1", "x")
	n.ResourceVersion, n.Annotations = "7", map[string]string{"long": "text"}
	object, err := trimNode(n)
	must(t, err)
	kept := object.(*nodeBoot)
	if kept.Name != "n1" || kept.boot != "x" || kept.ResourceVersion != "7" || kept.Annotations != nil {
		t.Errorf("%+v", kept)
	}
	for _, other := range []any{kept, cache.DeletedFinalStateUnknown{Key: "n1"}} {
		if got, err := trimNode(other); got != other || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	}
}
