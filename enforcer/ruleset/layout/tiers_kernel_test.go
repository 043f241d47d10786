package layout_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestDNSBeforeRules: no rule denies DNS that comes before rules, to a resolver or to the agent
// that serves in its place, and every other port of both is denied.
func TestDNSBeforeRules(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, network lab.Network) {
		w := newStage(t, network, []string{"before", "after"}, 80)
		s := layout.State{DNS: []netip.Addr{lab.Resolver4, lab.Resolver6}}
		for _, pod := range []string{"before", "after"} {
			s.Selected, s.Pods = append(s.Selected, w.addrs(pod)...), append(s.Pods, w.addrs(pod))
			s.Tiers = append(s.Tiers, layout.Tiers{ID: pod, Subjects: w.addrs(pod), DNS: pod == "before", Admin: []*layout.TierRule{{Action: layout.Reject}}})
		}
		w.apply(s)
		// The server takes the connection, and answers nothing that is no DNS.
		taken := func(pod string, at netip.Addr) {
			t.Helper()
			conn, err := w.Pod(pod).Dial("tcp", netip.AddrPortFrom(at, 53).String(), lab.Limit)
			fatal.If(t, err)
			conn.Close()
		}
		for _, a := range s.DNS {
			taken("before", a)
			w.expect("before", "tcp", netip.AddrPortFrom(a, 80).String(), lab.Refused)
			w.expect("after", "tcp", netip.AddrPortFrom(a, 53).String(), lab.Refused)
		}
		// An agent that serves in the resolver's place takes every query.
		s.Intercepted, s.Known, s.Serving = s.Pods[1], s.Pods[1], []netip.Addr{netip.MustParseAddr("169.254.20.64"), netip.MustParseAddr("fd5c:7a1e:93b4::64")}
		s.Resolvers = map[netip.Addr]netip.Addr{}
		for i, a := range s.Serving {
			s.Resolvers[worldAddr(99, i > 0)] = a
			fatal.If(t, w.Node.IP("addr", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", "lo", "nodad"))
		}
		agent, err := w.Node.Serve(53, 80)
		fatal.If(t, err)
		t.Cleanup(agent.Close)
		w.apply(s)
		w.do(w.tables.Heartbeat)
		for dialled, a := range s.Resolvers {
			taken("after", dialled)
			w.expect("after", "tcp", netip.AddrPortFrom(a, 80).String(), lab.Refused)
		}
	})
}

// TestEntriesEnd: without an agent that does anything, an Accept ends with its entry.
func TestEntriesEnd(t *testing.T) {
	t.Parallel()
	w := newStage(t, lab.Routed, []string{"a"}, 80)
	w.apply(layout.State{
		Selected: w.addrs("a"), Pods: [][]netip.Addr{w.addrs("a")}, Entries: []string{"accepted"},
		Tiers: []layout.Tiers{{ID: "a", Subjects: w.addrs("a"), Admin: []*layout.TierRule{{Entries: "accepted", Action: layout.Accept}, {Action: layout.Reject}}}},
	})
	to := netip.AddrPortFrom(worldAddr(1, false), 80)
	add := func(timeout time.Duration) {
		w.do(func(context.Context) error {
			ops := []timed.Op{{Set: "accepted", Entries: []timed.Entry{{Subject: w.Pod("a").Addr4, Addr: to.Addr(), Timeout: timeout}}}}
			w.tables.ApplyEntries(ops)
			return ops[0].Err
		})
	}
	w.expect("a", "tcp", to.String(), lab.Refused)
	add(time.Hour)
	w.expect("a", "tcp", to.String(), lab.Answered)
	add(100 * time.Millisecond)
	fatal.Await(t, "the end of the entry", func() bool { return w.Pod("a").ProbeFor("tcp", to, lab.Limit) == lab.Refused })
}
