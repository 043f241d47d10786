package enforcer

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

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// counting counts the writes, and lets a test meddle with them.
type counting struct {
	ipset.Interface
	mu     sync.Mutex
	writes [][]ipset.Op
	gate   chan struct{} // writes wait until it is closed; nil: they do not
	// meddle does an op in place of the kernel, where it is set.
	meddle func(op *ipset.Op) error
}

func (c *counting) Apply(ops []ipset.Op) {
	c.mu.Lock()
	var full []ipset.Op
	for _, op := range ops {
		if len(op.Entries) > 0 {
			full = append(full, op)
		}
	}
	if len(full) > 0 {
		c.writes = append(c.writes, full)
	}
	gate, meddle := c.gate, c.meddle
	c.mu.Unlock()
	if gate != nil && len(full) > 0 {
		<-gate
	}
	if meddle == nil {
		c.Interface.Apply(ops)
		return
	}
	for i := range ops {
		if ops[i].Err = nil; len(ops[i].Entries) > 0 {
			ops[i].Err = meddle(&ops[i])
		}
	}
}

func (c *counting) Add(name string, entries ...ipset.Entry) error {
	return c.one(ipset.Op{Set: name, Entries: entries})
}

func (c *counting) Delete(name string, entries ...ipset.Entry) error {
	return c.one(ipset.Op{Set: name, Delete: true, Entries: entries})
}

func (c *counting) one(op ipset.Op) error {
	ops := []ipset.Op{op}
	c.Apply(ops)
	return ops[0].Err
}

func (c *counting) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.writes)
}

// crowd is a node with pods that may reach *.example.net, whose writes of grants
// are counted.
func crowd(t testing.TB, pods int) (*world, []policy.Pod, *counting) {
	w := newWorld(t)
	var all []policy.Pod
	for i := range pods {
		all = append(all, pod(fmt.Sprintf("p%d", i), fmt.Sprintf("10.1.0.%d 2001:db8:1::%x", i+1, i+1), "allow"))
	}
	w.apply(all, pol("allow", "tcp/443 *.example.net"))
	c := &counting{Interface: w.sets}
	w.e.k.Sets = c
	return w, all, c
}

// hang lets the first write hang with a grant of the pod, until the returned
// function is called.
func (c *counting) hang(t *testing.T, w *world, p policy.Pod) (release func()) {
	t.Helper()
	c.gate = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() {
		left <- w.e.Grant(ctx, w.grants(w.snap, p.PodRef, "first.example.net", 60, "203.0.113.1"))
	}()
	until(t, "the first write", func() bool { return c.count() == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatalf("the first caller: %v", err)
	}
	return sync.OnceFunc(func() { close(c.gate) })
}

// until waits for something that must come.
func until(t *testing.T, what string, there func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !there(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come", what)
		}
	}
}

// together makes grants at the same time, while a write is under way, and returns
// their errors after it is done.
func together(t *testing.T, w *world, release func(), asked [][]policy.Grant) []error {
	t.Helper()
	errs := make([]error, len(asked))
	var wait sync.WaitGroup
	for i, g := range asked {
		wait.Go(func() { errs[i] = w.e.Grant(context.Background(), g) })
	}
	until(t, "the queue", func() bool { return len(w.e.queue) == len(asked) })
	release()
	wait.Wait()
	return errs
}

