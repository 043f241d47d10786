package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// hookNames are nft's words for the hooks of the families inet and bridge, by number
// (enum nf_inet_hooks of linux/netfilter.h, NF_BR_* of linux/netfilter_bridge.h).
var hookNames = []string{"prerouting", "input", "forward", "output", "postrouting"}

// Attributes of linux/netfilter/nf_tables.h that x/sys/unix lacks, and the type of a
// comment in a rule's user data (enum nftnl_udata_rule_types of libnftnl).
const (
	commentType  = 0
	intervalEnd  = 1 // NFT_SET_ELEM_INTERVAL_END
	registerWord = 4 // bytes: each part of a concatenation begins at a multiple
)

// readInKernel reads a table by netlink, which costs a hundredth of the program nft. A
// table that is not there has no contents.
func (t *Tables) readInKernel(_ context.Context, i int, s *skeleton) (*contents, error) {
	r := reader{family: tableFamilies[i], out: newContents(), skeleton: s}
	for _, step := range []func() error{r.table, r.chains, r.rules, r.sets} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return r.out, nil
}

// reader collects what one table consists of.
type reader struct {
	family knftables.Family
	*skeleton
	out *contents
}

// dump asks for the objects of a kind and hands the attributes of each over; those of
// other tables are among them where the kernel does not select.
func (r *reader) dump(kind int, each func(attrs map[int][]byte) error, attrs ...*nl.RtAttr) error {
	nfproto := r.proto()
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: nfproto, Version: nl.NFNETLINK_V0})
	for _, a := range attrs {
		req.AddData(a)
	}
	msgs, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return err
	}
	for _, m := range msgs {
		if len(m) < nfattr.HeaderLen || m[0] != nfproto {
			continue
		}
		if err := each(nfattr.Parse(m[nfattr.HeaderLen:])); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) table() error {
	return r.dump(unix.NFT_MSG_GETTABLE, func(a map[int][]byte) error {
		flags := a[unix.NFTA_TABLE_FLAGS]
		if nfattr.String(a[unix.NFTA_TABLE_NAME]) == TableName && len(flags) == 4 {
			r.out.dormant = binary.BigEndian.Uint32(flags)&unix.NFT_TABLE_F_DORMANT != 0
		}
		return nil
	})
}

func (r *reader) chains() error {
	return r.dump(unix.NFT_MSG_GETCHAIN, func(a map[int][]byte) error {
		if nfattr.String(a[unix.NFTA_CHAIN_TABLE]) != TableName {
			return nil
		}
		name := nfattr.String(a[unix.NFTA_CHAIN_NAME])
		r.out.rules[name], r.out.hooks[name] = []string{}, ""
		hook := nfattr.Parse(a[unix.NFTA_CHAIN_HOOK])
		number, priority := hook[unix.NFTA_HOOK_HOOKNUM], hook[unix.NFTA_HOOK_PRIORITY]
		if len(number) != 4 || len(priority) != 4 {
			return nil
		}
		word := "?"
		if n := binary.BigEndian.Uint32(number); int(n) < len(hookNames) {
			word = hookNames[n]
		}
		r.out.hooks[name] = fmt.Sprintf("%s %s %d", nfattr.String(a[unix.NFTA_CHAIN_TYPE]), word, int32(binary.BigEndian.Uint32(priority)))
		return nil
	})
}

func (r *reader) rules() error {
	return r.dump(unix.NFT_MSG_GETRULE, func(a map[int][]byte) error {
		if nfattr.String(a[unix.NFTA_RULE_TABLE]) != TableName {
			return nil
		}
		chain := nfattr.String(a[unix.NFTA_RULE_CHAIN])
		r.out.rules[chain] = append(r.out.rules[chain], comment(a[unix.NFTA_RULE_USERDATA]))
		return nil
	}, nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(TableName)))
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

func (r *reader) sets() error {
	var names []string
	err := r.dump(unix.NFT_MSG_GETSET, func(a map[int][]byte) error {
		names = append(names, nfattr.String(a[unix.NFTA_SET_NAME]))
		return nil
	}, nl.NewRtAttr(unix.NFTA_SET_TABLE, nl.ZeroTerminated(TableName)))
	if err != nil {
		return err
	}
	for _, name := range names {
		// Sets in rules are anonymous and end with their rules.
		if len(name) > 1 && name[0] == '_' && name[1] == '_' {
			continue
		}
		r.out.elements[name] = map[string]bool{}
		if _, ours := r.types[name]; ours && !volatile(name) {
			if err := r.elementsOf(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// elementsOf reads one set or map.
func (r *reader) elementsOf(name string) error {
	var bounds []bound
	err := eachElement(r.proto(), name, func(attrs map[int][]byte) {
		key := elementData(attrs, unix.NFTA_SET_ELEM_KEY)
		if !r.intervals[name] {
			r.out.elements[name][r.key(name, key, elementData(attrs, unix.NFTA_SET_ELEM_DATA))] = true
			return
		}
		flags := attrs[unix.NFTA_SET_ELEM_FLAGS]
		addr, _ := netip.AddrFromSlice(key)
		bounds = append(bounds, bound{addr, len(flags) == 4 && binary.BigEndian.Uint32(flags)&intervalEnd != 0})
	})
	if err != nil {
		return err
	}
	if r.intervals[name] {
		r.out.elements[name] = mergedRanges(r.family, name, between(bounds))
	}
	return nil
}

// proto is the number of the family.
func (r *reader) proto() uint8 {
	if r.family == knftables.BridgeFamily {
		return unix.NFPROTO_BRIDGE
	}
	return unix.NFPROTO_INET
}

// eachElement hands over the attributes of each element of a set or map of ours. A set
// that is not there has none.
func eachElement(nfproto uint8, set string, each func(attrs map[int][]byte)) error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: nfproto, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nl.ZeroTerminated(TableName)))
	req.AddData(nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_SET, nl.ZeroTerminated(set)))
	msgs, err := req.Execute(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWSETELEM)
	if err != nil && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, nl.ErrDumpInterrupted) {
		return err
	}
	for _, m := range msgs {
		if len(m) < nfattr.HeaderLen {
			continue
		}
		for _, list := range nfattr.All(m[nfattr.HeaderLen:], unix.NFTA_SET_ELEM_LIST_ELEMENTS) {
			for _, element := range nfattr.All(list, unix.NFTA_LIST_ELEM) {
				each(nfattr.Parse(element))
			}
		}
	}
	return nil
}

// elementData is the value of an element's key or data.
func elementData(attrs map[int][]byte, which int) []byte {
	return nfattr.Parse(attrs[which])[unix.NFTA_DATA_VALUE]
}

// key renders an element as elementKey does that of a state.
func (r *reader) key(name string, key, value []byte) string {
	e := knftables.Element{Family: r.family, Set: name}
	words := r.types[name]
	e.Key, words = decode(key, words)
	if value != nil {
		e.Set, e.Map = "", name
		e.Value, _ = decode(value, words)
	}
	return elementKey(&e)
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
		case "ipv6_addr", "ifname", "iifname", advertised:
			size = 16
		}
		size = min(size, len(b))
		out = append(out, word(types[0], b[:size]))
		b, types = b[min((size+registerWord-1)/registerWord*registerWord, len(b)):], types[1:]
	}
	return out, types
}

// word renders one part as nft lists it.
func word(typ string, b []byte) string {
	switch typ {
	case "ipv4_addr", "ipv6_addr":
		a, _ := netip.AddrFromSlice(b)
		return a.String()
	case "ifname", "iifname":
		return ifname(nfattr.String(b))
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

// between pairs the bounds of an interval set. A range without an end goes on to the
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
