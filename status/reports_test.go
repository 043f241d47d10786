package status

import (
	"fmt"
	"maps"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// reportsTest are reports and the Leases that they read.
type reportsTest struct {
	*reports
	t       *testing.T
	client  *fake.Clientset
	clock   time.Time
	version int
	news    map[string]int // by policy
}

func newReportsTest(t *testing.T, c *fake.Clientset) *reportsTest {
	s := &reportsTest{t: t, client: c, news: map[string]int{}}
	s.reports = newReports(&Reporter{o: Options{Client: c, Namespace: "namegate"}, log: silent, now: func() time.Time { return s.clock }}, func(id string) { s.news[id]++ })
	return s
}

// renew writes a node's Lease, with the time of that node's clock.
func (s *reportsTest) renew(node string, clock time.Time, findings ...Finding) {
	text, err := digestOf(sortedFindings(findings)).encode()
	fatal.If(s.t, err)
	s.write(node, clock, text)
}

func (s *reportsTest) write(node string, clock time.Time, text string) {
	s.version++
	leases := s.client.CoordinationV1().Leases("namegate")
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "namegate", Name: leaseName(node), ResourceVersion: fmt.Sprint(s.version), UID: "uid",
		Annotations: map[string]string{NodeAnnotation: node, FindingsAnnotation: text},
	}, Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: clock}, HolderIdentity: new("agent-1")}}
	_ = leases.Delete(s.t.Context(), l.Name, metav1.DeleteOptions{})
	_, err := leases.Create(s.t.Context(), l, metav1.CreateOptions{})
	fatal.If(s.t, err)
	s.OnUpdate(nil, l)
}

// at returns the policies of which nodes found something at a time.
func (s *reportsTest) at(now time.Time) map[string]int {
	s.clock = now
	s.expire(s.t.Context())
	got := map[string]int{}
	for id := range s.byPolicy {
		got[id] = len(s.of(id))
	}
	return got
}

func (s *reportsTest) left() (names []string) {
	list, err := s.client.CoordinationV1().Leases("namegate").List(s.t.Context(), metav1.ListOptions{})
	fatal.If(s.t, err)
	for _, l := range list.Items {
		names = append(names, l.Name)
	}
	return names
}

func TestReportsOfAllNodes(t *testing.T) {
	s := newReportsTest(t, fake.NewClientset())
	s.clock = at(0)
	s.renew("n1", at(0), blocked("shop/web", "a"), blocked("shop/api", "a"))
	s.renew("n2", at(0), blocked("shop/web", "b"))
	s.write("n3", at(0), "{nonsense")
	diff.Error(t, map[string]int{"shop/web": 2, "shop/api": 1}, s.at(at(0)))
	for i := range 10 { // renewals say the same
		s.renew("n2", at(time.Duration(i)*time.Second), blocked("shop/web", "b"))
	}
	diff.Error(t, map[string]int{"shop/web": 2, "shop/api": 1}, s.news, "news of")
	s.renew("n2", at(10*time.Second))
	l, err := s.client.CoordinationV1().Leases("namegate").Get(t.Context(), leaseName("n1"), metav1.GetOptions{})
	fatal.If(t, err)
	s.OnDelete(cache.DeletedFinalStateUnknown{Key: "namegate/" + l.Name, Obj: l})
	if got := s.at(at(10 * time.Second)); len(got) != 0 || len(s.byLease) != 2 || !maps.Equal(s.news, map[string]int{"shop/web": 4, "shop/api": 2}) {
		t.Errorf("%+v, news of %v", got, s.news)
	}
}

// TestReportsUseTheirOwnClock: a node whose clock is wrong counts as long as it renews.
func TestReportsUseTheirOwnClock(t *testing.T) {
	s := newReportsTest(t, fake.NewClientset())
	wrong := -48 * time.Hour
	for d := time.Duration(0); d < 10*staleAfter; d += renewEvery {
		s.clock = at(d)
		s.renew("n1", at(wrong+d), blocked("shop/web", "a"))
		if got := s.at(at(d)); len(got) != 1 {
			t.Fatalf("after %v: %+v", d, got)
		}
	}
}

// TestStaleReports end, and their Leases are removed, also where another program touches
// them; a new agent gives each its time first. A node that renews again counts again.
func TestStaleReports(t *testing.T) {
	s := newReportsTest(t, fake.NewClientset())
	s.clock = at(0)
	s.renew("n1", at(0), blocked("shop/web", "a"))
	s.clock = at(time.Minute)
	s.renew("n1", at(0), blocked("shop/web", "a")) // a new version with the old time
	if got := s.at(at(staleAfter - time.Second)); len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	refused := refuse(s.client, "delete", "leases", "no")
	for i := range 3 {
		if got := s.at(at(staleAfter)); len(got) != 0 || refused.Load() != int32(i+1) {
			t.Errorf("what cannot be removed counts: %+v, %d attempts", got, refused.Load())
		}
	}
	s.client.ReactionChain = s.client.ReactionChain[1:]
	s.renew("n1", at(staleAfter), blocked("shop/web", "a"))
	if got := s.at(at(staleAfter)); len(got) != 1 {
		t.Errorf("renewed: %+v", got)
	}
	if got := s.at(at(2 * staleAfter)); len(got) != 0 || len(s.left()) != 0 {
		t.Errorf("%+v, Leases %q", got, s.left())
	}
}

// TestManySilentNodes: nodes that are silent for a while cost no request, and reports of others do not wait
// for the removal of their Leases.
func TestManySilentNodes(t *testing.T) {
	s := newReportsTest(t, fake.NewClientset())
	s.clock = at(0)
	const silent = 500
	for i := range silent {
		s.renew(fmt.Sprint("n", i), at(0), blocked("shop/web", "a"))
	}
	s.client.ClearActions()
	if got := s.at(at(staleAfter - time.Second)); got["shop/web"] != silent || len(s.client.Actions()) != 0 {
		t.Errorf("%v after %d requests", got, len(s.client.Actions()))
	}
	s.client.PrependReactor("delete", "leases", func(clienttest.Action) (bool, runtime.Object, error) {
		if n := len(s.of("shop/web")); n != 0 { // it would block if the lock were held
			t.Errorf("%d entries count while Leases are removed", n)
		}
		return false, nil, nil
	})
	if s.at(at(staleAfter)); len(s.client.Actions()) != silent {
		t.Errorf("%d requests", len(s.client.Actions()))
	}
}
