package status

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// setClock is a clock that only moves when it is set.
type setClock struct{ now time.Time }

func nodeLeaseOf(t *testing.T, client *fake.Clientset) (*nodeLease, *setClock) {
	clock := &setClock{at(0)}
	r, err := New(Options{Client: client, Dynamic: newPolicyServer(t), Namespace: "namegate", Node: "n1", Identity: "agent-1", Version: "v1", Enforce: "All", Log: silent})
	fatal.If(t, err)
	r.now = func() time.Time { return clock.now }
	return newNodeLease(r), clock
}

func theLease(t *testing.T, c *fake.Clientset) *coordinationv1.Lease {
	t.Helper()
	l, err := c.CoordinationV1().Leases("namegate").Get(t.Context(), "namegate-node-n1", metav1.GetOptions{})
	fatal.If(t, err)
	return l
}

// writes counts the requests that change Leases.
func writes(c *fake.Clientset) (n int) {
	for _, a := range c.Actions() {
		if a.GetResource().Resource == "leases" && a.GetVerb() != "get" {
			n++
		}
	}
	return n
}

func TestNodeLeaseIsComplete(t *testing.T) {
	c := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-n1"}})
	l, _ := nodeLeaseOf(t, c)
	l.sync(t.Context(), []Finding{blocked("shop/web", "a")})
	lease := theLease(t, c)
	d, err := decodeDigest(lease.Annotations[FindingsAnnotation])
	fatal.If(t, err)
	if len(d.Findings) != 1 || d.Findings[0].Policy != "shop/web" || d.Version != "v1" || d.Enforce != "All" {
		t.Errorf("%+v", d)
	}
	owners := lease.OwnerReferences
	if len(owners) != 1 || owners[0].Kind != "Node" || owners[0].UID != "uid-n1" {
		t.Errorf("owners %+v", owners)
	}
	if *lease.Spec.HolderIdentity != "agent-1" || !lease.Spec.RenewTime.Time.Equal(at(0)) || lease.Annotations[NodeAnnotation] != "n1" || lease.Labels[ManagedByLabel] != ManagedBy {
		t.Errorf("%+v", lease)
	}
}

// TestNodeLeaseIsWrittenSeldom: at once for news, but no more often than each
// findingsRest, and to renew it.
func TestNodeLeaseIsWrittenSeldom(t *testing.T) {
	c := fake.NewClientset()
	l, clock := nodeLeaseOf(t, c)
	for second := range 120 { // findings that come and go
		clock.now = at(time.Duration(second) * time.Second)
		var findings []Finding
		if second%2 == 0 {
			findings = []Finding{blocked("shop/web", "a")}
		}
		l.sync(t.Context(), findings)
	}
	if n := writes(c); n < 10 || n > 120/5+1 {
		t.Errorf("%d writes of findings that come and go", n)
	}
	clock.now = at(time.Hour)
	l.sync(t.Context(), nil)
	c.ClearActions()
	for second := range 600 {
		clock.now = at(time.Hour + time.Duration(second)*time.Second)
		l.sync(t.Context(), nil)
	}
	diff.Equal(t, 9, writes(c), "renewals in ten minutes")
	clock.now = clock.now.Add(30 * time.Second)
	l.sync(t.Context(), []Finding{blocked("shop/web", "a")})
	diff.Has(t, "shop/web", theLease(t, c).Annotations[FindingsAnnotation], "news wait")
}

// TestNodeLeaseOfAnEarlierAgent is taken over; what others wrote there stays.
func TestNodeLeaseOfAnEarlierAgent(t *testing.T) {
	holder := "agent-0"
	c := fake.NewClientset(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "namegate", Name: "namegate-node-n1", Annotations: map[string]string{"example.org/x": "y"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, AcquireTime: &metav1.MicroTime{Time: at(-time.Hour)}},
	})
	l, _ := nodeLeaseOf(t, c)
	l.sync(t.Context(), nil)
	lease := theLease(t, c)
	if *lease.Spec.HolderIdentity != "agent-1" || !lease.Spec.AcquireTime.Time.Equal(at(0)) || lease.Annotations["example.org/x"] != "y" {
		t.Errorf("%+v", lease)
	}
}

func TestNodeLeaseAfterConflictsAndErrors(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for name, failure := range map[string]error{
		"conflict": apierrors.NewConflict(leases, "x", nil), "gone": apierrors.NewNotFound(leases, "x"), "forbidden": apierrors.NewForbidden(leases, "x", nil),
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientset()
			l, clock := nodeLeaseOf(t, c)
			l.sync(t.Context(), nil)
			fail := true
			attempts := 0
			c.PrependReactor("update", "leases", func(clienttest.Action) (bool, runtime.Object, error) {
				attempts++
				return fail, nil, failure
			})
			for second := range 60 {
				clock.now = at(time.Hour + time.Duration(second)*time.Second)
				l.sync(t.Context(), []Finding{blocked("shop/web", "a")})
			}
			if attempts < 3 || attempts > 8 {
				t.Errorf("%d attempts in a minute", attempts)
			}
			fail = false
			clock.now = at(2 * time.Hour)
			l.sync(t.Context(), []Finding{blocked("shop/web", "a")})
			diff.Has(t, "shop/web", theLease(t, c).Annotations[FindingsAnnotation], "not written after all")
		})
	}
}

// TestNodeLeaseThatSomebodyDeletes comes back at the next renewal.
func TestNodeLeaseThatSomebodyDeletes(t *testing.T) {
	c := fake.NewClientset()
	l, clock := nodeLeaseOf(t, c)
	l.sync(t.Context(), nil)
	fatal.If(t, c.CoordinationV1().Leases("namegate").Delete(t.Context(), "namegate-node-n1", metav1.DeleteOptions{}))
	for second := range 70 {
		clock.now = at(time.Duration(second) * time.Second)
		l.sync(t.Context(), nil)
	}
	theLease(t, c)
}

func TestLeaseName(t *testing.T) {
	long := strings.Repeat("node-with-a-long-name.", 12)[:250]
	other := long[:249] + "x"
	for _, node := range []string{"n1", "ip-10-0-0-1.example.org", long, other, strings.Repeat("a", 253)} {
		name := leaseName(node)
		diff.Empty(t, validation.IsDNS1123Subdomain(name), name)
	}
	if leaseName("n1") != "namegate-node-n1" || leaseName(long) == leaseName(other) {
		t.Error(leaseName("n1"), leaseName(long))
	}
}
