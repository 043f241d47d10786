package peers

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/policy"
)

func TestDisjoint(t *testing.T) {
	for name, test := range map[string]struct{ of, want string }{
		"nothing":                {"", ""},
		"one":                    {"192.0.2.0/24", "192.0.2.0/24"},
		"twice":                  {"192.0.2.0/24 192.0.2.0/24", "192.0.2.0/24"},
		"inside":                 {"192.0.2.64/26 192.0.2.0/24 192.0.2.255/32", "192.0.2.0/24"},
		"halves":                 {"192.0.2.128/25 192.0.2.0/25", "192.0.2.0/24"},
		"neighbours, not halves": {"192.0.2.64/26 192.0.2.128/26", "192.0.2.64/26 192.0.2.128/26"},
		"four make one":          {"192.0.2.3/32 192.0.2.1/32 192.0.2.0/32 192.0.2.2/32", "192.0.2.0/30"},
		"everything":             {"0.0.0.0/0 ::/0 255.255.255.255/32", "0.0.0.0/0 ::/0"},
		"everything in halves":   {"128.0.0.0/1 0.0.0.0/1 8000::/1 ::/1", "0.0.0.0/0 ::/0"},
		"families do not touch":  {"255.255.255.255/32 ::/128", "255.255.255.255/32 ::/128"},
		"the ends":               {"0.0.0.0/32 255.255.255.254/31 ffff::/16", "0.0.0.0/32 255.255.255.254/31 ffff::/16"},
	} {
		var of []span
		for _, text := range strings.Fields(test.of) {
			of = append(of, spanOf(netip.MustParsePrefix(text)))
		}
		given := slices.Clone(of)
		var got []string
		for _, p := range disjoint(of) {
			got = append(got, p.String())
		}
		if strings.Join(got, " ") != test.want || !slices.Equal(of, given) {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
}

// The fuzzer's addresses are the 64 of a small network of each family, at the end of it.
var smallNets = []netip.Prefix{netip.MustParsePrefix("255.255.255.192/26"), netip.MustParsePrefix("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffc0/122"), netip.MustParsePrefix("10.0.0.0/26")}

// smallPrefix is the network that two bytes stand for.
func smallPrefix(where, bits byte) netip.Prefix {
	base := smallNets[int(where>>6)%len(smallNets)]
	a := base.Addr().AsSlice()
	a[len(a)-1] |= where & 63
	at, _ := netip.AddrFromSlice(a)
	return netip.PrefixFrom(at, base.Bits()+int(bits%7)).Masked()
}

func inAny(of []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(of, func(p netip.Prefix) bool { return p.Contains(a) })
}

// checkBlocks compares blocks without their holes, and the union of all of that, with
// a walk over every address.
func checkBlocks(t *testing.T, blocks []netip.Prefix, holes [][]netip.Prefix) {
	t.Helper()
	var all []span
	for i, b := range blocks {
		var of []span
		for _, h := range holes[i] {
			of = append(of, spanOf(h))
		}
		all = append(all, spanOf(b).without(of)...)
	}
	got := disjoint(all)
	fewest := 0
	for _, base := range smallNets {
		in := make([]bool, 64)
		a := base.Addr()
		for i := range in {
			for j, b := range blocks {
				in[i] = in[i] || b.Contains(a) && !inAny(holes[j], a)
			}
			if found := slices.IndexFunc(got, func(p netip.Prefix) bool { return p.Contains(a) }); (found >= 0) != in[i] {
				t.Fatalf("%v without %v: %v is in %v: %v", blocks, holes, a, got, found >= 0)
			} else if found >= 0 && inAny(got[found+1:], a) {
				t.Fatalf("%v overlap at %v", got, a)
			}
			a = a.Next()
		}
		fewest += fewestPrefixes(in)
	}
	if len(got) != fewest {
		t.Fatalf("%v without %v: %v, %d would do", blocks, holes, got, fewest)
	}
	if !slices.IsSortedFunc(got, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }) {
		t.Fatalf("%v is not sorted", got)
	}
}

// fewestPrefixes counts by halves: a part that is all in is one, else it is its halves.
func fewestPrefixes(in []bool) int {
	switch {
	case !slices.Contains(in, true):
		return 0
	case !slices.Contains(in, false):
		return 1
	}
	return fewestPrefixes(in[:len(in)/2]) + fewestPrefixes(in[len(in)/2:])
}

func blocksOf(data []byte) (blocks []netip.Prefix, holes [][]netip.Prefix) {
	for ; len(data) >= 2; data = data[2:] {
		p := smallPrefix(data[0], data[1])
		if last := len(blocks) - 1; last >= 0 && data[1]&0x80 != 0 && blocks[last].Contains(p.Addr()) && p.Bits() >= blocks[last].Bits() {
			holes[last] = append(holes[last], p)
			continue
		}
		blocks, holes = append(blocks, p), append(holes, nil)
	}
	return blocks, holes
}

func TestBlocksLikeTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		data := make([]byte, 2*r.IntN(12))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		blocks, holes := blocksOf(data)
		checkBlocks(t, blocks, holes)
	}
}