func TestGrantsAreWrittenTogether(t *testing.T) {
	w, pods, c := crowd(t, 10)
	release := c.hang(t, w, pods[0])
	defer release()
	var asked [][]policy.Grant
	for i := range 200 {
		asked = append(asked, w.grants(w.snap, pods[i%10].PodRef, fmt.Sprintf("n%d.example.net", i), 60, fmt.Sprintf("192.0.2.%d 2001:db8::%d", 1+i/20, 1+i/20)))
	}
	for i, err := range together(t, w, release, asked) {
		if err != nil {
			t.Errorf("grant %d: %v", i, err)
		}
		if !w.e.Covered(asked[i]) {
			t.Errorf("grant %d is acknowledged and not covered", i)
		}
	}
	if n := c.count(); n != 2 {
		t.Errorf("%d writes, want the first and one for 200 grants", n)
	}
	if ops := c.writes[1]; len(ops) != 20 || len(ops[0].Entries) != 10 {
		t.Errorf("%d ops, the first with %d entries; want one for each set with each address once", len(ops), len(ops[0].Entries))
	}
	// Two names of one address, asked for in one batch: both are there.
	if es := w.entries(pods[3], https, iptables.IPv4); len(es) != 10 || len(parseComment(es[0].Comment, w.e.started)) != 2 {
		t.Errorf("entries %v", es)
	}
}

func TestEachGrantHasItsOwnResult(t *testing.T) {
	tests := []struct {
		what  string
		spoil func(w *world, c *counting, p policy.Pod)
		is    func(error) bool
		open  int // of the pod's addresses in the kernel afterwards, at most
	}{
		{"a missing set", func(w *world, c *counting, p policy.Pod) {
			if err := w.sets.Destroy(grantSetName(p.PodRef, https, iptables.IPv4)); err != nil {
				t.Fatal(err)
			}
		}, ipset.IsNotFound, 0},
		{"a full set", func(w *world, c *counting, p policy.Pod) {
			name := grantSetName(p.PodRef, https, iptables.IPv4)
			small := grantSetHeader(name, grantKey{p.PodRef, https, iptables.IPv4})
			small.MaxElem = 1
			if err := errors.Join(w.sets.Destroy(name), w.sets.Ensure(small)); err != nil {
				t.Fatal(err)
			}
		}, ipset.IsFull, 1},
		{"an error before", func(w *world, c *counting, p policy.Pod) {
			c.meddle = func(op *ipset.Op) error {
				if op.Set == grantSetName(p.PodRef, https, iptables.IPv4) {
					return errInjected
				}
				return w.sets.Add(op.Set, op.Entries...)
			}
		}, func(err error) bool { return errors.Is(err, errInjected) }, 0},
		{"an error after", func(w *world, c *counting, p policy.Pod) {
			c.meddle = func(op *ipset.Op) error {
				err := w.sets.Add(op.Set, op.Entries...)
				if op.Set == grantSetName(p.PodRef, https, iptables.IPv4) {
					err = errInjected
				}
				return err
			}
		}, func(err error) bool { return errors.Is(err, errInjected) }, 3},
		{"a policy that went", func(w *world, c *counting, p policy.Pod) {
			w.e.grants.of(p.PodRef).views = nil
		}, func(err error) bool { return err != nil && !ipset.IsNotFound(err) }, 0},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			w, pods, c := crowd(t, 5)
			test.spoil(w, c, pods[2])
			release := c.hang(t, w, pods[0])
			defer release()
			var asked [][]policy.Grant
			for i := range 15 {
				asked = append(asked, w.grants(w.snap, pods[i%5].PodRef, fmt.Sprintf("n%d.example.net", i), 60, fmt.Sprintf("192.0.2.%d", 1+i)))
			}
			for i, err := range together(t, w, release, asked) {
				switch spoilt := i%5 == 2; {
				case spoilt && !test.is(err):
					t.Errorf("grant %d: %v", i, err)
				case !spoilt && (err != nil || !w.e.Covered(asked[i])):
					t.Errorf("grant %d, of another set: %v", i, err)
				case spoilt && w.e.Covered(asked[i]):
					t.Errorf("grant %d was refused, and is covered", i)
				}
			}
			if n := c.count(); n != 2 {
				t.Errorf("%d writes, want the first and one", n)
			}
			if n := len(w.entries(pods[2], https, iptables.IPv4)); n > test.open {
				t.Errorf("%d addresses are open", n)
			}
			if got := w.e.Status().Refused; got != 4 {
				t.Errorf("%d refusals counted, want 3 and the one that left", got)
			}
		})
	}
}

