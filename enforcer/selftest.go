package enforcer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
)

// Path is what became of a query that came in by a pod's interface.
type Path uint8

const (
	// PathUntested means: nothing is known. The pod is not selected or is a resolver
	// itself, no interface leads to it, no resolver of its families is intercepted,
	// or interception is off at the moment.
	PathUntested Path = iota
	// PathWorks means: the query came to the proxy.
	PathWorks
	// PathUnseen means: netfilter never saw the query, so nothing is enforced for this
	// pod: it crosses a bridge without br_netfilter, or is routed by eBPF.
	PathUnseen
	// PathBlocked means: the query came to our interception and not to the proxy: a rule
	// of somebody else dropped it.
	PathBlocked
)

// String returns the path in words.
func (p Path) String() string {
	switch p {
	case PathWorks:
		return "works"
	case PathUnseen:
		return "unseen by netfilter"
	case PathBlocked:
		return "blocked by another program's rule"
	}
	return "untested"
}

// testWait is how long a query may take to the proxy, testAgain when it is sent a
// second time: one that a full receive queue lost must not count.
const (
	testWait  = time.Second
	testAgain = testWait / 4
)

// TestPath puts a query into the pod's interface, one for each family that the
// pod has, by in, which is Kernel.Inject, and tells what became of it; where families differ the worse. probe
// names what to ask for and tells when it arrived at the proxy; done ends it. An
// error says why a path could not be tested. It takes up to two seconds.
func (e *Enforcer) TestPath(ctx context.Context, pod policy.PodRef, in func(iface string, packet []byte) error, probe func() (name string, arrived <-chan struct{}, done func())) (Path, error) {
	worst := PathUntested
	for _, v6 := range []bool{false, true} {
		q, ok := e.testQuery(pod, v6)
		if !ok {
			continue
		}
		path, err := e.tryQuery(ctx, q, in, probe)
		if err != nil {
			return PathUntested, fmt.Errorf("test the path of pod %s from %s by %s: %w", pod, q.source, q.iface, err)
		}
		worst = max(worst, path)
	}
	return worst, nil
}

// testQuery is a query of the self-test.
type testQuery struct {
	pod              policy.PodRef
	iface            string // the node's end of the pod's link
	source, resolver netip.Addr
}

// testQuery returns what to send for a pod. Not ok: nothing would come of it.
func (e *Enforcer) testQuery(pod policy.PodRef, v6 bool) (q testQuery, ok bool) {
	e.apply.Lock()
	defer e.apply.Unlock()
	p := e.plan[pod]
	if p == nil || !p.Isolated || !e.intercept.On() {
		return q, false
	}
	resolver, network := e.intercept.Dialled(v6), e.intercept.Network()
	for _, a := range p.Addrs {
		h, home := p.Homes[a]
		if a.Is6() != v6 || !home || !resolver.IsValid() || network.IsBackend(a) {
			continue
		}
		q = testQuery{pod: pod, iface: h.Iface, source: a, resolver: resolver}
		if h.Bridged() {
			q.iface = h.Port
		}
		return q, true
	}
	return q, false
}

// tryQuery sends a query and waits for what becomes of it.
func (e *Enforcer) tryQuery(ctx context.Context, q testQuery, in func(iface string, packet []byte) error, probe func() (string, <-chan struct{}, func())) (Path, error) {
	name, arrived, done := probe()
	defer done()
	packet := queryPacket(netip.AddrPortFrom(q.source, layout.ProbePort), netip.AddrPortFrom(q.resolver, 53), name)
	for _, wait := range []time.Duration{testAgain, testWait - testAgain} {
		if err := in(q.iface, packet); err != nil {
			return PathUntested, err
		}
		late := time.NewTimer(wait)
		defer late.Stop()
		select {
		case <-ctx.Done():
			return PathUntested, ctx.Err()
		case <-arrived:
			return PathWorks, nil
		case <-late.C:
		}
	}
	// A change meanwhile explains it.
	if now, ok := e.testQuery(q.pod, q.source.Is6()); !ok || now != q {
		return PathUntested, nil
	}
	seen, err := e.tablesInForce().Probed(ctx)
	if err != nil {
		return PathUntested, err
	}
	if slices.Contains(seen, q.source) {
		return PathBlocked, nil
	}
	return PathUnseen, nil
}
