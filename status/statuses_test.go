package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/status/backoff"
	"github.com/namegate/namegate/testkit/statustest"
)

func newStatuses(server *policyServer) (*statuses, *events.FakeRecorder) {
	recorder := events.NewFakeRecorder(100)
	return &statuses{client: server, recorder: recorder, log: statustest.Silent, written: map[types.UID]*written{}}, recorder
}

// one is write for one policy.
func (s *statuses) one(ctx context.Context, now time.Time, p *v1alpha1.FQDNNetworkPolicy, want []metav1.Condition) time.Duration {
	return s.write(ctx, func() time.Time { return now }, []status{namespacedStatus(p, want)})
}

// wanted is the status of a policy without findings.
func wanted(p *v1alpha1.FQDNNetworkPolicy) []metav1.Condition {
	return conditionsOf(p, fqdnnp.Validate(p), nil)
}

// emitted drains a recorder.
func emitted(r *events.FakeRecorder) (out []string) {
	for len(r.Events) > 0 {
		out = append(out, <-r.Events)
	}
	return out
}

// TestStatusIsWrittenOnce: and then not again, also before the source tells of it.
func TestStatusIsWrittenOnce(t *testing.T) {
	server := newPolicyServer(t, statustest.Policy("shop", "web"))
	s, recorder := newStatuses(server)
	old := server.get(t, "shop", "web")
	for i := range 10 {
		s.one(t.Context(), statustest.At(time.Duration(i)*time.Millisecond), old, wanted(old))
	}
	fresh := server.get(t, "shop", "web")
	for i := range 10 {
		if d := s.one(t.Context(), statustest.At(time.Duration(i)*time.Minute), fresh, wanted(fresh)); d != 0 {
			t.Errorf("looks again after %v", d)
		}
	}
	if n := len(server.written()); n != 1 {
		t.Errorf("%d writes", n)
	}
	if got := says(fresh, policy.ConditionAccepted); got != "True Accepted" {
		t.Error(got)
	}
	if said := emitted(recorder); len(said) != 0 {
		t.Errorf("events %q of a policy that is well", said)
	}
}

// TestStatusFollowsTheSpec: a later generation is written, with its events, and the
// time changes with the status alone.
func TestStatusFollowsTheSpec(t *testing.T) {
	server := newPolicyServer(t, statustest.Broken("shop", "web"))
	s, recorder := newStatuses(server)
	p := server.get(t, "shop", "web")
	s.one(t.Context(), statustest.At(0), p, wanted(p))
	p = server.get(t, "shop", "web")
	first := meta.FindStatusCondition(p.Status.Conditions, ConditionDNSBlocked)
	p.Generation, p.Spec = 2, statustest.Policy("shop", "web").Spec
	s.one(t.Context(), statustest.At(time.Minute), p, wanted(p))
	p = server.get(t, "shop", "web")
	c := meta.FindStatusCondition(p.Status.Conditions, policy.ConditionAccepted)
	if c.Status != metav1.ConditionTrue || c.ObservedGeneration != 2 || !c.LastTransitionTime.Time.Equal(statustest.At(time.Minute)) {
		t.Errorf("%+v", c)
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, ConditionDNSBlocked); c.ObservedGeneration != 2 || !c.LastTransitionTime.Equal(&first.LastTransitionTime) {
		t.Errorf("%+v", c)
	}
	said := emitted(recorder)
	if len(said) != 2 || said[0][:15] != "Warning Invalid" || said[1] != "Normal Accepted every part of the policy works" {
		t.Errorf("events %q", said)
	}
}

func TestStatusKeepsOthersConditions(t *testing.T) {
	p := statustest.Policy("shop", "web")
	p.Status.Conditions = []metav1.Condition{{Type: "Reviewed", Status: "True", Reason: "ByHand", LastTransitionTime: metav1.NewTime(statustest.At(-time.Hour))}}
	server := newPolicyServer(t, p)
	s, _ := newStatuses(server)
	s.one(t.Context(), statustest.At(0), p, wanted(p))
	if got := server.get(t, "shop", "web"); says(got, "Reviewed") != "True ByHand" || len(got.Status.Conditions) != 4 {
		t.Errorf("%+v", got.Status.Conditions)
	}
}

// TestStatusOfAStaleVersion: the policy was changed meanwhile, so nothing is overwritten;
// it is retried with the source's new state.
func TestStatusOfAStaleVersion(t *testing.T) {
	server := newPolicyServer(t, statustest.Policy("shop", "web"))
	s, _ := newStatuses(server)
	stale := server.get(t, "shop", "web")
	server.versions["shop/web"] = 5
	again := s.one(t.Context(), statustest.At(0), stale, wanted(stale))
	if again != backoff.First || len(server.get(t, "shop", "web").Status.Conditions) != 0 {
		t.Fatalf("again after %v, %+v", again, server.get(t, "shop", "web").Status)
	}
	fresh := stale.DeepCopy()
	fresh.ResourceVersion = "5"
	if left := s.one(t.Context(), statustest.At(time.Millisecond), fresh, wanted(fresh)); left <= 0 || left > backoff.First {
		t.Errorf("again after %v", left)
	}
	s.one(t.Context(), statustest.At(again), fresh, wanted(fresh))
	if got := says(server.get(t, "shop", "web"), policy.ConditionAccepted); got != "True Accepted" || len(server.written()) != 2 {
		t.Errorf("%s after %d writes", got, len(server.written()))
	}
}

