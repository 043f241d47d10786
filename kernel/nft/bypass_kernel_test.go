package nft_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
)

// asks sends a datagram from a pod, which need not arrive.
func (w *listener) asks(pod, to string) {
	w.t.Helper()
	c, err := w.Pod(pod).Dial("udp", to, time.Minute)
	fatal.If(w.t, err)
	defer c.Close()
	if _, err := c.Write([]byte("query")); err != nil {
		w.t.Fatal(err)
	}
}

// TestPodsThatBypassInterception: an intercepted pod that sends to an address behind a
// resolver is reported, by the packet as it left the pod; redirection by interception,
// its absence or another program is not.
func TestPodsThatBypassInterception(t *testing.T) {
	t.Parallel()
	onEachListener(t, func(t *testing.T, w *listener) {
		a, b, c := w.Pod("a"), w.Pod("b"), w.Pod("c")
		endpoint := netip.MustParseAddr("169.254.20.53")
		state := nft.State{
			Intercepted: []netip.Addr{a.Addr4, a.Addr6, b.Addr4, b.Addr6}, Known: []netip.Addr{a.Addr4, b.Addr4, c.Addr4},
			Resolvers: map[netip.Addr]netip.Addr{netip.MustParseAddr("203.0.113.53"): netip.MustParseAddr("169.254.20.64")},
			Endpoint:  []netip.Addr{endpoint},
			Answering: []netip.AddrPort{netip.MustParseAddrPort("198.51.100.53:5353"), netip.MustParseAddrPort("[2001:db8::53]:53"), netip.MustParseAddrPort("192.0.2.9:80")},
			Backends:  []netip.AddrPort{netip.MustParseAddrPort("198.51.100.53:5353")},
		}
		bypassing := func() (out []netip.Addr) {
			t.Helper()
			w.do(func(context.Context) (err error) { out, err = w.tables.Bypassing(); return err })
			return out
		}
		w.apply(state)
		for _, alive := range []bool{false, true} {
			w.asks("a", "203.0.113.53:53")    // the resolver's own address
			w.asks("a", "169.254.20.53:53")   // redirected to a backend while no agent is alive
			w.asks("a", "203.0.113.10:443")   // redirected by another program to an answering address
			w.asks("a", "198.51.100.53:53")   // another port
			w.asks("c", "198.51.100.53:5353") // not intercepted
			w.asks("c", "[2001:db8::53]:53")
			if got := bypassing(); len(got) != 0 {
				t.Errorf("alive %v: %v are said to bypass", alive, got)
			}
			w.do(w.tables.Heartbeat)
		}
		w.asks("a", "198.51.100.53:5353")
		w.asks("b", "[2001:db8::53]:53")
		overTCP, err := a.Dial("tcp", "[2001:db8::53]:53", lab.Limit)
		fatal.If(t, err)
		overTCP.Close()
		want := []netip.Addr{a.Addr4, a.Addr6, b.Addr6}
		slices.SortFunc(want, netip.Addr.Compare)
		if diff := cmp.Diff(want, bypassing(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("bypassing (-want +got):\n%s", diff)
		}
		w.do(func(ctx context.Context) error { verified(t, w.tables, state); return w.tables.Rewrite(ctx, state) })
		if got := bypassing(); len(got) != 3 {
			t.Errorf("after a repair %v are left", got)
		}
	})
}
