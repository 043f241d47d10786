package enforcer

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestResolversStayOpenByDefault(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		w := newNode(t)
		w.cfg.FailClosed = closed
		w.restart()
		w.apply([]policy.Pod{pod("web", "10.1.0.5 2001:db8:1::5", "allow")}, pol("allow"))
		for _, d := range [][2]string{{"10.1.0.5", "192.0.2.53"}, {"2001:db8:1::5", "2001:db8::53"}} {
			if got := w.dials(d[0], d[1], 53); got == closed {
				t.Errorf("failclosed %v: %s reaches the resolver directly: %v", closed, d[0], got)
			}
		}
		for dialled, serving := range w.e.Status().Serving {
			src := "10.1.0.5"
			if serving.Is6() {
				src = "2001:db8:1::5"
			}
			if !w.dials(src, serving.String(), 53) {
				t.Errorf("failclosed %v: the agent's own address %s for %s is closed", closed, serving, dialled)
			}
		}
		if got := strings.Contains(w.inet.Dump(), "backends4 { 0 : 192.0.2.53 . 53 }"); got == closed {
			t.Errorf("failclosed %v: fallback %v", closed, got)
		}
	}
}

// TestDNSOfResolversAndAgents: an agent is asked also by the address of a resolver.
func TestDNSOfResolversAndAgents(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		w := newNode(t)
		w.cfg.FailClosed = closed
		w.restart()
		w.apply(nil)
		some := netip.MustParseAddr("203.0.113.9")
		for resolver, serving := range w.e.Status().Serving {
			for _, c := range []struct {
				dst, peer    netip.Addr
				port         uint16
				known, agent bool
			}{
				{resolver, serving, dnsPort, !closed, true}, {resolver, some, dnsPort, !closed, false}, {serving, serving, dnsPort, false, true},
				{some, some, dnsPort, false, false}, {resolver, serving, 853, false, false},
			} {
				f := conntrack.Flow{Dst: netip.AddrPortFrom(c.dst, c.port), Peer: netip.AddrPortFrom(c.peer, c.port)}
				if known, agent := w.e.isDNS(f); known != c.known || agent != c.agent {
					t.Errorf("failclosed %v, %s by %s: a resolver %v, an agent %v", closed, f.Dst, f.Peer, known, agent)
				}
			}
			diff.Equal(t, resolver, w.e.intercept.Resolver(serving), serving, "serves")
		}
		diff.Equal(t, some, w.e.intercept.Resolver(some), "an address that serves nothing")
	}
}

// TestHeartbeatsThatFailHaveTheKernelComparedOnce: to compare all tables every second takes
// time that the proxy may need.
func TestHeartbeatsThatFailHaveTheKernelComparedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.e.now = time.Now
		w.e.intercept = w.e.newInterception()
		w.e.intercept.Begin()
		ctx, cancel := context.WithCancel(t.Context())
		answers, suspicions := []error{nil, errInjected, errInjected, errInjected, errInjected, nil, errInjected}, 0
		var beats atomic.Int32
		go w.e.intercept.KeepAlive(ctx, func(ctx context.Context) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return answers[beats.Add(1)-1]
		}, func() {})
		for n, err := range answers {
			time.Sleep(time.Duration(min(n, 1)) * time.Second)
			synctest.Wait()
			select {
			case <-w.e.suspected:
				suspicions++
			default:
			}
			if got := w.e.drift.since(time.Now(), 0); (len(got) == 1 && got[0].Object == "heartbeat") != (err != nil) {
				t.Errorf("after heartbeat %d, %v, these deviate: %v", n, err, got)
			}
		}
		cancel()
		if n := int(beats.Load()); n != len(answers) || suspicions != 2 {
			t.Errorf("%d comparisons in %d heartbeats, which begin to fail twice", suspicions, n)
		}
	})
}

// TestHeartbeatFollowsTheWrite: interception goes on although the first commit takes longer,
// after the kernel leads queries to this agent, than the dead-man switch holds.
func TestHeartbeatFollowsTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := web(t)
		w.restart()
		w.e.now = time.Now
		w.e.intercept = w.e.newInterception()
		ctx, cancel := context.WithCancel(t.Context())
		var beats atomic.Int32
		go w.e.intercept.KeepAlive(ctx, func(context.Context) error { beats.Add(1); return nil }, func() {})
		coming := w.compile(nil)
		fatal.If(t, w.e.Prepare(ctx, coming))
		time.Sleep(layout.HeartbeatTimeout)
		if n := beats.Load(); n > 0 {
			t.Errorf("%d heartbeats while the kernel leads no query to this agent", n)
		}
		var slow bool
		w.seams.before = func(step string) {
			if !strings.HasPrefix(step, "destroy") || slow {
				return
			}
			slow = true
			time.Sleep(layout.HeartbeatTimeout + time.Second)
			if !w.e.intercept.On() {
				t.Errorf("interception ended while the commit went on at %q, after %d heartbeats", step, beats.Load())
			}
		}
		fatal.If(t, w.e.Commit(ctx))
		if cancel(); !slow {
			t.Error("nothing follows the write of the tables")
		}
	})
}
