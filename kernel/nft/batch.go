package nft

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/kernel/nfattr"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// batch is one transaction for a table, in netlink messages. The program nft reads every set
// of the table before it changes one: with a thousand rules by name a change of one element
// takes 30 ms.
type batch struct {
	family uint8
	b      []byte
	about  []string // the object of each message
	last   int      // where the last message begins in b
	sets   uint32   // anonymous sets
	exprs  []byte   // of the rule that is being written
}

func newBatch(family knftables.Family) *batch {
	m := &batch{family: familyNumbers[family]}
	m.b, _ = appendBatch(nil, unix.NFNL_MSG_BATCH_BEGIN, 0)
	return m
}

// begin begins a message about an object; nfattr.EndMessage ends it.
func (m *batch) begin(command, flags uint16, about string) (begin int) {
	m.about = append(m.about, about)
	m.b, m.last = nfattr.AppendHeader(m.b, unix.NFNL_SUBSYS_NFTABLES<<8|command, flags, uint32(len(m.about)))
	m.b[m.last+unix.SizeofNlMsghdr] = m.family
	return m.last
}

// object adds a message about a chain or set that has its table's name and its own alone.
func (m *batch) object(command, flags uint16, table, object int, name string) {
	begin := m.begin(command, flags, name)
	m.b = nfattr.AppendString(nfattr.AppendString(m.b, table, TableName), object, name)
	nfattr.EndMessage(m.b, begin)
}

// set adds a set whose key has types, in words of nft. size is of a set that never changes,
// for others 0.
func (m *batch) set(name string, types []string, flags uint32, size int) {
	begin := m.begin(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, name)
	m.b = nfattr.AppendString(nfattr.AppendString(m.b, unix.NFTA_SET_TABLE, TableName), unix.NFTA_SET_NAME, name)
	var typ, length, order uint32 = 0, 0, bigEndian
	for _, t := range types {
		typ, length = typ<<typeBits|dataTypes[t].number, (length+registerWord-1)/registerWord*registerWord+dataTypes[t].length
	}
	if len(types) > 1 {
		length, order = (length+registerWord-1)/registerWord*registerWord, 0
	}
	m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_FLAGS, flags)
	m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_KEY_TYPE, typ)
	m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_KEY_LEN, length)
	if size > 0 {
		var desc int
		m.b, desc = nfattr.Begin(m.b, unix.NFTA_SET_DESC)
		m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_DESC_SIZE, uint32(size))
		nfattr.End(m.b, desc)
	}
	m.sets++
	m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_ID, m.sets)
	m.b = nfattr.Append(m.b, unix.NFTA_SET_USERDATA, binary.NativeEndian.AppendUint32([]byte{keyByteOrder, 4}, order))
	nfattr.EndMessage(m.b, begin)
}

// dataTypes are nft's numbers for the types of keys (enum datatypes of its datatype.h), and
// their lengths in bytes.
var dataTypes = map[string]struct{ number, length uint32 }{
	"ipv4_addr": {7, 4}, "ipv6_addr": {8, 16}, "inet_proto": {12, 1}, "inet_service": {13, 2},
}

const (
	// typeBits is how many bits of the type of a concatenation each of its types has.
	typeBits = 6
	// keyByteOrder is the type of a key's byte order in a set's user data (enum
	// nftnl_udata_set_types of libnftnl), bigEndian its value (enum byteorder of nft).
	keyByteOrder = 0
	bigEndian    = 2
)

// bytesPerList bounds the elements of a message, whose attribute has a length of 16 bits.
const bytesPerList = 32 << 10

// elements adds or deletes elements of one set or map, whose key and value have types. It
// returns false for an element that it cannot write.
func (m *batch) elements(command uint16, of []*knftables.Element, types []string, interval bool) bool {
	for len(of) > 0 {
		name := of[0].Set + of[0].Map
		flags := uint16(0)
		if command == unix.NFT_MSG_NEWSETELEM {
			flags = unix.NLM_F_CREATE
		}
		begin := m.begin(command, flags, name)
		m.b = nfattr.AppendString(m.b, unix.NFTA_SET_ELEM_LIST_TABLE, TableName)
		m.b = nfattr.AppendString(m.b, unix.NFTA_SET_ELEM_LIST_SET, name)
		var list int
		m.b, list = nfattr.Begin(m.b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for len(of) > 0 && len(m.b)-list < bytesPerList {
			written := false
			if interval && of[0].Key[0] != catchAllKey {
				written = m.interval(of[0].Key)
			} else {
				written = m.element(of[0], types, command == unix.NFT_MSG_NEWSETELEM)
			}
			if !written {
				return false
			}
			of = of[1:]
		}
		nfattr.End(m.b, list)
		nfattr.EndMessage(m.b, begin)
	}
	return true
}

// element adds one element, of a map with its value if that is asked for.
func (m *batch) element(e *knftables.Element, types []string, value bool) bool {
	var at int
	if slices.Equal(e.Key, []string{catchAllKey}) {
		m.b, at = nfattr.Begin(m.b, unix.NFTA_LIST_ELEM)
		m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_ELEM_FLAGS, catchAllFlag)
		nfattr.End(m.b, at)
		return !value // none is added
	}
	key, types, ok := encode(e.Key, types)
	if !ok {
		return false
	}
	m.b, at = nfattr.Begin(m.b, unix.NFTA_LIST_ELEM)
	m.value(unix.NFTA_SET_ELEM_KEY, key)
	if e.Map != "" && value {
		if len(types) == 1 && types[0] == "verdict" {
			chain, is := strings.CutPrefix(strings.Join(e.Value, ""), "goto ")
			if !is {
				return false
			}
			m.b = appendVerdict(m.b, unix.NFTA_SET_ELEM_DATA, unix.NFT_GOTO, chain)
		} else if data, _, ok := encode(e.Value, types); ok {
			m.value(unix.NFTA_SET_ELEM_DATA, data)
		} else {
			return false
		}
	}
	nfattr.End(m.b, at)
	return true
}

