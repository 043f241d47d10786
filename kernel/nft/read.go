package nft

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strconv"

	"github.com/namegate/namegate/kernel/nfattr"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// hookNames are nft's words for the hooks of the families inet and bridge, by number
// (enum nf_inet_hooks of linux/netfilter.h, NF_BR_* of linux/netfilter_bridge.h).
var hookNames = []string{"prerouting", "input", "forward", "output", "postrouting"}

const (
	// commentType is the type of a comment in a rule's user data (enum
	// nftnl_udata_rule_types of libnftnl).
	commentType = 0
	// registerWord is in bytes: each part of a concatenation begins at a multiple.
	registerWord = 4
)

// kernelReader reads tables by netlink, which costs a hundredth of the program nft.
// google/nftables does not serve: it reads no rule that asks for the direction of a
// connection, and its errors hide which objects are not there.
type kernelReader struct{}

// objects implements reader.
func (kernelReader) objects(_ context.Context, family knftables.Family, table string) (*contents, error) {
	out, f := newContents(), familyNumbers[family]
	err := dump(unix.NFT_MSG_GETTABLE, f, func(attrs []byte) {
		if a := nfattr.Parse(attrs); nfattr.String(a[unix.NFTA_TABLE_NAME]) == table {
			out.dormant = u32(a[unix.NFTA_TABLE_FLAGS])&unix.NFT_TABLE_F_DORMANT != 0
		}
	})
	if err != nil {
		return nil, err
	}
	err = dump(unix.NFT_MSG_GETCHAIN, f, func(attrs []byte) {
		if a := nfattr.Parse(attrs); nfattr.String(a[unix.NFTA_CHAIN_TABLE]) == table {
			name := nfattr.String(a[unix.NFTA_CHAIN_NAME])
			out.rules[name], out.hooks[name] = []string{}, hook(a)
		}
	})
	if err != nil {
		return nil, err
	}
	err = dump(unix.NFT_MSG_GETRULE, f, func(attrs []byte) {
		if a := nfattr.Parse(attrs); nfattr.String(a[unix.NFTA_RULE_TABLE]) == table {
			chain := nfattr.String(a[unix.NFTA_RULE_CHAIN])
			out.rules[chain] = append(out.rules[chain], comment(a[unix.NFTA_RULE_USERDATA]))
		}
	}, text(unix.NFTA_RULE_TABLE, table))
	if err != nil {
		return nil, err
	}
	err = dump(unix.NFT_MSG_GETSET, f, func(attrs []byte) {
		a := nfattr.Parse(attrs)
		// Sets in rules are anonymous and end with their rules.
		if u32(a[unix.NFTA_SET_FLAGS])&unix.NFT_SET_ANONYMOUS == 0 {
			name := nfattr.String(a[unix.NFTA_SET_NAME])
			out.elements[name] = elements{}
			if hasForm(name) {
				out.forms[name] = setForm{u32(a[unix.NFTA_SET_KEY_TYPE]), u32(a[unix.NFTA_SET_KEY_LEN]), u32(a[unix.NFTA_SET_FLAGS])}
			}
		}
	}, text(unix.NFTA_SET_TABLE, table))
	return out, err
}

// nfAccept is the verdict NF_ACCEPT (linux/netfilter.h).
const nfAccept = 1

// hook renders the hook of a chain, by its attributes, as contents has it.
func hook(chain map[int][]byte) string {
	a := nfattr.Parse(chain[unix.NFTA_CHAIN_HOOK])
	if len(a[unix.NFTA_HOOK_HOOKNUM]) != 4 || len(a[unix.NFTA_HOOK_PRIORITY]) != 4 {
		return ""
	}
	word := "?"
	if n := u32(a[unix.NFTA_HOOK_HOOKNUM]); int(n) < len(hookNames) {
		word = hookNames[n]
	}
	text := fmt.Sprintf("%s %s %d", nfattr.String(chain[unix.NFTA_CHAIN_TYPE]), word, int32(u32(a[unix.NFTA_HOOK_PRIORITY])))
	if policy := chain[unix.NFTA_CHAIN_POLICY]; len(policy) == 4 && u32(policy) != nfAccept {
		text += " policy drop"
	}
	return text
}

// comment reads a rule's comment: user data are runs of type, length and value.
func comment(userdata []byte) string {
	for len(userdata) >= 2 {
		typ, length := userdata[0], int(userdata[1])
		if len(userdata) < 2+length {
			return ""
		}
		if typ == commentType {
			return nfattr.String(userdata[2 : 2+length])
		}
		userdata = userdata[2+length:]
	}
	return ""
}

