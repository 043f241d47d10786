package grants

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

// results are those that callbacks received, in their order.
type results struct {
	mu   sync.Mutex
	list []result
}

type result struct {
	id   int
	err  error
	more bool
}

// callback is one Callback.
type callback struct {
	to   *results
	id   int
	left bool // nothing waits for the result
	// next, if set, is called with the result.
	next func(err error)
}

func (x *callback) Granted(err error, more bool) {
	x.to.mu.Lock()
	x.to.list = append(x.to.list, result{x.id, err, more})
	x.to.mu.Unlock()
	if x.next != nil {
		x.next(err)
	}
}

func (x *callback) Waits() bool { return !x.left }

func (l *results) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list)
}

// of returns the result of each of n callbacks, which must have one each.
func (l *results) of(t *testing.T, n int) []error {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	errs, times := make([]error, n), make([]int, n)
	for _, x := range l.list {
		errs[x.id] = x.err
		times[x.id]++
	}
	for i, n := range times {
		diff.Equal(t, 1, n, "calls of callback", i)
	}
	return errs
}

// Over several batches, each callback is called once, with more
// where another follows and there alone.
func TestEachCallbackIsCalledOnce(t *testing.T) {
	w, pods := crowd(t, 10)
	release := w.hang(t, pods[0])
	defer release()
	const asked = 3*batchGrants - 10
	var got results
	var grants [asked][]policy.Grant
	for i := range asked {
		grants[i] = w.grants(pods[i%10].PodRef, fmt.Sprintf("n%d.example.net", i), 60, fmt.Sprintf("192.0.2.%d 2001:db8::%d", 1+i%200, 1+i%200))
		w.table.GrantThen(grants[i], &callback{to: &got, id: i})
	}
	if got.count() != 0 {
		t.Fatal("a callback was called before the kernel has answered")
	}
	release()
	fatal.Await(t, "the last", func() bool { return got.count() == asked })
	for i, err := range got.of(t, asked) {
		if err != nil {
			t.Errorf("callback %d: %v", i, err)
		}
	}
	ends := 0
	for _, x := range got.list {
		if !x.more {
			ends++
		}
	}
	if batches := w.sets.count() - 1; ends != batches || got.list[asked-1].more {
		t.Errorf("%d batches, and %d times none followed", batches, ends)
	}
	for i := range grants {
		if !w.table.Covered(grants[i]) {
			t.Errorf("grant %d is acknowledged and not covered", i)
		}
	}
	diff.Equal(t, 0, w.table.Figures().Refused, "refusals")
}

// A grant that finds the queue full fails at once: a kernel that hangs holds no caller.
func TestAFullQueueIsAnError(t *testing.T) {
	w, pods := crowd(t, 1)
	release := w.hang(t, pods[0])
	defer release()
	var got results
	g := w.grants(pods[0].PodRef, "a.example.net", 60, "192.0.2.1")
	began := time.Now()
	for i := range waitingShare.Each {
		w.table.GrantThen(g, &callback{to: &got, id: i})
	}
	diff.MustEqual(t, 0, got.count(), "callbacks were called")
	for i := range 3 {
		w.table.GrantThen(g, &callback{to: &got, id: waitingShare.Each + i})
	}
	if took := time.Since(began); got.count() != 3 || took > time.Minute {
		t.Fatalf("%d callbacks were called after %v", got.count(), took)
	}
	for _, x := range got.list {
		if !errors.Is(x.err, errQueue) || x.more {
			t.Errorf("result %+v", x)
		}
	}
	release()
	fatal.Await(t, "the last", func() bool { return got.count() == waitingShare.Each+3 })
	for i, err := range got.of(t, waitingShare.Each+3)[:waitingShare.Each] {
		if err != nil {
			t.Fatalf("callback %d: %v", i, err)
		}
	}
	fatal.Await(t, "the end of the writer", func() bool { return !w.writing() })
}

