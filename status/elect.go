package status

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// electionTimes are what client-go's election goes by.
type electionTimes struct {
	lease, renew, retry time.Duration
}

// defaultTimes are slower than client-go's own: with 1,000 nodes they make about 75 reads
// a second, and nothing that users wait for depends on the election. An agent that ends
// gives the Lease back; a lost agent is replaced in 48 s at most.
var defaultTimes = electionTimes{lease: 30 * time.Second, renew: 20 * time.Second, retry: 8 * time.Second}

// elect stands for election again and again until ctx ends.
func (r *Reporter) elect(ctx context.Context) {
	for ctx.Err() == nil {
		if !r.o.Uninstalling() {
			r.candidacy(ctx)
		}
		r.wait(ctx, nil, nodeTick)
	}
}

// candidacy waits to be elected and leads until the Lease is lost, ctx ends or
// Namegate is uninstalled. The Lease is given back after the last request of the term.
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
