package nft

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/wire"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// hookNames are nft's words for the hooks of the families inet and bridge, by number
// (enum nf_inet_hooks of linux/netfilter.h, NF_BR_* of linux/netfilter_bridge.h).
var hookNames = []string{"prerouting", "input", "forward", "output", "postrouting"}

// objects implements reader by netlink, which costs a hundredth of the program nft.
// google/nftables does not serve: it reads no rule that asks for the direction of a
// connection, and its errors hide which objects are not there.
func (k kernel) objects(_ context.Context, id ID) (*contents, error) {
	out, f, table := newContents(), wire.FamilyNumbers[knftables.Family(id.Family)], id.Name
	err := k.dump(unix.NFT_MSG_GETTABLE, f, func(attrs []byte) {
		if a := nfattr.Parse(attrs); nfattr.String(a[unix.NFTA_TABLE_NAME]) == table {
			out.dormant = nfattr.Uint32(a[unix.NFTA_TABLE_FLAGS])&unix.NFT_TABLE_F_DORMANT != 0
		}
	})
	if err != nil {
		return nil, err
	}
	err = k.dump(unix.NFT_MSG_GETCHAIN, f, func(attrs []byte) {
		if a := nfattr.Parse(attrs); nfattr.String(a[unix.NFTA_CHAIN_TABLE]) == table {
			name := nfattr.String(a[unix.NFTA_CHAIN_NAME])
			out.rules[name], out.hooks[name] = []string{}, hook(a)
		}
	})
	if err != nil {
		return nil, err
	}
	err = k.dump(unix.NFT_MSG_GETRULE, f, func(attrs []byte) {
		if a := nfattr.Parse(attrs); nfattr.String(a[unix.NFTA_RULE_TABLE]) == table {
			chain := nfattr.String(a[unix.NFTA_RULE_CHAIN])
			out.rules[chain] = append(out.rules[chain], wire.Comment(a[unix.NFTA_RULE_USERDATA]))
		}
	}, text(unix.NFTA_RULE_TABLE, table))
	if err != nil {
		return nil, err
	}
	err = k.dump(unix.NFT_MSG_GETSET, f, func(attrs []byte) {
		a := nfattr.Parse(attrs)
		// Sets in rules are anonymous and end with their rules.
		if nfattr.Uint32(a[unix.NFTA_SET_FLAGS])&unix.NFT_SET_ANONYMOUS == 0 {
			name := nfattr.String(a[unix.NFTA_SET_NAME])
			flags := nfattr.Uint32(a[unix.NFTA_SET_FLAGS])
			out.elements[name], out.maps[name] = nil, flags&unix.NFT_SET_MAP != 0
			out.forms[name] = setForm{nfattr.Uint32(a[unix.NFTA_SET_KEY_TYPE]), nfattr.Uint32(a[unix.NFTA_SET_KEY_LEN]), flags, nfattr.Uint32(a[unix.NFTA_SET_DATA_TYPE]), nfattr.Uint32(a[unix.NFTA_SET_DATA_LEN])}
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
	if n := nfattr.Uint32(a[unix.NFTA_HOOK_HOOKNUM]); int(n) < len(hookNames) {
		word = hookNames[n]
	}
	text := fmt.Sprintf("%s %s %d", nfattr.String(chain[unix.NFTA_CHAIN_TYPE]), word, int32(nfattr.Uint32(a[unix.NFTA_HOOK_PRIORITY])))
	if policy := chain[unix.NFTA_CHAIN_POLICY]; len(policy) == 4 && nfattr.Uint32(policy) != nfAccept {
		text += " policy drop"
	}
	return text
}

// elements implements reader.
func (k kernel) elements(_ context.Context, id ID, s *Set) (out []string, err error) {
	var bounds []wire.Bound
	types := s.types()
	err = k.dump(unix.NFT_MSG_GETSETELEM, wire.FamilyNumbers[knftables.Family(id.Family)], func(attrs []byte) {
		nfattr.Each(nfattr.Find(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ int, element []byte) {
			flags := nfattr.Find(element, unix.NFTA_SET_ELEM_FLAGS)
			key := nfattr.Find(element, unix.NFTA_SET_ELEM_KEY, unix.NFTA_DATA_VALUE)
			switch {
			case wire.IsCatchAll(flags):
				out = append(out, wire.CatchAllKey)
			case s.Fill == Ranges:
				addr, _ := netip.AddrFromSlice(key)
				bounds = append(bounds, wire.Bound{Addr: addr, End: nfattr.Uint32(flags)&unix.NFT_SET_ELEM_INTERVAL_END != 0})
			default:
				words, left := wire.Decode(key, types)
				e := strings.Join(words, nextWord)
				if value := nfattr.Find(element, unix.NFTA_SET_ELEM_DATA, unix.NFTA_DATA_VALUE); value != nil {
					words, _ = wire.Decode(value, left)
					e += toValue + strings.Join(words, nextWord)
				} else if to := nfattr.Find(element, unix.NFTA_SET_ELEM_DATA, unix.NFTA_DATA_VERDICT, unix.NFTA_VERDICT_CHAIN); to != nil {
					e += toValue + "goto " + nfattr.String(to)
				}
				out = append(out, e)
			}
		})
	}, text(unix.NFTA_SET_ELEM_LIST_TABLE, id.Name), text(unix.NFTA_SET_ELEM_LIST_SET, s.Name))
	for _, r := range wire.Ranges(bounds) {
		out = append(out, r.String())
	}
	return out, err
}
