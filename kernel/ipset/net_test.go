package ipset_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/testkit/fatal"
)

func network(s string) ipset.Entry {
	p := netip.MustParsePrefix(s)
	return ipset.Entry{Addr: p.Addr(), Bits: uint8(p.Bits())}
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
			set := ipset.Set{Name: name, Type: ipset.HashNet, IPv6: six, HashSize: 64, MaxElem: 1 << 20}
			for range 2 { // the second time it is there
				fatal.If(t, i.Ensure(set))
			}
			want := map[string]bool{}
			for n := 1; n <= bits; n++ {
				p := netip.PrefixFrom(base, n).Masked()
				if err := i.Add(name, network(p.String())); err != nil {
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
			fatal.If(t, i.Delete(name, ipset.Entry{Addr: base}, network(netip.PrefixFrom(base, 8).Masked().String())))
			if sizes, err := i.Sizes(name); err != nil || sizes[name] != bits-2 {
				t.Errorf("%d entries are left of %d, %v", sizes[name], bits, err)
			}
		}
	})
}

// Everything is two halves: as one it would be taken for its first address alone.
func TestHalves(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		for _, s := range []ipset.Set{{Name: "a", Type: ipset.HashNet}, {Name: "b", Type: ipset.HashNet, IPv6: true}} {
			fatal.If(t, i.Ensure(s))
		}
		for name, halves := range map[string][2]string{"a": {"0.0.0.0/1", "128.0.0.0/1"}, "b": {"::/1", "8000::/1"}} {
			fatal.If(t, i.Add(name, network(halves[0]), network(halves[1])))
			if got := sorted(t, i, name); len(got) != 2 || got[0] != network(halves[0]) || got[1] != network(halves[1]) {
				t.Errorf("%+v", got)
			}
		}
		if err := i.Ensure(ipset.Set{Name: "a", Type: ipset.HashIP}); !ipset.IsMismatch(err) {
			t.Errorf("the set has another type: %v", err)
		}
	})
}
