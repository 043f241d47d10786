package nft_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
)

// networks returns random disjoint networks of both families, which often lie side by side, at
// the ends of all addresses, or are all of them.
func networks(random *rand.Rand) (out []netip.Prefix) {
	for _, bytes := range []int{4, 16} {
		if random.IntN(10) == 0 {
			out = append(out, netip.PrefixFrom(netip.MustParsePrefix(map[int]string{4: "0.0.0.0/0", 16: "::/0"}[bytes]).Addr(), 0))
			continue
		}
		for range random.IntN(12) {
			b := make([]byte, bytes)
			b[0] = []byte{0, 198, 255}[random.IntN(3)]
			for i := 1; i < bytes; i++ {
				b[i] = b[0] / 255 * 255
			}
			b[bytes-1] = byte(random.IntN(256))
			a, _ := netip.AddrFromSlice(b)
			n := netip.PrefixFrom(a, []int{8, 8*bytes - 4, 8*bytes - 1, 8 * bytes}[random.IntN(4)]).Masked()
			overlaps := false
			for _, o := range out {
				overlaps = overlaps || o.Overlaps(n)
			}
			if !overlaps {
				out = append(out, n)
			}
		}
	}
	return out
}

// TestNetworksByChanges: sets of networks that came to their members by changes, and by the
// program nft between them, hold these members.
func TestNetworksByChanges(t *testing.T) {
	t.Parallel()
	ctx, random := context.Background(), rand.New(rand.NewPCG(1, 2))
	tables := inKernel(t)
	fatal.If(t, tables.Setup(ctx))
	for n := range 300 {
		s := nft.State{Selected: []netip.Addr{pod4}, PodRanges: networks(random)}
		var rules []*nft.TierRule
		for i := range 2 {
			name := fmt.Sprint("set", i)
			s.Peers = append(s.Peers, nft.PeerSet{Name: name, Kind: nft.PeerNetworks, Networks: networks(random)})
			rules = append(rules, &nft.TierRule{Peers: name})
		}
		s.Tiers = []nft.Tiers{{ID: "list", Subjects: s.Selected, Admin: rules}}
		write := tables.Apply
		if random.IntN(20) == 0 {
			write = tables.Rewrite
		}
		fatal.If(t, write(ctx, s))
		if verified(t, tables, s); t.Failed() {
			t.Fatalf("state %d of 300", n)
		}
	}
}
