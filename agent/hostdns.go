package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy"
)

const (
	// loopRetest is how often a resolver that leads back to itself is tested again.
	loopRetest = time.Minute
	// loopDoubt is the least time between two tests of a resolver whose queries end without an
	// answer.
	loopDoubt = 10 * time.Second
	// loopTries is how often a resolver that does not answer is tested before it is intercepted,
	// loopPause the pause between two tests: the failsafe that lets the query leave may come into
	// force meanwhile.
	loopTries = 3
	loopPause = 500 * time.Millisecond
)

// hostDNS decides for which resolvers of the host the node's own queries are led to the agent:
// while policies with names select the node, for those that do not lead back to themselves.
type hostDNS struct {
	test func(ctx context.Context, resolver netip.Addr) (back []netip.Addr, answered bool, err error)
	// changed has the network attached and settled again.
	changed func()
	now     func() time.Time
	log     *slog.Logger

	mu        sync.Mutex
	resolvers []netip.Addr // of the host, in its order
	wanted    bool         // by the policies
	settled   bool         // the kernel may lead queries to an agent, and notes tests
	tested    map[netip.Addr]loopTest
	wake      chan struct{}
}

// loopTest is the last test of a resolver.
type loopTest struct {
	at    time.Time
	loops bool
	doubt bool // it has to be tested again
}

func newHostDNS(test func(context.Context, netip.Addr) ([]netip.Addr, bool, error), changed func(), now func() time.Time, log *slog.Logger) *hostDNS {
	return &hostDNS{test: test, changed: changed, now: now, log: log, tested: map[netip.Addr]loopTest{}, wake: make(chan struct{}, 1)}
}

// recover takes over the resolvers whose queries the agent before this one served: they passed its
// test. They are tested again while they are intercepted.
func (h *hostDNS) recover(resolvers []netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range resolvers {
		h.tested[r] = loopTest{doubt: true}
	}
	h.settled = len(resolvers) > 0
}

// setResolvers takes over the resolvers of the host, in its order. Those on loopback are left
// out: they are stubs, and their own queries are intercepted. So are link-local ones of IPv6, which
// the agent cannot ask without their interface.
func (h *hostDNS) setResolvers(all []netip.Addr) {
	var resolvers []netip.Addr
	for _, r := range all {
		if r = policy.CleanAddr(r); r.IsValid() && !r.IsLoopback() && !r.IsUnspecified() && !(r.Is6() && r.IsLinkLocalUnicast()) && !intercept.InRange(r) && !slices.Contains(resolvers, r) {
			resolvers = append(resolvers, r)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Equal(resolvers, h.resolvers) {
		return
	}
	h.resolvers = resolvers
	h.notify()
	if h.wanted {
		h.changed()
	}
}

// follow takes over whether policies of a snapshot need the names that the node asks for, and tells
// whether that is a change.
func (h *hostDNS) follow(snap *policy.Snapshot) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := asksNames(snap.Node())
	changed = wanted != h.wanted
	h.wanted = wanted
	return changed
}

// asksNames tells whether a view has rules with names, or rules of Audit policies, whose log has
// the names.
func asksNames(v *policy.View) bool {
	if v == nil {
		return false
	}
	for r := range v.Rules.All() {
		if r.Audit || len(r.Matches) > 0 {
			return true
		}
	}
	return false
}

// addTo completes a network.
func (h *hostDNS) addTo(n *intercept.Network) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n.NodeDNS = h.wanted; !h.wanted {
		return
	}
	for _, r := range h.resolvers {
		if t, tested := h.tested[r]; tested && !t.loops {
			n.HostResolvers = append(n.HostResolvers, r)
		}
	}
}

// host returns how the proxy serves the node. assigned are resolvers with a serving address.
func (h *hostDNS) host(assigned map[netip.Addr]netip.Addr, mark uint32) (out proxy.Host) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wanted {
		out.Resolvers = slices.Clone(h.resolvers)
	}
	if h.wanted || h.settled { // until no rule leads the agent's own queries to itself
		out.Mark = mark
	}
	for r := range assigned {
		if !slices.Contains(out.Resolvers, r) {
			out.Former = append(out.Former, r)
		}
	}
	slices.SortFunc(out.Former, netip.Addr.Compare)
	return out
}

// setSettled takes over whether the kernel has the rules of the tests.
func (h *hostDNS) setSettled(nodeDNS bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.settled != nodeDNS {
		h.settled = nodeDNS
		h.notify()
	}
}

// unanswered has a resolver tested again. It does not block.
func (h *hostDNS) unanswered(resolver netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t, tested := h.tested[resolver]; tested && !t.loops && !t.doubt {
		t.doubt = true
		h.tested[resolver] = t
		h.notify()
	}
}

func (h *hostDNS) notify() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// run tests resolvers until ctx ends.
func (h *hostDNS) run(ctx context.Context) {
	for {
		due, pause := h.due()
		for _, r := range due {
			h.testOne(ctx, r)
		}
		if len(due) > 0 && ctx.Err() == nil {
			continue
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-h.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// due returns the resolvers that have to be tested now, and how long there are no others.
func (h *hostDNS) due() (out []netip.Addr, pause time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pause = loopRetest
	if !h.wanted || !h.settled {
		return nil, pause
	}
	for _, r := range h.resolvers {
		t, tested := h.tested[r]
		switch left := t.at.Sub(h.now()); {
		case !tested, t.doubt && left+loopDoubt <= 0, t.loops && left+loopRetest <= 0:
			out = append(out, r)
		case t.doubt:
			pause = min(pause, left+loopDoubt)
		case t.loops:
			pause = min(pause, left+loopRetest)
		}
	}
	return out, pause
}

func (h *hostDNS) testOne(ctx context.Context, r netip.Addr) {
	var back []netip.Addr
	var answered bool
	var err error
	for try := 0; try < loopTries && !answered && len(back) == 0 && err == nil; try++ {
		if try > 0 && wait(ctx, loopPause) != nil {
			return
		}
		back, answered, err = h.test(ctx, r)
	}
	if ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last, tested := h.tested[r]
	// A resolver that does not answer now may lead back to itself when it does.
	now := loopTest{at: h.now(), loops: slices.Contains(back, r), doubt: !answered}
	now.doubt = now.doubt && !now.loops
	if err != nil { // the kernel cannot be asked: what was known stays, a new resolver stays untouched
		h.log.Warn("cannot test whether queries to a resolver of the host come back", "resolver", r, "error", err)
		now.loops = !tested || last.loops
	}
	h.tested[r] = now
	if others := slices.DeleteFunc(back, func(a netip.Addr) bool { return a == r }); len(others) > 0 && !tested {
		h.log.Info("a resolver of the host is a forwarder on this node", "resolver", r, "asks", others)
	}
	if tested && now.loops == last.loops {
		return
	}
	if now.loops && err == nil {
		h.log.Error("queries to a resolver of the host come back to it; the node's own queries to it are not intercepted", "resolver", r)
	}
	h.changed()
}

// testLoop is the test of hostDNS.
func (a *agent) testLoop(ctx context.Context, resolver netip.Addr) ([]netip.Addr, bool, error) {
	return a.enforce.Interception().TestLoop(ctx, resolver, a.proxy.AskResolver)
}