// TestContenders: two agents that both think they are elected, and disagree, write
// less and less.
func TestContenders(t *testing.T) {
	server := newPolicyServer(t, statustest.Policy("shop", "web"))
	yes, _ := newStatuses(server)
	no, _ := newStatuses(server)
	perHour := make([]int, 3)
	for second := range 3 * 3600 {
		now := statustest.At(time.Duration(second) * time.Second)
		p := server.get(t, "shop", "web")
		yes.one(t.Context(), now, p, conditionsOf(p, nil, nil))
		p = server.get(t, "shop", "web")
		no.one(t.Context(), now, p, conditionsOf(p, nil, []entry{{Reason: NotSeen, Message: "not seen"}}))
		perHour[second/3600] = len(server.written())
	}
	if last := perHour[2] - perHour[1]; last > 2*int(time.Hour/backoff.Most)+2 || perHour[0] > 50 {
		t.Errorf("writes after each hour: %v", perHour)
	}
}

// TestStatusAfterAConflict: a new status is written immediately, however long the conflict
// lasted.
func TestStatusAfterAConflict(t *testing.T) {
	server := newPolicyServer(t, statustest.Policy("shop", "web"))
	s, _ := newStatuses(server)
	now := statustest.At(0)
	for range 15 { // another writer removes it again and again
		bare := server.get(t, "shop", "web")
		bare.Status.Conditions = nil
		server.versions["shop/web"]++
		bare.ResourceVersion = fmt.Sprint(server.versions["shop/web"])
		now = now.Add(backoff.Most)
		s.one(t.Context(), now, bare, wanted(bare))
	}
	before := len(server.written())
	if before != 15 {
		t.Fatalf("%d writes: no quarrel", before)
	}
	server.versions["shop/web"]++ // the other has just written
	p := server.get(t, "shop", "web")
	p.ResourceVersion = fmt.Sprint(server.versions["shop/web"])
	news := conditionsOf(p, nil, []entry{{Reason: IPVS, Message: "m"}})
	if left := s.one(t.Context(), now.Add(time.Millisecond), p, news); left != backoff.First-time.Millisecond {
		t.Errorf("looks again after %v", left)
	}
	s.one(t.Context(), now.Add(time.Second), p, news)
	if got := says(server.get(t, "shop", "web"), ConditionEnforced); got != "False IPVS" || len(server.written()) != before+1 {
		t.Errorf("%s after %d writes", got, len(server.written())-before)
	}
}

// TestStatusThatCannotBeRead: where the source leaves the status out, as it does with
// a policy that it cannot read whole, it is written once and not in a loop.
func TestStatusThatCannotBeRead(t *testing.T) {
	server := newPolicyServer(t, statustest.Policy("shop", "web"))
	s, _ := newStatuses(server)
	for i := range 100 {
		p := server.get(t, "shop", "web")
		p.Status.Conditions = nil
		s.one(t.Context(), statustest.At(time.Duration(i)*time.Minute), p, wanted(p))
	}
	if n := len(server.written()); n != 1 {
		t.Errorf("%d writes", n)
	}
}

func TestStatusFails(t *testing.T) {
	resource := v1alpha1.GroupVersionResource().GroupResource()
	for name, err := range map[string]error{
		"away": errors.New("connection refused"), "forbidden": apierrors.NewForbidden(resource, "web", nil), "gone": apierrors.NewNotFound(resource, "web"),
	} {
		t.Run(name, func(t *testing.T) {
			server := newPolicyServer(t, statustest.Broken("shop", "web"))
			s, recorder := newStatuses(server)
			p := server.get(t, "shop", "web")
			server.setFail(err)
			for second := range 600 {
				s.one(t.Context(), statustest.At(time.Duration(second)*time.Second), p, wanted(p))
			}
			if n := len(server.written()); n < 5 || n > 12 {
				t.Errorf("%d attempts in ten minutes", n)
			}
			if said := emitted(recorder); len(said) > 0 {
				t.Errorf("events %q of what is not written", said)
			}
			server.setFail(nil)
			s.one(t.Context(), statustest.At(time.Hour), p, wanted(p))
			if got := says(server.get(t, "shop", "web"), policy.ConditionAccepted); got != "False Invalid" {
				t.Error(got)
			}
		})
	}
}

func TestStatusOfDeletedPolicies(t *testing.T) {
	server := newPolicyServer(t, statustest.Policy("shop", "web"), statustest.Policy("shop", "api"))
	s, _ := newStatuses(server)
	web, api := server.get(t, "shop", "web"), server.get(t, "shop", "api")
	s.one(t.Context(), statustest.At(0), api, wanted(api))
	web.DeletionTimestamp = &metav1.Time{Time: statustest.At(0)}
	s.one(t.Context(), statustest.At(0), web, wanted(web))
	if got := server.written(); !slices.Equal(got, []string{"shop/api"}) {
		t.Errorf("wrote %q", got)
	}
	s.forget(map[types.UID]bool{web.UID: true})
	if len(s.written) != 0 {
		t.Errorf("%d policies that are gone are remembered", len(s.written))
	}
}
