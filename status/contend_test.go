package status

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttest "k8s.io/client-go/testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

var errServerAway = errAway{}

// errAway is an API server that does not answer.
type errAway struct{}

func (errAway) Error() string { return "the API server is away" }

// TestAPIServerUnavailable: everything is refused for a while, and told when it is back. No
// request storm comes of it, and the agent ends in time all the same.
func TestAPIServerUnavailable(t *testing.T) {
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{aPolicy("shop", "web")}, nil, func(t *testing.T, w *world) {
		var away atomic.Bool
		var requests atomic.Int32
		away.Store(true)
		w.client.PrependReactor("*", "*", func(clienttest.Action) (bool, runtime.Object, error) {
			if !away.Load() {
				return false, nil, nil
			}
			requests.Add(1)
			return true, nil, apierrors.NewServiceUnavailable("away")
		})
		stop := w.start("n1")
		w.findings["n1"] = []Finding{blocked("shop/web", "a")}
		w.pass(10 * time.Minute)
		if n := requests.Load(); n == 0 || n > 200 {
			t.Errorf("%d requests in ten minutes", n)
		}
		away.Store(false)
		w.pass(2 * time.Minute)
		diff.Equal(t, "True DNSBlocked", w.says("web", ConditionDNSBlocked))
		away.Store(true)
		began := time.Now()
		stop()
		if took := time.Since(began); took > defaultTimes.renew {
			t.Errorf("it took %v to end", took)
		}
	})
}

// TestPoliciesThatCannotBeRead: the source's problem is in the policy's condition.
func TestPoliciesThatCannotBeRead(t *testing.T) {
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{aPolicy("shop", "web")}, nil, func(t *testing.T, w *world) {
		stop := w.start("n1")
		defer stop()
		w.cluster.Problems = []policy.Problem{{Object: "policy shop/web", Reason: policy.ReasonPartiallyInvalid, Path: "spec", Message: "the policy cannot be read"}}
		w.pass(2 * time.Second)
		diff.Equal(t, "True PartiallyInvalid", w.says("web", policy.ConditionAccepted))
	})
}

// TestNothingIsWrittenBeforeTheState: an agent that knows nothing yet does not take back what the agent
// before it found.
func TestNothingIsWrittenBeforeTheState(t *testing.T) {
	inWorld(t, nil, nil, func(t *testing.T, w *world) {
		r, err := New(Options{Client: w.client, Dynamic: w.policies, Namespace: "namegate", Node: "n1", Identity: "agent-n1", Log: silent})
		fatal.If(t, err)
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- r.Run(ctx) }()
		time.Sleep(time.Minute)
		if got := w.leases(); len(got) != 1 {
			t.Errorf("Leases %q, want that of the election alone", got)
		}
		cancel()
		fatal.If(t, <-done)
	})
}

// reads counts the reads of the elected agent's Lease.
func (w *world) reads() *atomic.Int32 {
	n := &atomic.Int32{}
	w.client.PrependReactor("get", "leases", func(a clienttest.Action) (bool, runtime.Object, error) {
		if a.(clienttest.GetAction).GetName() == LeaderLease {
			n.Add(1)
		}
		return false, nil, nil
	})
	return n
}

// TestElectionReadsSeldom: the agents of a large cluster together read the Lease of the elected
// one about twice a second, and do not start at once.
func TestElectionReadsSeldom(t *testing.T) {
	const agents, measured = 400, 5
	inWorld(t, nil, nil, func(t *testing.T, w *world) {
		defer w.start("elected")()
		w.pass(3 * time.Second)
		reads := w.reads()
		w.total = agents
		for i := range measured {
			defer w.start(fmt.Sprint("n", i))()
		}
		w.pass(3 * time.Second)
		if reads.Load() == measured {
			t.Error("all agents read at their start")
		}
		const span = 600 // seconds
		time.Sleep(span * time.Second)
		// Twice a second, at most twice as often by chance, and the first read of each.
		if n := reads.Load(); n < measured || n > measured*(1+2*2*span/agents) {
			t.Errorf("%d reads in %d s of %d agents of %d", n, span, measured, agents)
		}
	})
}

// TestElectionTakeover: a Lease that is given back is taken within 7 s, and the Lease of a lost
// agent within 48 s. The conditions of policies stay, and the next agent writes them.
func TestElectionTakeover(t *testing.T) {
	for name, c := range map[string]struct {
		lost   bool
		within time.Duration
	}{
		"given back": {false, 7 * time.Second},
		"lost":       {true, 48 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, []*v1alpha1.FQDNNetworkPolicy{aPolicy("shop", "web")}, nil, func(t *testing.T, w *world) {
				var lost atomic.Bool
				w.client.PrependReactor("update", "leases", func(a clienttest.Action) (bool, runtime.Object, error) {
					l := a.(clienttest.UpdateAction).GetObject().(*coordinationv1.Lease)
					if lost.Load() && l.Name == LeaderLease && (l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != "agent-n2") {
						return true, nil, errServerAway
					}
					return false, nil, nil
				})
				stop := w.start("n1")
				w.pass(3 * time.Second)
				defer w.start("n2")()
				w.pass(time.Minute)
				diff.MustEqual(t, "agent-n1", w.leader(), "the leader at first")
				lost.Store(c.lost)
				began := time.Now()
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					stop()
				}()
				for w.leader() != "agent-n2" && time.Since(began) < 5*time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(began); took > c.within {
					t.Errorf("it took %v", took)
				}
				<-gone
				if got := w.says("web", policy.ConditionAccepted); got != "True Accepted" || len(w.policies.written()) != 1 {
					t.Errorf("%s after %d writes", got, len(w.policies.written()))
				}
				w.findings["n2"] = []Finding{blocked("shop/web", "a")}
				w.pass(10 * time.Second)
				diff.Equal(t, "True DNSBlocked", w.says("web", ConditionDNSBlocked))
			})
		})
	}
}

// TestElectionWithWrongClock: an agent whose clock differs from the elected one's does not take
// the Lease over, and does not read it all the time.
func TestElectionWithWrongClock(t *testing.T) {
	inWorld(t, nil, nil, func(t *testing.T, w *world) {
		defer w.start("n1")()
		w.pass(3 * time.Second)
		reads := w.reads()
		w.total = 1000
		for i, wrong := range []time.Duration{-time.Hour, time.Hour} {
			w.now = func() time.Time { return time.Now().Add(wrong) }
			defer w.start(fmt.Sprint("wrong-", i))()
		}
		for range 20 {
			time.Sleep(time.Minute)
			diff.MustEqual(t, "agent-n1", w.leader(), "the leader")
		}
		// A look and a candidacy are at most eleven reads, and there are at most six of them.
		if n := reads.Load(); n < 2 || n > 2*6*11 {
			t.Errorf("%d reads in twenty minutes", n)
		}
	})
}
