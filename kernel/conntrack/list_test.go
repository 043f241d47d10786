package conntrack_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestKernelAndFakeAgree asks both for connections of random sources, of which some are admitted.
func TestKernelAndFakeAgree(t *testing.T) {
	t.Parallel()
	k, f := kernel(t), conntrack.NewFake()
	timeout(t, "udp_timeout", 3600)                                                                  // none ends meanwhile
	sources := []netip.Addr{netip.MustParseAddr("10.7.0.99"), netip.MustParseAddr("2001:db8:7::99")} // without connections
	for pod := range 6 {
		for to, format := range map[string]string{"192.0.2.1": "10.7.0.%d", "2001:db8::1": "2001:db8:7::%x"} {
			a := netip.MustParseAddr(fmt.Sprintf(format, 16+pod))
			sources = append(sources, a)
			if run(t, "ip", "addr", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", "lo"); a.Is6() {
				awaitLocal(t, a.String())
			}
			for range 3 {
				dial(t, "udp", a.String(), to)
			}
			for _, flow := range flows(t, k, a.String()) {
				if pod%3 == 0 {
					fatal.If(t, k.SetMark(flow, ours, ours))
					flow.Mark |= ours
				}
				f.Track(flow)
			}
		}
	}
	if n := len(flows(t, f, "10.7.0.16")); n != 3 {
		t.Fatalf("%d connections of three", n)
	}
	r := rand.New(rand.NewPCG(1, 2))
	masks := []uint32{0, ours, ours, others, ours | others, 1 << 31}
	for range 100 {
		q := conntrack.Query{Mark: r.Uint32N(2) * 0xffffffff, Mask: masks[r.IntN(len(masks))]}
		for range r.IntN(6) {
			q.Sources = append(q.Sources, sources[r.IntN(len(sources))])
		}
		var got [2][]string
		for i, seam := range []conntrack.Interface{k, f} {
			all, err := seam.Flows(q)
			fatal.If(t, err)
			got[i] = texts(all...)
			slices.Sort(got[i])
		}
		if diff := cmp.Diff(got[1], got[0]); diff != "" {
			t.Fatalf("%+v (-fake +kernel):\n%s", q, diff)
		}
	}
}
