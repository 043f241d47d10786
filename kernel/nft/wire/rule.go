package wire

import (
	"encoding/binary"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/kernel/nfattr"
	"golang.org/x/sys/unix"
)

// AddRule adds a rule with a comment to a chain, before the rule with a handle or, for 0, at
// the end, in the kernel's expressions that the program nft makes of its text. It returns
// false for a rule that it cannot write: it knows the words of ordered rules alone.
func (m *Batch) AddRule(chain string, before uint64, text, comment string) bool {
	m.exprs = m.exprs[:0]
	r := ruleReader{Batch: m, words: strings.Fields(text)}
	for len(r.words) > 0 {
		if !r.statement() {
			return false
		}
	}
	flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_APPEND)
	if before != 0 {
		flags = unix.NLM_F_CREATE
	}
	begin := m.begin(unix.NFT_MSG_NEWRULE, flags, chain)
	m.b = nfattr.AppendString(nfattr.AppendString(m.b, unix.NFTA_RULE_TABLE, m.table), unix.NFTA_RULE_CHAIN, chain)
	if before != 0 {
		m.b = nfattr.Append(m.b, unix.NFTA_RULE_POSITION, binary.BigEndian.AppendUint64(nil, before))
	}
	var at int
	m.b, at = nfattr.Begin(m.b, unix.NFTA_RULE_EXPRESSIONS)
	m.b = append(m.b, m.exprs...)
	nfattr.End(m.b, at)
	m.b = AppendComment(m.b, unix.NFTA_RULE_USERDATA, comment)
	nfattr.EndMessage(m.b, begin)
	return true
}

// ruleReader reads the words of a rule and writes their expressions.
type ruleReader struct {
	*Batch
	words  []string
	family string // nft's word for the family that was matched
	loaded int    // words of registers that the last key takes
}

// next takes words if they come next.
func (r *ruleReader) next(words ...string) bool {
	if len(r.words) < len(words) {
		return false
	}
	for i, w := range words {
		if r.words[i] != w {
			return false
		}
	}
	r.words = r.words[len(words):]
	return true
}

// take returns the next word, "" at the end.
func (r *ruleReader) take() (w string) {
	if len(r.words) > 0 {
		w, r.words = r.words[0], r.words[1:]
	}
	return w
}

// statement reads a match, a renewal or a verdict.
func (r *ruleReader) statement() bool {
	switch {
	case r.next("jump"):
		return r.verdict(unix.NFT_JUMP)
	case r.next("goto"):
		return r.verdict(unix.NFT_GOTO)
	case r.next("return"):
		r.immediate(unix.NFT_RETURN, "")
		return len(r.words) == 0
	case r.next("ct", "state", "untracked"):
		r.ct(unix.NFT_CT_STATE, 0)
		r.mask(binary.NativeEndian.AppendUint32(nil, untrackedState), 0)
		r.compare(unix.NFT_CMP_NEQ, make([]byte, RegisterWord))
		return true
	case r.next("meta", "l4proto"):
		r.meta(unix.NFT_META_L4PROTO, 0)
		return r.oneOf("inet_proto")
	case r.next("ct", "original", "proto-dst"):
		r.ctOriginal(unix.NFT_CT_PROTO_DST, 0)
		return r.oneOf("inet_service")
	case r.next("update"):
		return r.renewal()
	case len(r.words) > 1 && r.words[1] == "dport":
		return r.ports()
	case !r.key():
		return false
	}
	w := r.take()
	if set, is := strings.CutPrefix(w, "@"); is {
		r.lookup(set, 0)
		return true
	}
	at := fieldsOf[r.family]
	if at == nil || r.loaded != int(at.length)/RegisterWord {
		return false
	}
	v := wordBytes(at.addr, w)
	r.compare(unix.NFT_CMP_EQ, v)
	return v != nil
}

// ports reads destination ports, of one protocol or of any: "th".
func (r *ruleReader) ports() bool {
	if word := r.take(); word != "th" {
		protocol, known := Protocols[word]
		if !known {
			return false
		}
		r.meta(unix.NFT_META_L4PROTO, 0)
		r.compare(unix.NFT_CMP_EQ, []byte{protocol})
	}
	r.take()
	r.port(0)
	return r.oneOf("inet_service")
}

// untrackedState is the bit of untracked packets in the state that the kernel loads
// (NF_CT_STATE_UNTRACKED_BIT of linux/netfilter/nf_conntrack_common.h).
const untrackedState = 1 << 6

// register is the kernel's number for a word of the registers. nft names each fourth by the
// register of 16 bytes that begins there (enum nft_registers of linux/netfilter/nf_tables.h).
func register(word int) uint32 {
	if word%4 == 0 {
		return unix.NFT_REG_1 + uint32(word/4)
	}
	return unix.NFT_REG32_00 + uint32(word)
}

// key loads a concatenation, and matches its family.
func (r *ruleReader) key() bool {
	for word := 0; ; {
		size, ok := r.field(word)
		if !ok {
			return false
		}
		word += size
		if r.loaded = word; !r.next(".") {
			return true
		}
	}
}