// interval adds an element of an interval set: its first address, and the one behind it.
func (m *batch) interval(key []string) bool {
	r, ok := parseRange(strings.Join(key, ""))
	if !ok {
		return false
	}
	m.bound(r.first.AsSlice(), false)
	if next := r.last.Next(); next.IsValid() {
		m.bound(next.AsSlice(), true)
	}
	return true
}

// bound adds an end of an interval.
func (m *batch) bound(key []byte, end bool) {
	var at int
	m.b, at = nfattr.Begin(m.b, unix.NFTA_LIST_ELEM)
	m.value(unix.NFTA_SET_ELEM_KEY, key)
	if end {
		m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	nfattr.End(m.b, at)
}

func (m *batch) value(typ int, v []byte) {
	var at int
	m.b, at = nfattr.Begin(m.b, typ)
	m.b = nfattr.Append(m.b, unix.NFTA_DATA_VALUE, v)
	nfattr.End(m.b, at)
}

func appendVerdict(b []byte, typ int, code int32, chain string) []byte {
	b, data := nfattr.Begin(b, typ)
	b, verdict := nfattr.Begin(b, unix.NFTA_DATA_VERDICT)
	b = nfattr.AppendUint32(b, unix.NFTA_VERDICT_CODE, uint32(code))
	if chain != "" {
		b = nfattr.AppendString(b, unix.NFTA_VERDICT_CHAIN, chain)
	}
	nfattr.End(b, verdict)
	nfattr.End(b, data)
	return b
}

// encode is the inverse of decode.
func encode(words, types []string) (b []byte, left []string, ok bool) {
	for _, w := range words {
		if len(types) == 0 {
			return nil, nil, false
		}
		part := wordBytes(types[0], w)
		if part == nil {
			return nil, nil, false
		}
		b, types = append(b, part...), types[1:]
		for len(words) > 1 && len(b)%registerWord != 0 {
			b = append(b, 0)
		}
	}
	return b, types, true
}

// wordBytes is the inverse of word; nil for a word that is none of the type.
func wordBytes(typ, w string) []byte {
	switch typ {
	case "ipv4_addr", "ipv6_addr":
		if a, err := netip.ParseAddr(w); err == nil && a.Is6() == (typ == "ipv6_addr") {
			return a.AsSlice()
		}
	case "ifname", "iifname":
		if name := strings.Trim(w, `"`); len(name) < unix.IFNAMSIZ {
			return append([]byte(name), make([]byte, unix.IFNAMSIZ-len(name))...)
		}
	case "inet_proto":
		if p, known := protocols[w]; known {
			return []byte{p}
		}
	case "inet_service":
		if port, err := strconv.ParseUint(w, 0, 16); err == nil {
			return binary.BigEndian.AppendUint16(nil, uint16(port))
		}
	case advertised:
		if n, is := new(big.Int).SetString(w, 0); is && n.BitLen() <= 128 {
			return n.FillBytes(make([]byte, 16))
		}
	}
	return nil
}

// protocols are the numbers of protocols with ports.
var protocols = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

// commit makes the changes: all of them, or none. The error names the object of a change that
// is refused.
func (m *batch) commit() error {
	fd, err := openEntries()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if size := len(m.b) + len(m.b)/2; size > entrySendBuffer {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size); err != nil {
			return err
		}
	}
	changes, messages := make([]entryChange, len(m.about)), make([]entryMessage, len(m.about))
	for i := range messages {
		messages[i] = entryMessage{&changes[i], m.last}
	}
	err = commitBatch(fd, m.b, messages)
	for i := range changes {
		if changes[i].err != nil {
			return fmt.Errorf("%s: %w", m.about[i], changes[i].err)
		}
	}
	return err
}