// One request of two sets fails where either does, and opens what it can.
func TestAGrantOfTwoSets(t *testing.T) {
	for _, bad := range []iptables.Family{iptables.IPv4, iptables.IPv6} {
		w, pods, _ := crowd(t, 1)
		if err := w.sets.Destroy(grantSetName(pods[0].PodRef, https, bad)); err != nil {
			t.Fatal(err)
		}
		g := w.grants(w.snap, pods[0].PodRef, "a.example.net", 60, "192.0.2.1 2001:db8::1")
		if err := w.e.Grant(context.Background(), g); !ipset.IsNotFound(err) {
			t.Errorf("without the %v set: %v", bad, err)
		}
		w.reconcile()
		if err := w.e.Grant(context.Background(), g); err != nil || !w.e.Covered(g) {
			t.Errorf("with the set made anew: %v", err)
		}
	}
}

func TestAHangingKernelHoldsNobody(t *testing.T) {
	w, pods, c := crowd(t, 3)
	release := c.hang(t, w, pods[0])
	defer release()
	const callers = 3 * writersMax // more than there are places for
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	errs := make(chan error, callers)
	for i := range callers {
		go func() {
			errs <- w.e.Grant(ctx, w.grants(w.snap, pods[i%3].PodRef, "a.example.net", 60, fmt.Sprintf("198.18.%d.%d", i/250, i%250)))
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
	// Who left is not written for; what hung is, and the next one is served.
	g := w.grants(w.snap, pods[1].PodRef, "b.example.net", 60, "192.0.2.9")
	if err := w.e.Grant(context.Background(), g); err != nil || !w.e.Covered(g) {
		t.Errorf("after the kernel came back: %v", err)
	}
	if n := w.e.Status().Grants; n != 2 {
		t.Errorf("%d grants, want the first and the last", n)
	}
	until(t, "the end of the writer", func() bool { return !w.e.writing.Load() })
}

// The writer goes when nothing waits; whoever comes between its last look and that
// is served all the same.
func TestNobodyIsForgotten(t *testing.T) {
	w, pods, _ := crowd(t, 1)
	w.e.writing.Store(true) // a writer that has just found nothing
	done := make(chan error, 1)
	go func() {
		done <- w.e.Grant(context.Background(), w.grants(w.snap, pods[0].PodRef, "a.example.net", 60, "192.0.2.1"))
	}()
	until(t, "the request", func() bool { return len(w.e.queue) == 1 })
	if w.e.retire() {
		t.Fatal("the writer goes, and somebody waits")
	}
	go w.e.serveQueue()
	if err := <-done; err != nil {
		t.Error(err)
	}
	until(t, "the end of the writer", func() bool { return !w.e.writing.Load() })
	if !w.e.retire() || w.e.writing.Load() {
		t.Error("a writer without work stays")
	}
}

// shaky is a kernel that refuses, refuses after it has done it, or stops halfway.
func shaky(w *world, r *rand.Rand) func(op *ipset.Op) error {
	var mu sync.Mutex
	return func(op *ipset.Op) error {
		mu.Lock()
		fate, half := r.IntN(12), r.IntN(len(op.Entries)+1)
		mu.Unlock()
		do := w.sets.Add
		if op.Delete {
			do = w.sets.Delete
		}
		switch fate {
		case 0:
			return errInjected
		case 1:
			return errors.Join(do(op.Set, op.Entries...), errInjected)
		case 2:
			return errors.Join(do(op.Set, op.Entries[:half]...), errInjected)
		}
		return do(op.Set, op.Entries...)
	}
}

// Many ask at the same time, while policies change, deadlines pass and the kernel
// fails. What is acknowledged, or covered, is open; what is not allowed any more
// is not; and at the end nothing is.
func TestConcurrentLife(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, faulty := range []bool{false, true} {
		w, pods, c := crowd(t, 6)
		if faulty {
			c.meddle = shaky(w, rand.New(rand.NewPCG(seed, 1)))
		}
		var askers, others sync.WaitGroup
		var looked atomic.Int64
		over := make(chan struct{})
		for n := range 12 {
			r := rand.New(rand.NewPCG(seed, uint64(n+10)))
			askers.Go(func() { looked.Add(ask(t, w, pods, r, 150)) })
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
					w.clock.pass(time.Millisecond)
					if err := w.e.Expire(); err != nil && !errors.Is(err, errInjected) {
						t.Errorf("expire: %v", err)
					}
				}
			}
		})
		askers.Wait()
		close(over)
		others.Wait()
		c.meddle = nil
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
		if n := w.e.Status().Grants; n != 0 {
			t.Errorf("%d grants after all deadlines", n)
		}
		for _, p := range pods {
			if es := w.entries(p, https, iptables.IPv4); len(es) != 0 {
				t.Errorf("%s: the kernel still holds %v", p.Name, es)
			}
		}
	}
}

