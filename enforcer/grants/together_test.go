package grants

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
	"github.com/namegate/namegate/testkit/short"
)

// hang lets the first write hang with a grant of the pod, until the returned
// function is called.
func (n *node) hang(t *testing.T, p policy.Pod) (release func()) {
	t.Helper()
	release = n.sets.block()
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() {
		left <- granttest.Grant(ctx, n.table, n.grants(p.PodRef, "first.example.net", 60, "203.0.113.1"))
	}()
	fatal.Await(t, "the first write", func() bool { return n.sets.count() == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatalf("the first caller: %v", err)
	}
	return release
}

// together makes grants at the same time, while a write is under way, and returns
// their errors after it is done.
func together(t *testing.T, w *node, release func(), asked [][]policy.Grant) []error {
	t.Helper()
	errs := make([]error, len(asked))
	var wait sync.WaitGroup
	for i, g := range asked {
		wait.Go(func() { errs[i] = granttest.Grant(context.Background(), w.table, g) })
	}
	fatal.Await(t, "the queue", func() bool { return w.waiting() == len(asked) })
	release()
	wait.Wait()
	return errs
}

func TestGrantsAreWrittenTogether(t *testing.T) {
	w, pods := crowd(t, 10)
	release := w.hang(t, pods[0])
	defer release()
	var asked [][]policy.Grant
	for i := range 200 {
		asked = append(asked, w.grants(pods[i%10].PodRef, fmt.Sprintf("n%d.example.net", i), 60, fmt.Sprintf("192.0.2.%d 2001:db8::%d", 1+i/20, 1+i/20)))
	}
	for i, err := range together(t, w, release, asked) {
		if err != nil {
			t.Errorf("grant %d: %v", i, err)
		}
		if !w.table.Covered(asked[i]) {
			t.Errorf("grant %d is acknowledged and not covered", i)
		}
	}
	diff.Equal(t, 2, w.sets.count(), "writes: the first, and one for 200 grants")
	if ops := w.sets.writes[1]; len(ops) != 20 || len(ops[0].Grants) != 10 {
		t.Errorf("%d ops, the first with %d grants; want one for each set with each address once", len(ops), len(ops[0].Grants))
	}
	// Two names of one address, asked for in one batch: both are there.
	if es := w.entries(pods[3], false); len(es) != 10 || len(parsed(es[0].Comment)) != 2 {
		t.Errorf("entries %v", es)
	}
}

func TestGrantsHaveSeparateResults(t *testing.T) {
	tests := []struct {
		what  string
		spoil func(w *node, p policy.Pod)
		is    func(error) bool
		open  int // of the pod's addresses in the kernel afterwards, at most
	}{
		{"a missing set", func(w *node, p policy.Pod) {
			w.sets.destroy(set4(p))
		}, dataplane.IsNoSet, 0},
		{"a full set", func(w *node, p policy.Pod) {
			w.sets.instead = func(op *dataplane.GrantOp) error {
				if op.Set.Name != set4(p) {
					return w.sets.do(op)
				}
				op.Grants = op.Grants[:1]
				return errors.Join(w.sets.do(op), errInjected)
			}
		}, func(err error) bool { return errors.Is(err, errInjected) }, 1},
		{"an error before", func(w *node, p policy.Pod) {
			w.sets.instead = func(op *dataplane.GrantOp) error {
				if op.Set.Name == set4(p) {
					return errInjected
				}
				return w.sets.do(op)
			}
		}, func(err error) bool { return errors.Is(err, errInjected) }, 0},
		{"an error after", func(w *node, p policy.Pod) {
			w.sets.instead = func(op *dataplane.GrantOp) error {
				err := w.sets.do(op)
				if op.Set.Name == set4(p) {
					err = errInjected
				}
				return err
			}
		}, func(err error) bool { return errors.Is(err, errInjected) }, 3},
		{"a policy that went", func(w *node, p policy.Pod) {
			w.table.pod(p.PodRef).views = nil
		}, func(err error) bool { return err != nil && !dataplane.IsNoSet(err) }, 0},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			w, pods := crowd(t, 5)
			test.spoil(w, pods[2])
			release := w.hang(t, pods[0])
			defer release()
			var asked [][]policy.Grant
			for i := range 15 {
				asked = append(asked, w.grants(pods[i%5].PodRef, fmt.Sprintf("n%d.example.net", i), 60, fmt.Sprintf("192.0.2.%d", 1+i)))
			}
			for i, err := range together(t, w, release, asked) {
				switch spoilt := i%5 == 2; {
				case spoilt && !test.is(err):
					t.Errorf("grant %d: %v", i, err)
				case !spoilt && (err != nil || !w.table.Covered(asked[i])):
					t.Errorf("grant %d, of another set: %v", i, err)
				case spoilt && w.table.Covered(asked[i]):
					t.Errorf("grant %d was refused, and is covered", i)
				}
			}
			diff.Equal(t, 2, w.sets.count(), "writes: the first, and one")
			if n := len(w.entries(pods[2], false)); n > test.open {
				t.Errorf("%d addresses are open", n)
			}
			diff.Equal(t, 3, w.table.Figures().Refused, "refusals")
		})
	}
}