func FuzzBlocks(f *testing.F) {
	f.Add([]byte{0, 0, 4, 0x86, 63, 0x86, 0x40, 0, 0x7f, 0x86})
	f.Add([]byte{0, 1, 32, 1, 0x80, 0, 0x80, 0x80})
	f.Fuzz(func(t *testing.T, data []byte) {
		blocks, holes := blocksOf(data[:min(len(data), 64)])
		checkBlocks(t, blocks, holes)
	})
}

// TestWholeFamilies has holes in everything, for which no walk has the time.
func TestWholeFamilies(t *testing.T) {
	for whole, hole := range map[string]string{"0.0.0.0/0": "169.254.169.254/32", "::/0": "fd00:ec2::254/128"} {
		w, h := netip.MustParsePrefix(whole), netip.MustParsePrefix(hole)
		got := disjoint(spanOf(w).without([]span{spanOf(h)}))
		if len(got) != h.Bits() || inAny(got, h.Addr()) || !inAny(got, h.Addr().Next()) || !inAny(got, h.Addr().Prev()) || !inAny(got, w.Addr()) || !inAny(got, lastOf(w)) {
			t.Errorf("%v without %v is %v", w, h, got)
		}
	}
}

func TestSetOfNetworksContains(t *testing.T) {
	set := &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerNetworks}, Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/25"), netip.MustParsePrefix("10.0.0.192/27"), netip.MustParsePrefix("2001:db8::/64")}}
	got := map[string]bool{}
	for _, a := range []string{"9.255.255.255", "10.0.0.0", "10.0.0.127", "10.0.0.128", "10.0.0.192", "10.0.0.200", "10.0.0.224", "::1", "2001:db8::", "2001:db8::9", "2001:db8:0:1::"} {
		got[a] = set.Contains(netip.MustParseAddr(a), policy.TCP, 1)
	}
	if diff := cmp.Diff(map[string]bool{"9.255.255.255": false, "10.0.0.0": true, "10.0.0.127": true, "10.0.0.128": false, "10.0.0.192": true, "10.0.0.200": true,
		"10.0.0.224": false, "::1": false, "2001:db8::": true, "2001:db8::9": true, "2001:db8:0:1::": false}, got); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkDisjoint(b *testing.B) {
	var of []span
	for i := range 60000 {
		of = append(of, spanOf(netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.%d/31", i>>14, i>>6&255, i<<2&255))))
	}
	for b.Loop() {
		if len(disjoint(of)) != 60000 {
			b.Fatal("another number")
		}
	}
}

// TestWalk compares the arithmetic with one that tries every length, at the ends of both
// families too.
func TestWalk(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	slow := func(s span) (out []netip.Prefix) {
		for next := s.first; ; {
			p := netip.PrefixFrom(next, next.BitLen())
			for p.Bits() > 0 {
				wider := netip.PrefixFrom(next, p.Bits()-1)
				if wider.Masked() != wider || s.last.Less(lastOf(wider)) {
					break
				}
				p = wider
			}
			out = append(out, p)
			if next = lastOf(p).Next(); !next.IsValid() || s.last.Less(next) {
				return out
			}
		}
	}
	random := func(width int) netip.Addr {
		w := wide{rng.Uint64() >> rng.IntN(65), rng.Uint64() >> rng.IntN(65)}
		if rng.IntN(4) == 0 {
			w = wide{^w.hi, ^w.lo}
		}
		return w.addr(width)
	}
	for i := range 3000 {
		s := span{random(32), random(32)}
		if i%2 == 0 {
			s = span{random(128), random(128)}
		}
		if s.last.Less(s.first) {
			s.first, s.last = s.last, s.first
		}
		want := slow(s)
		if got := s.prefixes(nil); !slices.Equal(got, want) || count([]span{s}) != len(want) {
			t.Fatalf("%v: %v, %d; want %v", s, got, count([]span{s}), want)
		}
		n := 1 + rng.IntN(len(want))
		if part := first([]span{s}, n); !slices.Equal(prefixesOf(part), want[:n]) {
			t.Fatalf("%v: the first %d are %v, want %v", s, n, prefixesOf(part), want[:n])
		}
		a := random(s.first.BitLen())
		if inSpans([]span{s}, a) != (!a.Less(s.first) && !s.last.Less(a)) {
			t.Fatalf("%v in %v", a, s)
		}
	}
}
