// Package granttest has a granter of the proxy for tests, and has grants made by one.
package granttest

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/policytest"
)

// Grant has grants made, and returns the result, or the error of ctx if that ends first.
func Grant(ctx context.Context, by AsyncGranter, grants []policy.Grant) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := waiter{ctx, make(chan error, 1)}
	by.GrantThen(grants, w)
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Fresh returns grants of addresses that were never granted, pod by pod in turn, to pods that may
// reach *.example.net.
func Fresh(s *policy.Snapshot, pods []policy.Pod, count int, now time.Time) [][]policy.Grant {
	o := s.ViewOf(pods[0].PodRef).Decide(policytest.Name("n.example.net")).Openings(3600)[0]
	out := make([][]policy.Grant, count)
	for i := range out {
		p, n := pods[i%len(pods)].PodRef, i/len(pods)
		out[i] = []policy.Grant{{
			Pod: p, View: s.ViewOf(p), Name: policytest.Name(fmt.Sprintf("host-%d.example.net", i)), Ports: o.Ports, Deadline: now.Add(o.Lifetime), By: o.By,
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{198, 18 + byte(n>>16), byte(n >> 8), byte(n)})},
		}}
	}
	return out
}

// AsyncGranter is the part of a proxy.Granter that Grant needs.
type AsyncGranter interface {
	GrantThen(grants []policy.Grant, then interface {
		Granted(err error, more bool)
		Waits() bool
	})
}

// waiter waits for a result until a context ends.
type waiter struct {
	ctx  context.Context
	done chan error
}

func (w waiter) Granted(err error, _ bool) { w.done <- err }
func (w waiter) Waits() bool               { return w.ctx.Err() == nil }

// Granter is a proxy.Granter that remembers instead of opening. The zero value
// acknowledges everything at once. It is safe for many goroutines.
type Granter struct {
	// Err, if not nil, is asked before each call is remembered; its error is
	// returned instead.
	Err func(ctx context.Context, grants []policy.Grant) error

	mu     sync.Mutex
	grants []policy.Grant
}

// Grant remembers copies of the grants. It fails if Err does or ctx is over.
func (f *Granter) Grant(ctx context.Context, grants []policy.Grant) error {
	if f.Err != nil {
		if err := f.Err(ctx, grants); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range grants {
		g.Addrs, g.By = slices.Clone(g.Addrs), slices.Clone(g.By)
		f.grants = append(f.grants, g)
	}
	return nil
}

// Share has no bound.
func (f *Granter) Share() int { return math.MaxInt }

// GrantThen is Grant.
func (f *Granter) GrantThen(grants []policy.Grant, then interface {
	Granted(err error, more bool)
	Waits() bool
}) {
	then.Granted(f.Grant(context.Background(), grants), false)
}

// Covered tells whether all of this was granted, until then or later.
func (f *Granter) Covered(grants []policy.Grant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	covers := func(g policy.Grant, a netip.Addr) bool {
		return slices.ContainsFunc(f.grants, func(have policy.Grant) bool {
			return have.Pod == g.Pod && have.Name == g.Name && have.Ports == g.Ports && have.Rule == g.Rule && !have.Deadline.Before(g.Deadline) && slices.Contains(have.Addrs, a)
		})
	}
	for _, g := range grants {
		for _, a := range g.Addrs {
			if !covers(g, a) {
				return false
			}
		}
	}
	return true
}

// Epoch never changes: nothing is taken away.
func (f *Granter) Epoch() uint64 { return 0 }

// Grants returns everything granted so far, in its order.
func (f *Granter) Grants() []policy.Grant {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.grants)
}

// Granted tells whether the pod was granted the address, on any ports.
func (f *Granter) Granted(p policy.PodRef, a netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.grants, func(g policy.Grant) bool {
		return g.Pod == p && slices.Contains(g.Addrs, a)
	})
}
