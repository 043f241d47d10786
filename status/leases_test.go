package status

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/statustest"
)

// readerTest is a leaseReader and the Leases that it looks at.
type readerTest struct {
	*leaseReader
	t       *testing.T
	client  *fake.Clientset
	version int
}

func newReaderTest(t *testing.T) *readerTest {
	c := fake.NewClientset()
	return &readerTest{leaseReader: &leaseReader{client: c, namespace: "namegate", log: statustest.Silent, seen: map[string]*seenLease{}}, t: t, client: c}
}

// renew writes a node's Lease, with the time of that node's clock.
func (s *readerTest) renew(node string, clock time.Time, findings ...Finding) {
	text, err := digestOf(sortedFindings(findings)).encode()
	fatal.If(s.t, err)
	s.write(node, clock, text)
}

func (s *readerTest) write(node string, clock time.Time, text string) {
	s.version++
	leases := s.client.CoordinationV1().Leases("namegate")
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "namegate", Name: leaseName(node), ResourceVersion: fmt.Sprint(s.version), UID: "uid",
		Annotations: map[string]string{NodeAnnotation: node, FindingsAnnotation: text},
	}, Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: clock}, HolderIdentity: new("agent-1")}}
	_ = leases.Delete(s.t.Context(), l.Name, metav1.DeleteOptions{})
	_, err := leases.Create(s.t.Context(), l, metav1.CreateOptions{})
	fatal.If(s.t, err)
}

func (s *readerTest) at(now time.Time) map[string][]entry {
	list, err := s.client.CoordinationV1().Leases("namegate").List(s.t.Context(), metav1.ListOptions{})
	fatal.If(s.t, err)
	var leases []*coordinationv1.Lease
	for i := range list.Items {
		leases = append(leases, &list.Items[i])
	}
	return s.gather(s.t.Context(), now, leases)
}

func (s *readerTest) left() (names []string) {
	list, err := s.client.CoordinationV1().Leases("namegate").List(s.t.Context(), metav1.ListOptions{})
	fatal.If(s.t, err)
	for _, l := range list.Items {
		names = append(names, l.Name)
	}
	return names
}

func (s *readerTest) addNode(name string) {
	_, err := s.client.CoreV1().Nodes().Create(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	fatal.If(s.t, err)
}

func TestLeaseReaderGathersAllNodes(t *testing.T) {
	s := newReaderTest(t)
	s.renew("n1", statustest.At(0), blocked("shop/web", "a"), blocked("shop/api", "a"))
	s.renew("n2", statustest.At(0), blocked("shop/web", "b"))
	s.write("n3", statustest.At(0), "{nonsense")
	got := s.at(statustest.At(0))
	if len(got) != 2 || len(got["shop/web"]) != 2 || len(got["shop/api"]) != 1 {
		t.Errorf("%+v", got)
	}
	s.renew("n2", statustest.At(time.Second))
	if got := s.at(statustest.At(time.Second)); len(got["shop/web"]) != 1 {
		t.Errorf("%+v", got)
	}
}

// TestLeaseReaderUsesItsOwnClock: a node whose clock is wrong counts as long as it renews.
func TestLeaseReaderUsesItsOwnClock(t *testing.T) {
	s := newReaderTest(t)
	s.addNode("n1")
	wrong := -48 * time.Hour
	for d := time.Duration(0); d < 10*staleAfter; d += renewEvery {
		s.renew("n1", statustest.At(wrong+d), blocked("shop/web", "a"))
		if got := s.at(statustest.At(d)); len(got) != 1 {
			t.Fatalf("after %v: %+v", d, got)
		}
	}
}

// TestLeaseReaderForgetsStaleLeases: and removes them, also where somebody else touches
// them; a new agent gives each its time first.
func TestLeaseReaderForgetsStaleLeases(t *testing.T) {
	s := newReaderTest(t)
	s.addNode("n1")
	s.renew("n1", statustest.At(0), blocked("shop/web", "a"))
	s.at(statustest.At(0))
	s.renew("n1", statustest.At(0), blocked("shop/web", "a")) // a new version with the old time
	if got := s.at(statustest.At(staleAfter - time.Second)); len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	later := newReaderTest(t)
	later.client, later.leaseReader.client = s.client, s.client
	if got := later.at(statustest.At(staleAfter)); len(got) != 1 {
		t.Errorf("an agent that is elected now: %+v", got)
	}
	if got := s.at(statustest.At(staleAfter)); len(got) != 0 || len(s.left()) != 0 {
		t.Errorf("%+v, Leases %q", got, s.left())
	}
	if s.at(statustest.At(staleAfter)); len(s.seen) != 0 {
		t.Errorf("%d Leases that are gone are remembered", len(s.seen))
	}
}

// TestLeaseReaderAsksForTheNode: a deleted node is not waited for.
func TestLeaseReaderAsksForTheNode(t *testing.T) {
	s := newReaderTest(t)
	s.addNode("n1")
	s.renew("n1", statustest.At(0), blocked("shop/web", "a"))
	s.renew("gone", statustest.At(0), blocked("shop/web", "b"))
	if got := s.at(statustest.At(0)); len(got["shop/web"]) != 2 {
		t.Fatalf("%+v", got)
	}
	if got := s.at(statustest.At(askAfter)); len(got["shop/web"]) != 1 || !slices.Equal(s.left(), []string{"namegate-node-n1"}) {
		t.Errorf("%+v, Leases %q", got, s.left())
	}
}

// TestLeaseReaderWithoutRights: what cannot be removed counts no more all the same.
func TestLeaseReaderWithoutRights(t *testing.T) {
	s := newReaderTest(t)
	s.renew("n1", statustest.At(0), blocked("shop/web", "a"))
	s.at(statustest.At(0))
	statustest.Refuse(s.client, "get", "nodes", "no")
	refused := statustest.Refuse(s.client, "delete", "leases", "no")
	if got := s.at(statustest.At(askAfter)); len(got) != 1 {
		t.Errorf("a Node that cannot be asked for is taken as gone: %+v", got)
	}
	if got := s.at(statustest.At(staleAfter)); len(got) != 0 || refused.Load() != 1 {
		t.Errorf("%+v, %d attempts", got, refused.Load())
	}
}