// field loads a part of a concatenation into registers, and returns how many words it takes.
func (r *ruleReader) field(word int) (size int, ok bool) {
	switch {
	case r.next("meta", "l4proto"):
		r.meta(unix.NFT_META_L4PROTO, word)
		return 1, true
	case r.next("th", "dport"):
		r.port(word)
		return 1, true
	}
	original := r.next("ct", "original")
	if original && r.next("proto-dst") {
		r.ctOriginal(unix.NFT_CT_PROTO_DST, word)
		return 1, true
	}
	f := r.take()
	at := fieldsOf[f]
	if at == nil {
		return 0, false
	}
	side := r.take()
	offset, known := at.offsets[side]
	switch {
	case !known || original && side != "daddr":
		return 0, false
	case original:
		r.ctOriginal(at.ctDst, word)
	default:
		if r.family != f {
			if r.family != "" || word > 0 {
				return 0, false
			}
			r.family = f
			r.meta(unix.NFT_META_NFPROTO, 0)
			r.compare(unix.NFT_CMP_EQ, []byte{at.proto})
		}
		r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, at.length, word)
	}
	if r.next("&") {
		mask := wordBytes(at.addr, r.take())
		if mask == nil {
			return 0, false
		}
		r.mask(mask, word)
	}
	return int(at.length) / RegisterWord, true
}

// addrFields is where the addresses of a family are.
type addrFields struct {
	addr          string // nft's word for the type
	proto         byte
	length, ctDst uint32
	offsets       map[string]uint32 // in the header
}

var fieldsOf = map[string]*addrFields{
	"ip":  {"ipv4_addr", unix.NFPROTO_IPV4, 4, unix.NFT_CT_DST_IP, map[string]uint32{"saddr": 12, "daddr": 16}},
	"ip6": {"ipv6_addr", unix.NFPROTO_IPV6, 16, unix.NFT_CT_DST_IP6, map[string]uint32{"saddr": 8, "daddr": 24}},
}

// oneOf compares what was loaded with a value, or with a list of values and ranges.
func (r *ruleReader) oneOf(typ string) bool {
	if !r.next("{") {
		v := wordBytes(typ, r.take())
		r.compare(unix.NFT_CMP_EQ, v)
		return v != nil
	}
	var values [][2][]byte
	ranges := false
	for {
		first, last, is := strings.Cut(strings.TrimSuffix(r.take(), ","), "-")
		if !is {
			last = first
		}
		v := [2][]byte{wordBytes(typ, first), wordBytes(typ, last)}
		if v[0] == nil || v[1] == nil {
			return false
		}
		values, ranges = append(values, v), ranges || is
		if r.next("}") {
			break
		}
	}
	switch {
	case len(values) > 1:
		r.lookup(anonymousSet, r.anonymous(typ, values, ranges))
	case ranges:
		r.compare(unix.NFT_CMP_GTE, values[0][0])
		r.compare(unix.NFT_CMP_LTE, values[0][1])
	default:
		r.compare(unix.NFT_CMP_EQ, values[0][0])
	}
	return true
}

// anonymousSet is the name of sets that the kernel names.
const anonymousSet = "__set%d"

// anonymous adds a set of values or of disjoint ranges, which ends with its rule.
func (m *Batch) anonymous(typ string, values [][2][]byte, ranges bool) (id uint32) {
	bounds := map[string]bool{} // whether a range ends before the value
	for _, v := range values {
		bounds[string(v[0])] = false
	}
	flags := uint32(unix.NFT_SET_ANONYMOUS | unix.NFT_SET_CONSTANT)
	if ranges {
		flags |= unix.NFT_SET_INTERVAL
		zero := make([]byte, len(values[0][0]))
		if _, first := bounds[string(zero)]; !first {
			bounds[string(zero)] = true
		}
		for _, v := range values {
			behind := new(big.Int).Add(new(big.Int).SetBytes(v[1]), big.NewInt(1))
			if behind.BitLen() > 8*len(zero) {
				continue // the last value
			}
			end := string(behind.FillBytes(make([]byte, len(zero))))
			if _, another := bounds[end]; !another {
				bounds[end] = true
			}
		}
	}
	m.set(anonymousSet, []string{typ}, flags, len(bounds))
	begin, list := m.beginList(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, anonymousSet, m.sets)
	for _, value := range slices.Sorted(maps.Keys(bounds)) {
		m.bound([]byte(value), bounds[value])
	}
	m.endList(begin, list)
	return m.sets
}

// renewal writes "update @SET { KEY timeout SECONDS }".
func (r *ruleReader) renewal() bool {
	set, is := strings.CutPrefix(r.take(), "@")
	if !is || !r.next("{") || !r.key() || !r.next("timeout") {
		return false
	}
	after, err := time.ParseDuration(r.take())
	r.expr("dynset", func(b []byte) []byte {
		b = nfattr.AppendUint32(b, unix.NFTA_DYNSET_SREG_KEY, register(0))
		b = nfattr.AppendUint32(b, unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE)
		b = nfattr.Append(b, unix.NFTA_DYNSET_TIMEOUT, binary.BigEndian.AppendUint64(nil, uint64(after.Milliseconds())))
		return nfattr.AppendString(b, unix.NFTA_DYNSET_SET_NAME, set)
	})
	return err == nil && r.next("}")
}

// verdict reads the chain of a verdict, which ends a rule.
func (r *ruleReader) verdict(code int32) bool {
	chain := r.take()
	r.immediate(code, chain)
	return chain != "" && len(r.words) == 0
}
