package xtables

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/iptables"
)

// flat is how many rules a chain may hold before it branches: a walk through
// eight compares costs less than a jump and eight compares.
const flat = 8

// leaf is the rules for the packets that have a key.
type leaf struct {
	key   string
	rules []string
}

// tree adds chains under root that lead a packet to the rules of its key, in a number of steps that
// grows with the logarithm of the number of keys: they branch by the first characters that tell keys
// apart. match matches the keys that begin with a text. Every chain ends with tail. All steps are
// gotos, so a RETURN in a leaf leaves the whole tree.
func tree(chains iptables.Chains, root string, leaves []leaf, match func(prefix string) string, tail ...string) {
	var branch func(name string, leaves []leaf)
	branch = func(name string, leaves []leaf) {
		few, at := len(leaves) <= flat, 0
		if !few {
			at = len(commonPrefix(leaves[0].key, leaves[len(leaves)-1].key)) + 1
		}
		for len(leaves) > 0 {
			if few || len(leaves[0].key) <= at {
				chains[name] = append(chains[name], leaves[0].rules...)
				leaves = leaves[1:]
				continue
			}
			prefix, n := leaves[0].key[:at], 1
			for n < len(leaves) && strings.HasPrefix(leaves[n].key, prefix) {
				n++
			}
			rule := match(prefix)
			child := root + "_" + digest(rule, 8)
			chains[name] = append(chains[name], rule+" -g "+child)
			branch(child, leaves[:n])
			leaves = leaves[n:]
		}
		chains[name] = append(chains[name], tail...)
	}
	branch(root, slices.SortedFunc(slices.Values(leaves), func(a, b leaf) int { return strings.Compare(a.key, b.key) }))
}

// dispatch adds chains under root that lead from a packet's source address to the rules of that
// address. They branch by its last four bits first: addresses of one node differ there.
func dispatch(chains iptables.Chains, root string, rules map[netip.Addr][]string, tail ...string) {
	var leaves []leaf
	size := 0
	for a, of := range rules {
		key := []byte(hex.EncodeToString(a.AsSlice()))
		size = len(key)
		slices.Reverse(key)
		l := leaf{key: string(key)}
		for _, rule := range of {
			l.rules = append(l.rules, "-s "+netip.PrefixFrom(a, a.BitLen()).String()+" "+rule)
		}
		leaves = append(leaves, l)
	}
	tree(chains, root, leaves, func(prefix string) string {
		return "-s " + printed(prefix, size) + "/" + printed(strings.Repeat("f", len(prefix)), size)
	}, tail...)
}

// printed renders the address of so many hexadecimal digits that ends with reversed ones, and else has zeros, as
// iptables prints it: by inet_ntop, which takes an IPv6 address of at most 32 bits for one of IPv4.
func printed(reversed string, digits int) string {
	text := []byte(reversed + strings.Repeat("0", digits-len(reversed)))
	slices.Reverse(text)
	b, _ := hex.DecodeString(string(text))
	a, _ := netip.AddrFromSlice(b)
	if v4 := b[len(b)-4:]; a.Is6() && len(reversed) <= 8 && (v4[0] != 0 || v4[1] != 0) {
		return "::" + netip.AddrFrom4([4]byte(v4)).String()
	}
	return a.String()
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
	if prefix := commonPrefix(first, last); prefix != "" && first != last {
		return option + " " + prefix + "+ "
	}
	return ""
}

// commonPrefix returns what both begin with.
func commonPrefix(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// ifaceDispatch adds chains under root that send a packet which came in on one
// of names to rule. option is what matches a name: "-i" or "-m physdev --physdev-in".
func ifaceDispatch(chains iptables.Chains, root, option string, names []string, rule string) {
	var leaves []leaf
	for _, n := range slices.Compact(slices.Sorted(slices.Values(names))) {
		leaves = append(leaves, leaf{n, []string{option + " " + n + " " + rule}})
	}
	tree(chains, root, leaves, func(prefix string) string { return option + " " + prefix + "+" })
}