// elements implements reader.
func (kernelReader) elements(_ context.Context, s *skeleton, set string) ([]*knftables.Element, error) {
	var out []*knftables.Element
	var bounds []bound
	err := dump(unix.NFT_MSG_GETSETELEM, familyNumbers[s.family], func(attrs []byte) {
		for _, list := range nfattr.All(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS) {
			for _, element := range nfattr.All(list, unix.NFTA_LIST_ELEM) {
				a := nfattr.Parse(element)
				key := nfattr.Parse(a[unix.NFTA_SET_ELEM_KEY])[unix.NFTA_DATA_VALUE]
				data := nfattr.Parse(a[unix.NFTA_SET_ELEM_DATA])
				if isCatchAll(a[unix.NFTA_SET_ELEM_FLAGS]) {
					out = append(out, s.catchAll(set))
				} else if s.intervals[set] {
					addr, _ := netip.AddrFromSlice(key)
					bounds = append(bounds, bound{addr, u32(a[unix.NFTA_SET_ELEM_FLAGS])&unix.NFT_SET_ELEM_INTERVAL_END != 0})
				} else {
					e := s.element(set, key, data[unix.NFTA_DATA_VALUE])
					if verdict := nfattr.Parse(data[unix.NFTA_DATA_VERDICT]); len(verdict) > 0 && s.maps[set] {
						e.Set, e.Map, e.Value = "", set, []string{"goto " + nfattr.String(verdict[unix.NFTA_VERDICT_CHAIN])}
					}
					out = append(out, e)
				}
			}
		}
	}, text(unix.NFTA_SET_ELEM_LIST_TABLE, s.table), text(unix.NFTA_SET_ELEM_LIST_SET, set))
	for _, r := range between(bounds) {
		out = append(out, r.element(s.family, s.table, set))
	}
	return out, err
}

// A catch-all element is in a set or map for every key that no other element has. No state of
// ours has one, another program may add it. It has this flag (NFT_SET_ELEM_CATCHALL of
// linux/netfilter/nf_tables.h) and no key, for which nft has this word.
const (
	catchAllFlag = 0x2
	catchAllKey  = "*"
)

// isCatchAll reads an element's flags.
func isCatchAll(flags []byte) bool { return u32(flags)&catchAllFlag != 0 }

// catchAll is the catch-all element of a set or map, without its value.
func (s *skeleton) catchAll(set string) *knftables.Element {
	e := &knftables.Element{Family: s.family, Table: s.table, Set: set, Key: []string{catchAllKey}}
	if s.maps[set] {
		e.Set, e.Map = "", set
	}
	return e
}

// element renders an element as nft lists it.
func (s *skeleton) element(set string, key, value []byte) *knftables.Element {
	e := &knftables.Element{Family: s.family, Table: s.table, Set: set}
	words := s.types[set]
	e.Key, words = decode(key, words)
	if value != nil {
		e.Set, e.Map = "", set
		e.Value, _ = decode(value, words)
	}
	return e
}

// decode reads the parts of a key or value by the words for their types, and returns the
// words that are left.
func decode(b []byte, types []string) (out, left []string) {
	for len(b) > 0 && len(types) > 0 {
		size := len(b)
		switch types[0] {
		case "ipv4_addr":
			size = 4
		case "inet_service":
			size = 2
		case "inet_proto":
			size = 1
		case "ipv6_addr", "ifname", "iifname", advertised:
			size = 16
		}
		size = min(size, len(b))
		out = append(out, word(types[0], b[:size]))
		b, types = b[min((size+registerWord-1)/registerWord*registerWord, len(b)):], types[1:]
	}
	return out, types
}

// protocolWords are nft's words for the protocols with ports that rules name.
var protocolWords = map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp"}

// word renders one part as nft lists it.
func word(typ string, b []byte) string {
	switch typ {
	case "ipv4_addr", "ipv6_addr":
		a, _ := netip.AddrFromSlice(b)
		return a.String()
	case "ifname", "iifname":
		return ifname(nfattr.String(b))
	case "inet_proto":
		return protocolWords[b[0]]
	case "inet_service":
		if len(b) == 2 {
			return strconv.Itoa(int(binary.BigEndian.Uint16(b)))
		}
	}
	return "0x" + new(big.Int).SetBytes(b).Text(16)
}

// bound is one element of an interval set: where a range begins, or the first address
// behind it.
type bound struct {
	addr netip.Addr
	end  bool
}

// between pairs the bounds of an interval set. A range without an end extends to the
// highest address.
func between(bounds []bound) []addrRange {
	slices.SortFunc(bounds, func(a, b bound) int {
		if c := a.addr.Compare(b.addr); c != 0 || a.end == b.end {
			return c
		}
		if a.end {
			return -1
		}
		return 1
	})
	var out []addrRange
	open := false
	for _, b := range bounds {
		n := len(out) - 1
		if open {
			out[n].last = b.addr.Prev()
		}
		if open = !b.end; open {
			out = append(out, addrRange{b.addr, lastAddr(netip.PrefixFrom(b.addr, 0))})
		}
	}
	return out
}