// ask makes random grants, looks at once whether those that were acknowledged are
// there, and returns how many addresses it has looked at before their deadline.
func ask(t *testing.T, w *world, pods []policy.Pod, r *rand.Rand, times int) (looked int64) {
	for range times {
		p := pods[r.IntN(len(pods))]
		g := policy.Grant{
			Pod: p.PodRef, Name: dns(fmt.Sprintf("n%d.example.net", r.IntN(4))), Ports: https,
			Deadline: w.clock.now().Add(time.Duration(30+r.IntN(90)) * time.Second), By: []string{"shop/allow *.example.net"},
		}
		for range 1 + r.IntN(3) {
			g.Addrs = append(g.Addrs, netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(40))}))
		}
		asked := []policy.Grant{g}
		covered := w.e.Covered(asked)
		if err := w.e.Grant(context.Background(), asked); err != nil {
			if covered {
				t.Errorf("covered, and then: %v", err)
			}
			continue
		}
		for _, a := range g.Addrs {
			// The kernel's timeout is the deadline and the hold, by the clock of now.
			left := w.left(p, https, a.String())
			need := g.Deadline.Sub(w.clock.now())
			if need > 0 && left < need+DefaultHold {
				t.Errorf("%s is acknowledged for %v, and the kernel has %v", a, need, left)
			}
			if need > 0 {
				looked++
			}
		}
	}
	return looked
}

// sameAsKernel compares the table with the kernel: what is certain is there for
// as long, and nothing else is but what is in doubt.
func sameAsKernel(t *testing.T, w *world, faulty bool) {
	t.Helper()
	now := w.e.moment(w.clock.now())
	for _, p := range *w.e.grants.pods.Load() {
		for s := range p.all() {
			es, err := w.e.k.Sets.List(s.name)
			if err != nil {
				t.Fatal(err)
			}
			open := map[netip.Addr]time.Duration{}
			for _, e := range es {
				open[e.Addr] = e.Timeout
				if s.entries[e.Addr] == nil {
					t.Errorf("%s: %s is open, and nobody knows", s.name, e.Addr)
				}
			}
			for a, g := range s.entries {
				if s.doubt[a] {
					if !faulty {
						t.Errorf("%s: %s is in doubt without a fault", s.name, a)
					}
					continue
				}
				if !near(open[a], time.Duration(g.until()-now)) {
					t.Errorf("%s: %s has %v in the kernel, and ends in %v", s.name, a, open[a], time.Duration(g.until()-now))
				}
				if len(parseComment(commentOf(es, a), w.e.started)) == 0 {
					t.Errorf("%s: %s has no reason in the kernel", s.name, a)
				}
			}
		}
	}
}

func commentOf(es []ipset.Entry, a netip.Addr) string {
	for _, e := range es {
		if e.Addr == a {
			return e.Comment
		}
	}
	return ""
}