// writing tells whether the writer runs.
func (n *node) writing() bool {
	n.table.queue.mu.Lock()
	defer n.table.queue.mu.Unlock()
	return n.table.queue.writing
}

// waiting returns how many requests wait for the writer.
func (n *node) waiting() int {
	n.table.queue.mu.Lock()
	defer n.table.queue.mu.Unlock()
	return n.table.queue.waiting.Len()
}

func TestAHangingKernelHoldsNoCaller(t *testing.T) {
	w, pods := crowd(t, 3)
	release := w.hang(t, pods[0])
	defer release()
	const callers = 3 * batchGrants
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	errs := make(chan error, callers)
	for i := range callers {
		go func() {
			errs <- granttest.Grant(ctx, w.table, w.grants(pods[i%3].PodRef, "a.example.net", 60, fmt.Sprintf("198.18.%d.%d", i/250, i%250)))
		}()
	}
	for range callers {
		select {
		case err := <-errs:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("a caller of a kernel that hangs: %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a caller is held past its deadline")
		}
	}
	release()
	// Requests of callers that left are not written; the one that hung is, and the next.
	g := w.grants(pods[1].PodRef, "b.example.net", 60, "192.0.2.9")
	if err := granttest.Grant(context.Background(), w.table, g); err != nil || !w.table.Covered(g) {
		t.Errorf("after the kernel came back: %v", err)
	}
	diff.Equal(t, 2, w.table.Figures().Grants, "grants: the first and the last")
	fatal.Await(t, "the end of the writer", func() bool { return !w.writing() })
}

// The writer ends when nothing waits; a request that comes before its last look is written by it, without
// another one.
func TestNoRequestIsForgotten(t *testing.T) {
	w, pods := crowd(t, 1)
	w.table.queue.writing = true // a writer that is about to look
	done := make(chan error, 1)
	go func() {
		done <- granttest.Grant(context.Background(), w.table, w.grants(pods[0].PodRef, "a.example.net", 60, "192.0.2.1"))
	}()
	fatal.Await(t, "the request", func() bool { return w.waiting() == 1 })
	if !w.writing() {
		t.Fatal("the writer ends, and a request waits")
	}
	go w.table.runWriter()
	if err := <-done; err != nil {
		t.Error(err)
	}
	fatal.Await(t, "the end of the writer", func() bool { return !w.writing() })
	if left := w.table.gather(); len(left) > 0 || w.writing() {
		t.Error("a writer without work stays")
	}
}

// shaky is a kernel that refuses, refuses after it has done it, or stops halfway.
func shaky(w *node, r *rand.Rand) func(op *dataplane.GrantOp) error {
	var mu sync.Mutex
	return func(op *dataplane.GrantOp) error {
		mu.Lock()
		fate, half := r.IntN(12), r.IntN(len(op.Grants)+1)
		mu.Unlock()
		switch fate {
		case 0:
			return errInjected
		case 1:
			return errors.Join(w.sets.do(op), errInjected)
		case 2:
			op.Grants = op.Grants[:half]
			return errors.Join(w.sets.do(op), errInjected)
		}
		return w.sets.do(op)
	}
}

