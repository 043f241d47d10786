package xtables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/iptables"
)

// flat is how many rules a chain may hold before it branches: a walk through
// eight compares costs less than a jump and eight compares.
const flat = 8

// dispatch adds chains under root that lead from a packet's source address to
// the rules of that address, in a number of steps that grows with the logarithm
// of the number of addresses. It branches by the address's last four bits, then
// the four before them, and so on: addresses of one node differ there. Every
// chain ends with tail. All steps are gotos, so a RETURN in a leaf leaves the
// whole tree.
func dispatch(chains iptables.Chains, root string, leaves map[netip.Addr][]string, tail ...string) {
	addrs := make([]netip.Addr, 0, len(leaves))
	for a := range leaves {
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	branch(chains, root, addrs, 0, leaves, tail)
}

func branch(chains iptables.Chains, name string, addrs []netip.Addr, depth int, leaves map[netip.Addr][]string, tail []string) {
	// The longest name is a root of 14 bytes, a dash and 13 digits.
	if len(addrs) <= flat || depth == iptables.ChainLengthMax-len(chainHome)-2 {
		for _, a := range addrs {
			for _, rule := range leaves[a] {
				chains[name] = append(chains[name], "-s "+netip.PrefixFrom(a, a.BitLen()).String()+" "+rule)
			}
		}
		chains[name] = append(chains[name], tail...)
		return
	}
	var buckets [16][]netip.Addr
	for _, a := range addrs {
		n := nibble(a, depth)
		buckets[n] = append(buckets[n], a)
	}
	sep := ""
	if depth == 0 {
		sep = "-"
	}
	for n, bucket := range buckets {
		if len(bucket) == 0 {
			continue
		}
		child := fmt.Sprintf("%s%s%x", name, sep, n)
		chains[name] = append(chains[name], fmt.Sprintf("-s %s -g %s", nibbleMatch(bucket[0].BitLen(), depth, byte(n)), child))
		branch(chains, child, bucket, depth+1, leaves, tail)
	}
	chains[name] = append(chains[name], tail...)
}

// nibble returns the four bits at depth nibbles before the address's end.
func nibble(a netip.Addr, depth int) byte {
	b := a.AsSlice()
	return b[len(b)-1-depth/2] >> (4 * (depth % 2)) & 0xf
}

// nibbleMatch renders address/mask for one nibble, as iptables prints it.
func nibbleMatch(bits, depth int, value byte) string {
	at := func(v byte) string {
		b := make([]byte, bits/8)
		b[len(b)-1-depth/2] = v << (4 * (depth % 2))
		a, _ := netip.AddrFromSlice(b)
		return a.String()
	}
	return at(value) + "/" + at(0xf)
}

// otherSources matches packets from outside of the addresses' common network, which need no
// walk through the tree: most packets that a node forwards to its pods. "" is no match.
func otherSources(leaves map[netip.Addr][]string) string {
	var common netip.Prefix
	for a := range leaves {
		if !common.IsValid() {
			common = netip.PrefixFrom(a, a.BitLen())
		}
		for !common.Contains(a) {
			common = netip.PrefixFrom(common.Addr(), common.Bits()-1).Masked()
		}
	}
	if len(leaves) <= 1 || common.Bits() == 0 {
		return ""
	}
	return "! -s " + common.String() + " "
}

// unlike matches packets from an interface with another prefix than all dispatched ones or,
// if all are bridge ports, from no such port. "" is no match.
func unlike(ifaces, bridgePorts []string) string {
	option, names := "! -i", ifaces
	if len(ifaces) == 0 {
		option, names = "-m physdev ! --physdev-in", bridgePorts
	}
	if len(names) == 0 || len(ifaces) > 0 && len(bridgePorts) > 0 {
		return ""
	}
	first, last := slices.Min(names), slices.Max(names)
	n := 0
	for n < len(first) && first[n] == last[n] {
		n++
	}
	if n == 0 || first == last {
		return ""
	}
	return option + " " + first[:n] + "+ "
}

// ifaceDispatch adds chains under root that send a packet which came in on one
// of names to rule, branching by the first characters that tell names apart.
// option is what matches a name: "-i" or "-m physdev --physdev-in".
func ifaceDispatch(chains iptables.Chains, root, option string, names []string, rule string) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	ifaceBranch(chains, root, option, names, rule, 0)
}

func ifaceBranch(chains iptables.Chains, name, option string, names []string, rule string, from int) {
	if len(names) <= flat {
		for _, n := range names {
			chains[name] = append(chains[name], fmt.Sprintf("%s %s %s", option, n, rule))
		}
		return
	}
	at := from
	for sameByte(names, at) {
		at++
	}
	root := strings.SplitN(name, "_", 2)[0]
	for start := 0; start < len(names); {
		end := start + 1
		for end < len(names) && byteAt(names[end], at) == byteAt(names[start], at) {
			end++
		}
		if group := names[start:end]; len(group) == 1 {
			chains[name] = append(chains[name], fmt.Sprintf("%s %s %s", option, group[0], rule))
		} else {
			child := freeChain(chains, root)
			chains[name] = append(chains[name], fmt.Sprintf("%s %s+ -g %s", option, group[0][:at+1], child))
			chains[child] = []string{}
			ifaceBranch(chains, child, option, group, rule, at+1)
		}
		start = end
	}
}

// freeChain returns a name below root that no tree has taken yet.
func freeChain(chains iptables.Chains, root string) string {
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s_%d", root, n)
		if _, taken := chains[name]; !taken {
			return name
		}
	}
}

func sameByte(names []string, at int) bool {
	for _, n := range names {
		if len(n) <= at || n[at] != names[0][at] {
			return false
		}
	}
	return true
}

// byteAt returns 0 past the end, which sorts first as the names do.
func byteAt(s string, i int) byte {
	if i < len(s) {
		return s[i]
	}
	return 0
}