// A callback may grant again, and the grants are the caller's own again once GrantThen has
// returned.
func TestACallbackMayGrantAgain(t *testing.T) {
	w, pods := crowd(t, 2)
	release := w.hang(t, pods[0])
	defer release()
	var got results
	first := w.grants(pods[0].PodRef, "a.example.net", 60, "192.0.2.1")
	second := w.grants(pods[1].PodRef, "b.example.net", 60, "192.0.2.2")
	w.table.GrantThen(first, &callback{to: &got, next: func(error) {
		w.table.GrantThen(second, &callback{to: &got, id: 1})
	}})
	was := first[0]
	first[0].Addrs[0], first[0].Name = addr("192.0.2.66"), second[0].Name
	was.Addrs = addrs("192.0.2.1")
	release()
	fatal.Await(t, "the second", func() bool { return got.count() == 2 })
	for i, err := range got.of(t, 2) {
		if err != nil {
			t.Errorf("callback %d: %v", i, err)
		}
	}
	if !w.table.Covered([]policy.Grant{was}) || w.table.Covered(first) {
		t.Error("an address was opened that was changed after the call")
	}
}

// TestPodsAreServedInTurns: behind a pod with as many requests as may wait, a neighbour's is in the next
// batch; and what nothing waits for any more is not written.
func TestPodsAreServedInTurns(t *testing.T) {
	w, pods := crowd(t, 3)
	release := w.hang(t, pods[2])
	defer release()
	var got results
	const flood = 4 * batchGrants
	ask := func(pod policy.Pod, i int, left bool) {
		g := w.grants(pod.PodRef, fmt.Sprintf("n%d.example.net", i), 60, fmt.Sprintf("198.18.%d.%d", i/250, i%250))
		w.table.GrantThen(g, &callback{to: &got, id: i, left: left})
	}
	for i := range flood {
		ask(pods[0], i, false)
	}
	ask(pods[0], flood, true)
	ask(pods[1], flood+1, false)
	release()
	fatal.Await(t, "the last", func() bool { return got.count() == flood+2 })
	errs := got.of(t, flood+2)
	for i, x := range got.list {
		if x.id == flood+1 && i >= batchGrants {
			t.Errorf("the neighbour is served after %d requests of the pod that floods", i)
		}
	}
	if !errors.Is(errs[flood], errLeft) || errs[flood+1] != nil {
		t.Errorf("results: %v for what nothing waits for, %v for the neighbour", errs[flood], errs[flood+1])
	}
	if n := w.table.Figures().Grants; n != flood+2 { // and the one that hung
		t.Errorf("%d grants, want all but the one that nothing waits for", n)
	}
}

// TestAnAnswerInParts: a request with more grants than a batch has is written whole, and none of its
// parts ends for another one where the pod has as many as it may.
func TestAnAnswerInParts(t *testing.T) {
	w, pods := crowd(t, 1)
	w.table.SetBounds(2*batchGrants, DefaultAll)
	request := func(net int) (all []policy.Grant) {
		for i := range 2*batchGrants - 20 {
			all = append(all, w.grants(pods[0].PodRef, "a.example.net", 60, fmt.Sprintf("198.%d.%d.%d", net, i/250, i%250))...)
		}
		return all
	}
	fatal.If(t, granttest.Grant(context.Background(), w.table, w.grants(pods[0].PodRef, "a.example.net", 60, "192.0.2.1")))
	if at := w.table.AtBound(); len(at) > 0 {
		t.Errorf("with one grant %v are at their bound", at)
	}
	for _, net := range []int{18, 19, 18} {
		all := request(net)
		if err := granttest.Grant(context.Background(), w.table, all); err != nil || !w.table.Covered(all) {
			t.Fatalf("198.%d.0.0: %v, covered %v", net, err, w.table.Covered(all))
		}
		if n := w.table.Figures().Grants; n > 2*batchGrants {
			t.Errorf("%d grants, the pod may have %d", n, 2*batchGrants)
		}
		if at := w.table.AtBound(); len(at) != 1 || at[0] != pods[0].PodRef {
			t.Errorf("pods at their bound: %v", at)
		}
	}
}