// Many callers grant at the same time, while policies change, deadlines pass and the kernel
// fails. Acknowledged and covered addresses are open, addresses that no policy allows any
// more are not, and at the end none is.
func TestConcurrentLife(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, faulty := range []bool{false, true} {
		w, pods := crowd(t, 6)
		if faulty {
			w.sets.instead = shaky(w, rand.New(rand.NewPCG(seed, 1)))
		}
		var clients, others sync.WaitGroup
		var looked atomic.Int64
		over := make(chan struct{})
		for n := range 12 {
			r := rand.New(rand.NewPCG(seed, uint64(n+10)))
			clients.Go(func() { looked.Add(ask(t, w, pods, r, short.Rounds(150, 150, 1_500))) })
		}
		both := []string{"tcp/443 *.example.net", "tcp/443 *.example.net www.example.org"}
		others.Go(func() { // the policy changes, and always allows the names that are asked for
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
					_ = w.rollOut(w.compile(pods, pol("allow", both[i%2])))
				}
			}
		})
		others.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					w.Pass(time.Millisecond)
					if err := w.table.Expire(); err != nil && !errors.Is(err, errInjected) {
						t.Errorf("expire: %v", err)
					}
				}
			}
		})
		others.Go(func() { // listings see whole grants
			for {
				select {
				case <-over:
					return
				default:
				}
				for _, o := range w.table.ListGrants(pods[0].PodRef) {
					if o.Pod != pods[0].PodRef || o.By != "shop/allow *.example.net" || o.Ports != https || !o.Addr.IsValid() {
						t.Errorf("half a grant: %+v", o)
						return
					}
				}
				w.table.NamesOfAnybody(addr("192.0.2.1"))
				w.table.NamesOf(pods[0].PodRef, addr("192.0.2.1"))
			}
		})
		clients.Wait()
		close(over)
		others.Wait()
		w.sets.instead = nil
		if looked.Load() < 200 {
			t.Errorf("%d acknowledged addresses were looked at: the test does not see them", looked.Load())
		}
		w.apply(pods, pol("allow", "tcp/443 *.example.net"))
		w.expire(0) // what was written after its deadline
		sameAsKernel(t, w, faulty)
		// One name goes; with it what it alone had opened, also what the kernel had refused and done.
		w.apply(pods, pol("allow", "tcp/443 n1.example.net"))
		w.expire(0) // where the name that is left had ended
		sameAsKernel(t, w, faulty)
		w.expire(time.Hour)
		w.expire(2 * expiryRetry)
		diff.Equal(t, 0, w.table.Figures().Grants, "grants after all deadlines")
		for _, p := range pods {
			if es := w.entries(p, false); len(es) != 0 {
				t.Errorf("%s: the kernel still holds %v", p.Name, es)
			}
		}
	}
}

// ask makes random grants, looks at once whether those that were acknowledged are
// there, and returns how many addresses it has looked at before their deadline.
func ask(t *testing.T, w *node, pods []policy.Pod, r *rand.Rand, times int) (looked int64) {
	for range times {
		p := pods[r.IntN(len(pods))]
		g := policy.Grant{
			Pod: p.PodRef, Name: dns(fmt.Sprintf("n%d.example.net", r.IntN(4))), Ports: https,
			Deadline: w.Now().Add(time.Duration(30+r.IntN(90)) * time.Second), By: []string{"shop/allow *.example.net"},
		}
		for range 1 + r.IntN(3) {
			g.Addrs = append(g.Addrs, netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(40))}))
		}
		asked := []policy.Grant{g}
		if !w.table.Covered(asked) && granttest.Grant(context.Background(), w.table, asked) != nil {
			continue
		}
		for _, a := range g.Addrs {
			// The kernel's timeout is the deadline and the hold, by the clock of now.
			left := w.stays(p, a.String())
			need := g.Deadline.Sub(w.Now())
			if need > 0 && left < need+hold {
				t.Errorf("%s is acknowledged for %v, and the kernel has %v", a, need, left)
			}
			if need > 0 {
				looked++
			}
		}
	}
	return looked
}

// sameAsKernel compares the table with the kernel: certain addresses are there for as
// long, and no others but the uncertain ones.
func sameAsKernel(t *testing.T, w *node, faulty bool) {
	t.Helper()
	now := w.table.cfg.Clock.at(w.Now())
	for s := range w.table.all() {
		es, _ := w.sets.list(s.key.Name)
		open := map[netip.Addr]time.Duration{}
		for _, e := range es {
			open[e.Addr] = e.Timeout
			if s.at(e.Addr) == nil {
				t.Errorf("%s: %s is open, and the table does not know it", s.key.Name, e.Addr)
			}
		}
		for _, g := range s.entries {
			a := g.address()
			if s.uncertain[a] {
				if !faulty {
					t.Errorf("%s: %s is uncertain without a fault", s.key.Name, a)
				}
				continue
			}
			if !near(open[a], time.Duration(g.until()-now)) {
				t.Errorf("%s: %s has %v in the kernel, and ends in %v", s.key.Name, a, open[a], time.Duration(g.until()-now))
			}
			if len(parsed(commentOf(es, a))) == 0 {
				t.Errorf("%s: %s has no reason in the kernel", s.key.Name, a)
			}
		}
	}
}

func commentOf(es []dataplane.Grant, a netip.Addr) string {
	for _, e := range es {
		if e.Addr == a {
			return e.Comment
		}
	}
	return ""
}
