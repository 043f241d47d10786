package status

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// electionTimes are what client-go's election goes by.
type electionTimes struct {
	lease, renew, retry time.Duration
}

// defaultTimes let an agent replace a lost one in 48 s at most, in a cluster of few agents:
// two renewals are missed, the next read comes within 6 s, and the candidate waits for the
// Lease and at most 2.2 times retry. Nothing that users wait for depends on the election. An
// agent that ends gives the Lease back.
var defaultTimes = electionTimes{lease: 24 * time.Second, renew: 16 * time.Second, retry: 4 * time.Second}

// perAgent is how seldom each agent reads the Lease, for each agent of the cluster: all
// agents together read it twice a second.
const perAgent = 500 * time.Millisecond

// elect reads the Lease now and then until ctx ends, and stands for election where it looks free.
func (r *Reporter) elect(ctx context.Context) {
	// Agents that start at once do not read at once.
	rest := rand.N(1 + r.readPeriod() - r.terms.retry)
	for r.wait(ctx, nil, rest) {
		if !r.o.Uninstalling() && r.vacant(ctx) {
			r.candidacy(ctx)
		}
		rest = r.readPeriod()/2 + rand.N(r.readPeriod())
	}
}

// readPeriod is the mean time between two reads of the Lease by this agent.
func (r *Reporter) readPeriod() time.Duration {
	return max(r.terms.retry, time.Duration(r.o.Agents())*perAgent)
}

// vacant tells whether the Lease looks free: the holder released it or has missed two
// renewals. The clocks of two nodes may differ, so only a candidacy decides.
func (r *Reporter) vacant(ctx context.Context) bool {
	l, err := r.o.Client.CoordinationV1().Leases(r.o.Namespace).Get(ctx, LeaderLease, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true
	case err != nil:
		r.log.Debug("cannot read the Lease of the elected agent", "lease", LeaderLease, "error", err)
		return false
	case l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || *l.Spec.HolderIdentity == r.o.Identity || l.Spec.RenewTime == nil:
		return true
	}
	return r.now().Sub(l.Spec.RenewTime.Time).Abs() > 2*r.terms.retry
}

// candidacy waits to be elected, as long as a lost holder's Lease lasts, and leads until the
// Lease is lost, ctx ends or Namegate is uninstalled. The Lease is given back after the last
// request of the term.
func (r *Reporter) candidacy(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	held, giveBack := context.WithCancel(context.WithoutCancel(ctx))
	defer giveBack()
	elected := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: LeaderLease, Lock: r.lock(), ReleaseOnCancel: true,
		LeaseDuration: r.terms.lease, RenewDeadline: r.terms.renew, RetryPeriod: r.terms.retry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(term context.Context) { elected <- term },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil { // the times above do not fit together
		r.log.Error("no agent can be elected here", "error", err)
		<-ctx.Done()
		return
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		elector.Run(held)
	}()
	go r.stopWhenUninstalling(ctx, stop)
	select {
	case term := <-elected:
		context.AfterFunc(term, stop)
		r.lead(ctx)
	case <-over:
	case <-time.After(r.terms.lease + 3*r.terms.retry): // the holder renews
	case <-ctx.Done():
	}
	giveBack()
	<-over
}

func (r *Reporter) lock() resourcelock.Interface {
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: LeaderLease, Namespace: r.o.Namespace},
		Client:     r.o.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: r.o.Identity},
	}
}

func (r *Reporter) stopWhenUninstalling(ctx context.Context, stop func()) {
	for r.wait(ctx, nil, nodeTick) {
		if r.o.Uninstalling() {
			stop()
			return
		}
	}
}
