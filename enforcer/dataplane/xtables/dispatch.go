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
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if prefix := commonPrefix(names); prefix != "" && len(names) > 1 {
		return option + " " + prefix + "+ "
	}
	return ""
}

// commonPrefix returns the prefix of sorted names.
func commonPrefix(sorted []string) string {
	first, last := sorted[0], sorted[len(sorted)-1]
	n := 0
	for n < len(first) && n < len(last) && first[n] == last[n] {
		n++
	}
	return first[:n]
}

// ifaceDispatch adds chains under root that send a packet which came in on one
// of names to rule, branching by the first characters that tell names apart.
// option is what matches a name: "-i" or "-m physdev --physdev-in".
func ifaceDispatch(chains iptables.Chains, root, option string, names []string, rule string) {
	ifaceBranch(chains, root, root, option, slices.Compact(slices.Sorted(slices.Values(names))), rule)
}

func ifaceBranch(chains iptables.Chains, root, name, option string, sorted []string, rule string) {
	if len(sorted) <= flat {
		for _, n := range sorted {
			chains[name] = append(chains[name], fmt.Sprintf("%s %s %s", option, n, rule))
		}
		return
	}
	at := len(commonPrefix(sorted)) + 1
	for len(sorted) > 0 {
		prefix := sorted[0][:min(at, len(sorted[0]))]
		n := 1
		for n < len(sorted) && len(prefix) == at && strings.HasPrefix(sorted[n], prefix) {
			n++
		}
		if n == 1 {
			chains[name] = append(chains[name], fmt.Sprintf("%s %s %s", option, sorted[0], rule))
		} else {
			child := root + "_" + digest(option+prefix, 8)
			chains[name] = append(chains[name], fmt.Sprintf("%s %s+ -g %s", option, prefix, child))
			ifaceBranch(chains, root, child, option, sorted[:n], rule)
		}
		sorted = sorted[n:]
	}
}
