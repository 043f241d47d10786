package xtables

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/testkit/rulewalk"
)

// randomAddrs returns distinct addresses as nodes have them: most in one small
// network, some far away, some that differ only in their upper half.
func randomAddrs(r *rand.Rand, n int, v6 bool) []netip.Addr {
	seen := map[netip.Addr]bool{}
	stride := []uint32{1, 1, 4, 16, 256}[r.IntN(5)]
	for len(seen) < n {
		low := uint32(len(seen))*stride + r.Uint32N(3)
		if r.IntN(8) == 0 {
			low = r.Uint32()
		}
		if !v6 {
			seen[netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 10<<24|low&0xffffff)))] = true
			continue
		}
		b := netip.MustParseAddr("2001:db8::").As16()
		binary.BigEndian.PutUint32(b[12:], low)
		b[5] = byte(r.IntN(1 + 40*r.IntN(2))) // in one network, or far away
		seen[netip.AddrFrom16(b)] = true
	}
	return slices.SortedFunc(maps.Keys(seen), netip.Addr.Compare)
}

// plain is a machine for rules that ask no set.
func plain(c iptables.Chains) *rulewalk.Machine { return &rulewalk.Machine{Chains: c} }

func TestDispatchEqualsAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, n := range []int{1, 2, flat, flat + 1, 16, 17, 60, 110, 250, 500} {
		for _, v6 := range []bool{false, true} {
			all := randomAddrs(r, n, v6)
			twin, chains := map[netip.Addr]string{}, iptables.Chains{}
			for i, a := range all {
				leaf := fmt.Sprintf("NAMEGATE-LEAF%d", i)
				twin[a], chains[leaf] = "-g "+leaf, []string{fmt.Sprintf("-j MARK --set-xmark %#x/0xffffffff", i+1)}
			}
			dispatch(chains, chainPorts, single(twin), "-j DROP")
			most := 0
			others := randomAddrs(r, 50, v6)
			for i, a := range append(slices.Clone(all), others...) {
				m, p := plain(chains), &rulewalk.Packet{Src: a}
				verdict := m.Run(chainPorts, p)
				most = max(most, m.Walked)
				leaf, there := twin[a]
				switch {
				case there && i < len(all) && (verdict != "ACCEPT" || p.Mark != uint32(i+1)):
					t.Fatalf("%d subjects: %s must come to %s, got %s with mark %d", n, a, leaf, verdict, p.Mark)
				case !there && (verdict != "DROP" || p.Mark != 0):
					t.Fatalf("%d subjects: the stranger %s gets %s with mark %d", n, a, verdict, p.Mark)
				}
			}
			checkDispatch(t, chains, n, most)
		}
	}
}

// checkDispatch asserts what must hold of every tree: names that iptables takes,
// and a walk that grows with the logarithm: at each branching at most sixteen
// rules, after log16 of the pods few more for those that are not spread evenly.
func checkDispatch(t *testing.T, chains iptables.Chains, n, walked int) {
	t.Helper()
	for name := range chains {
		if len(name) > iptables.ChainLengthMax {
			t.Errorf("%d subjects: chain %s has %d bytes, iptables takes %d", n, name, len(name), iptables.ChainLengthMax)
		}
	}
	levels := 0
	for rest := n; rest > flat; rest /= 16 {
		levels++
	}
	// Strides of 256 make two levels of one branch each before the tree spreads.
	if bound := 16*(levels+1) + 16 + 3; walked > bound {
		t.Errorf("%d subjects: a packet walks %d rules, more than %d", n, walked, bound)
	}
}

func TestInterfaceDispatchIsExact(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	prefixes := []string{"veth", "cali", "eth", "v", "lxc12345678901"}
	for _, n := range []int{1, flat, flat + 1, 40, 110, 500} {
		ours := map[string]bool{"veth": true, "veth1": n > 1, "cali0123456789a": n > 2}
		for len(ours) < n+3 {
			name := prefixes[r.IntN(len(prefixes))] + fmt.Sprintf("%x", r.Uint32N(uint32(16*n)))
			ours[name[:min(len(name), 15)]] = true
		}
		maps.DeleteFunc(ours, func(_ string, yes bool) bool { return !yes })
		for _, option := range []string{"-i", "-m physdev --physdev-in"} {
			chains := iptables.Chains{}
			ifaceDispatch(chains, chainIfaces, option, slices.Collect(maps.Keys(ours)), "-j DROP")
			most := 0
			names := slices.AppendSeq([]string{"", "eth", "lo", "vet", "veth12345", "cali0123456789", "lxc12345678901", "z"}, maps.Keys(ours))
			for _, name := range names {
				m := plain(chains)
				verdict := m.Run(chainIfaces, &rulewalk.Packet{Iface: name, Port: name})
				most = max(most, m.Walked)
				if (verdict == "DROP") != ours[name] {
					t.Fatalf("%d interfaces: %q gets %s", len(ours), name, verdict)
				}
			}
			for name, rules := range chains {
				if len(name) > iptables.ChainLengthMax {
					t.Errorf("chain %s is too long", name)
				}
				for _, rule := range rules {
					if w := strings.Fields(strings.TrimPrefix(rule, option+" "))[0]; len(w) > 15 {
						t.Errorf("rule %q: no interface name has %d bytes", rule, len(w))
					}
				}
			}
			// A name's characters are at most 16 here but for the first.
			if most > 6*16+flat {
				t.Errorf("%d interfaces: a packet walks %d rules", len(ours), most)
			}
		}
	}
}

func TestNewPodChangesFewChains(t *testing.T) {
	for n := 1; n < 300; n++ {
		before, after := iptables.Chains{}, iptables.Chains{}
		leaves := map[netip.Addr]string{}
		a := addr("10.1.0.1")
		for range n {
			leaves[a] = "-g NAMEGATE-P-" + a.String()
			a = a.Next()
		}
		dispatch(before, chainNames, single(leaves))
		leaves[a] = "-g NAMEGATE-P-new"
		dispatch(after, chainNames, single(leaves))
		changed := 0
		for name, rules := range after {
			if !slices.Equal(rules, before[name]) {
				changed++
			}
		}
		for name := range before {
			if _, there := after[name]; !there {
				t.Errorf("chain %s goes when a pod comes", name)
			}
		}
		// A chain that becomes too long splits into at most nine and itself.
		if changed > flat+2 {
			t.Errorf("the pod after %d others changes %d chains", n, changed)
		}
	}
}

// single gives each address its one rule.
func single(leaves map[netip.Addr]string) map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	for a, rule := range leaves {
		out[a] = []string{rule}
	}
	return out
}
