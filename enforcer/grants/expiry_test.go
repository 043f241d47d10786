package grants

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
)

func TestDueQueueGivesBackInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var q deadlineQueue
	var all []monotonic
	for range 500 {
		d := at(r.Int64N(1000))
		all = append(all, d)
		q.push(deadline{at: d})
	}
	slices.Sort(all)
	var got []monotonic
	for now := int64(0); now <= 1000; now += 50 {
		for _, d := range q.due(at(now), 1<<30) {
			if d.at > at(now) {
				t.Fatalf("at %d: %v is not due", now, d.at)
			}
			got = append(got, d.at)
		}
	}
	if !slices.Equal(got, all) {
		t.Error("the queue lost a deadline or its order")
	}
}

func TestEndedGrantsAreTakenOutTogether(t *testing.T) {
	w, p := web(t)
	for i := range 50 {
		w.answer(p, fmt.Sprintf("n%d.example.net", i), 60, fmt.Sprintf("192.0.2.%d", i+1))
	}
	w.sets.ops()
	w.expire(120 * time.Second)
	if _, got := w.sets.ops(); got != 1 {
		t.Errorf("%d deletions for one set", got)
	}
	w.expire(time.Hour)
	if got := w.sets.count(); got != 0 {
		t.Errorf("nothing is due, and yet there are %d writes", got)
	}
}

func TestExpiryOfAPodThatIsGoneIsNoError(t *testing.T) {
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	w.apply(nil)
	w.expire(time.Hour)
	if got := w.table.Count(); got != 0 {
		t.Errorf("%d grants of a pod that is gone", got)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	s := &set{}
	h := &s.past
	a := addr("198.18.0.0")
	first, last := a, a
	for range historyMax + 10 {
		s.remember(a, []reason{{name: dns("a.test")}})
		last, a = a, a.Next()
	}
	if len(h.reasons) != historyMax || len(h.order) != historyMax {
		t.Errorf("%d ended grants are remembered, %d in order", len(h.reasons), len(h.order))
	}
	if h.reasons[first] != nil || h.reasons[last] == nil {
		t.Error("the one that ended first must be forgotten, not the last")
	}
	b := []reason{{name: dns("b.test")}}
	s.remember(last, b)
	if gone := h.prune(func(r reason) bool { return r.name != dns("a.test") }); gone != 0 || len(h.reasons[last]) != 1 {
		t.Errorf("pruned %v, and %v of the last is kept", gone, h.reasons[last])
	}
	h.reasons[last] = b
	gone := h.prune(func(r reason) bool { return r.name != dns("a.test") })
	if gone != 1 || h.reasons[last] != nil || len(h.reasons) != historyMax-1 || len(h.order) != historyMax-1 {
		t.Errorf("pruned %v, %d left, %d in order", gone, len(h.reasons), len(h.order))
	}
}

func TestAGrantThatCameBackEndsOnce(t *testing.T) {
	w := newNode(t)
	web := pod("web", "one", "two")
	one, two := pol("one", "tcp/443 www.example.org"), pol("two", "tcp/443 www.example.net")
	w.apply([]policy.Pod{web}, one, two)
	w.answer(web, "www.example.org", 60, "192.0.2.1")
	w.apply([]policy.Pod{web}, two)
	w.apply([]policy.Pod{web}, one, two)
	w.answer(web, "www.example.org", 600, "192.0.2.1")
	w.expire(120 * time.Second)
	w.expire(time.Hour)
	if w.stays(web, "192.0.2.1") != 0 {
		t.Error("still open")
	}
}

func TestARefusedDeletionIsTriedAgain(t *testing.T) {
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	w.Pass(120 * time.Second)
	w.sets.fail(1, false)
	if err := w.table.Expire(); !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	w.expire(125 * time.Second)
	if got := w.stays(p, "192.0.2.1"); got != 0 {
		t.Errorf("open for another %v after the deadline", got)
	}
}
