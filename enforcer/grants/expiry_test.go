package grants

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

func TestDueQueueGivesBackInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var q deadlines
	var all []monotonic
	of := map[*grant]monotonic{}
	for range 500 {
		d := at(r.Int64N(1000))
		all = append(all, d)
		g := &grant{}
		of[g] = d
		q.enqueueAt(d, g)
	}
	slices.Sort(all)
	var got []monotonic
	for now := int64(0); now <= 1000; now += 50 {
		for _, g := range q.due(at(now), 1<<30) {
			if of[g] > at(now) {
				t.Fatalf("at %d: %v is not due", now, of[g])
			}
			got = append(got, of[g])
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
	diff.Equal(t, 0, w.sets.count(), "writes although nothing is due")
}

func TestExpiryOfAPodThatIsGoneIsNoError(t *testing.T) {
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	w.apply(nil)
	w.expire(time.Hour)
	diff.Equal(t, 0, w.table.Figures().Grants, "grants of a pod that is gone")
}

// TestHistoryIsBounded: a pod remembers as many names of ended grants as its share has, those that ended
// last, whatever number of sets and addresses they are of; and no place is left of what is forgotten.
func TestHistoryIsBounded(t *testing.T) {
	w, all := crowd(t, 5)
	a := addr("198.18.0.0")
	first, last := a, a
	for range remembered.Each + 10 {
		w.table.remember(w.table.get(grantSet(all[0].PodRef, https, false)), a, []reason{{name: dns("a.example.net")}})
		last, a = a, a.Next()
	}
	s := w.table.get(grantSet(all[0].PodRef, https, false))
	h := &s.of.past
	if len(s.past) != remembered.Each || h.names != remembered.Each || len(h.order) != remembered.Each {
		t.Errorf("%d ended grants are remembered, %d names, %d in order", len(s.past), h.names, len(h.order))
	}
	if s.past[first] != nil || s.past[last] == nil {
		t.Error("the one that ended first must be forgotten, not the last")
	}
	w.table.remember(s, last, []reason{{name: dns("b.example.net")}})
	for _, gone := range []int{0, 1} {
		is := s.forget(func(r reason) bool { return r.name == dns([]string{"b.example.net", "a.example.net"}[gone]) })
		if h.compact(); gone == 0 && (is != 0 || len(s.past[last]) != 1) || gone == 1 && (s.past[last] != nil || h.names+len(h.order) != 0) {
			t.Errorf("%d forgotten, %d names, %d in order, of the last %v", is, h.names, len(h.order), s.past[last])
		}
	}
	for i, p := range all {
		for range remembered.Each {
			w.table.remember(w.table.get(grantSet(p.PodRef, https, i%2 == 1)), a, []reason{{name: dns("a.example.net")}})
			a = a.Next()
		}
		if n := w.table.pod(p.PodRef).past.names; n < remembered.Least {
			t.Errorf("a pod beside %d others remembers %d", i, n)
		}
	}
	if w.table.ended > remembered.All {
		t.Errorf("all pods remember %d", w.table.ended)
	}
	w.apply(nil)
	diff.Equal(t, 0, w.table.ended, "remembered of pods that are gone")
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
	diff.Equal(t, 0, w.stays(p, "192.0.2.1"), "open after the deadline")
}
