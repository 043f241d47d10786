package ipset_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/testkit/fatal"
)

func network(p netip.Prefix) ipset.Entry {
	return ipset.Entry{Addr: p.Addr(), Bits: uint8(p.Bits()), Iface: "veth1"}
}

// TestNetworks: prefixes of every length come back as they were written, a whole
// address without a length, and each is one entry.
func TestNetworks(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		for _, six := range []bool{false, true} {
			name, base, bits := "n4", v4, 32
			if six {
				name, base, bits = "n6", v6, 128
			}
			set := ipset.Set{Name: name, Type: ipset.HashNetIface, IPv6: six}
			for range 2 { // the second time it is there
				fatal.If(t, i.Ensure(set))
			}
			want := map[string]bool{}
			for n := 1; n <= bits; n++ {
				p := netip.PrefixFrom(base, n).Masked()
				if err := i.Add(name, network(p)); err != nil {
					t.Fatalf("%s: %v", p, err)
				}
				want[p.String()] = true
			}
			got := map[string]bool{}
			for _, e := range sorted(t, i, name) {
				if int(e.Bits) >= bits {
					t.Errorf("%s has the length %d", e.Addr, e.Bits)
				}
				n := int(e.Bits)
				if n == 0 {
					n = bits
				}
				got[fmt.Sprint(netip.PrefixFrom(e.Addr, n))] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-written +read):\n%s", diff)
			}
			fatal.If(t, i.Delete(name, ipset.Entry{Addr: base, Iface: "veth1"}, network(netip.PrefixFrom(base, 8).Masked())))
			if sizes, err := i.Sizes(name); err != nil || sizes[name] != bits-2 {
				t.Errorf("%d entries are left of %d, %v", sizes[name], bits, err)
			}
		}
	})
}
