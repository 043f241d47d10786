package wire

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/nfattr"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// Batch is one transaction for a table, in netlink messages.
type Batch struct {
	family uint8
	table  string
	b      []byte
	about  []string // the object of each message
	last   int      // where the last message begins in b
	sets   uint32   // that are added
	err    error    // of an element that it cannot write
}

// New begins a transaction.
func New(family knftables.Family, table string) *Batch {
	m := &Batch{family: FamilyNumbers[family], table: table}
	m.b, _ = appendControl(nil, unix.NFNL_MSG_BATCH_BEGIN, 0)
	return m
}

// NewAt begins a transaction that the kernel refuses if the last change of nftables does not
// have a number.
func NewAt(family knftables.Family, table string, generation uint32) *Batch {
	m := New(family, table)
	m.b = nfattr.Append(m.b, unix.NFNL_BATCH_GENID, binary.BigEndian.AppendUint32(nil, generation))
	nfattr.EndMessage(m.b, 0)
	return m
}

// Empty tells whether the transaction changes nothing.
func (m *Batch) Empty() bool { return len(m.about) == 0 }

// begin begins a message about an object; nfattr.EndMessage ends it.
func (m *Batch) begin(command, flags uint16, about string) (begin int) {
	m.about = append(m.about, about)
	m.b, m.last = nfattr.AppendHeader(m.b, unix.NFNL_SUBSYS_NFTABLES<<8|command, flags, uint32(len(m.about)))
	m.b[m.last+unix.SizeofNlMsghdr] = m.family
	return m.last
}

// object adds a message about a chain or set that has its table's name and its own alone.
func (m *Batch) object(command, flags uint16, table, object int, name string) {
	begin := m.begin(command, flags, name)
	m.b = nfattr.AppendString(nfattr.AppendString(m.b, table, m.table), object, name)
	nfattr.EndMessage(m.b, begin)
}

// AddTable adds the table.
func (m *Batch) AddTable() {
	begin := m.begin(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, m.table)
	m.b = nfattr.AppendString(m.b, unix.NFTA_TABLE_NAME, m.table)
	nfattr.EndMessage(m.b, begin)
}

// FlushChain removes the rules of a chain.
func (m *Batch) FlushChain(name string) {
	m.object(unix.NFT_MSG_DELRULE, 0, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, name)
}

// DeleteChain removes a chain without rules.
func (m *Batch) DeleteChain(name string) {
	m.object(unix.NFT_MSG_DELCHAIN, 0, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, name)
}

// DeleteSet removes a set or map.
func (m *Batch) DeleteSet(name string) {
	m.object(unix.NFT_MSG_DELSET, 0, unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, name)
}

// FlushSet removes the elements of a set.
func (m *Batch) FlushSet(name string) {
	m.object(unix.NFT_MSG_DELSETELEM, 0, unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET, name)
}

// AddSet adds a set whose key has types, in words of nft.
func (m *Batch) AddSet(name string, types []string, flags uint32) {
	begin := m.begin(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, name)
	m.b = nfattr.AppendString(nfattr.AppendString(m.b, unix.NFTA_SET_TABLE, m.table), unix.NFTA_SET_NAME, name)
	typ, length := KeyForm(types)
	order := uint32(bigEndian)
	if len(types) > 1 {
		order = 0
	}
	m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_FLAGS, flags)
	m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_KEY_TYPE, typ)
	m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_KEY_LEN, length)
	m.sets++
	m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_ID, m.sets)
	m.b = nfattr.Append(m.b, unix.NFTA_SET_USERDATA, binary.NativeEndian.AppendUint32([]byte{keyByteOrder, 4}, order))
	nfattr.EndMessage(m.b, begin)
}

// keyByteOrder is the type of a key's byte order in a set's user data (enum
// nftnl_udata_set_types of libnftnl), bigEndian its value (enum byteorder of nft).
const (
	keyByteOrder = 0
	bigEndian    = 2
)

// A catch-all element is in a set or map for every key that no other element has. No state of
// ours has one, another program may add it. It has this flag (NFT_SET_ELEM_CATCHALL of
// linux/netfilter/nf_tables.h) and no key, for which nft has this word.
const (
	CatchAllFlag = 0x2
	CatchAllKey  = "*"
)

// bytesPerList bounds the elements of a message, whose attribute has a length of 16 bits.
const bytesPerList = 32 << 10

// AddElements adds elements of one set or map, whose key and value have types. With interval the
// set has ranges of addresses. Commit returns the error of an element that is none of the set.
func (m *Batch) AddElements(of []*knftables.Element, types []string, interval bool) {
	m.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, of, types, interval)
}

// DeleteElements is AddElements for elements that go.
func (m *Batch) DeleteElements(of []*knftables.Element, types []string, interval bool) {
	m.elements(unix.NFT_MSG_DELSETELEM, 0, of, types, interval)
}

func (m *Batch) elements(command, flags uint16, of []*knftables.Element, types []string, interval bool) {
	for len(of) > 0 {
		begin, list := m.beginList(command, flags, of[0].Set+of[0].Map)
		for ; len(of) > 0 && len(m.b)-list < bytesPerList; of = of[1:] {
			e, written := of[0], false
			if interval && e.Key[0] != CatchAllKey {
				written = m.interval(e.Key)
			} else {
				written = m.element(e, types, command == unix.NFT_MSG_NEWSETELEM)
			}
			if !written {
				m.err = cmp.Or(m.err, fmt.Errorf("%s: %q %q is no element", e.Set+e.Map, e.Key, e.Value))
			}
		}
		m.endList(begin, list)
	}
}

// beginList begins a message about elements of a set; endList ends it.
func (m *Batch) beginList(command, flags uint16, set string) (begin, list int) {
	begin = m.begin(command, flags, set)
	m.b = nfattr.AppendString(m.b, unix.NFTA_SET_ELEM_LIST_TABLE, m.table)
	m.b = nfattr.AppendString(m.b, unix.NFTA_SET_ELEM_LIST_SET, set)
	m.b, list = nfattr.Begin(m.b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	return begin, list
}

func (m *Batch) endList(begin, list int) {
	nfattr.End(m.b, list)
	nfattr.EndMessage(m.b, begin)
}

// List adds a message about elements of a set, which each appends. They must not be over
// 65,535 bytes.
func (m *Batch) List(command, flags uint16, set string, each func([]byte) []byte) {
	begin, list := m.beginList(command, flags, set)
	m.b = each(m.b)
	m.endList(begin, list)
}

// element adds one element, of a map with its value if that is asked for. It returns false for
// one that is none of the set.
func (m *Batch) element(e *knftables.Element, types []string, value bool) bool {
	var at int
	if slices.Equal(e.Key, []string{CatchAllKey}) {
		m.b, at = nfattr.Begin(m.b, unix.NFTA_LIST_ELEM)
		m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_ELEM_FLAGS, CatchAllFlag)
		nfattr.End(m.b, at)
		return !value // none is added
	}
	key, types, ok := encode(e.Key, types)
	m.b, at = nfattr.Begin(m.b, unix.NFTA_LIST_ELEM)
	m.value(unix.NFTA_SET_ELEM_KEY, key)
	if e.Map != "" && value {
		if chain, is := strings.CutPrefix(strings.Join(e.Value, ""), "goto "); is {
			m.b, ok = appendGoto(m.b, chain), ok && slices.Equal(types, []string{"verdict"})
		} else {
			data, _, known := encode(e.Value, types)
			m.value(unix.NFTA_SET_ELEM_DATA, data)
			ok = ok && known
		}
	}
	nfattr.End(m.b, at)
	return ok
}

// interval adds an element of an interval set: its first address, and the one behind it.
func (m *Batch) interval(key []string) bool {
	r, ok := ParseRange(strings.Join(key, ""))
	if !ok {
		return false
	}
	m.bound(r.From().AsSlice(), false)
	if next := r.To().Next(); next.IsValid() {
		m.bound(next.AsSlice(), true)
	}
	return true
}

// bound adds an end of an interval.
func (m *Batch) bound(key []byte, end bool) {
	var at int
	m.b, at = nfattr.Begin(m.b, unix.NFTA_LIST_ELEM)
	m.value(unix.NFTA_SET_ELEM_KEY, key)
	if end {
		m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	nfattr.End(m.b, at)
}

func (m *Batch) value(typ int, v []byte) {
	var at int
	m.b, at = nfattr.Begin(m.b, typ)
	m.b = nfattr.Append(m.b, unix.NFTA_DATA_VALUE, v)
	nfattr.End(m.b, at)
}

// appendGoto appends the value of an element that leads to a chain.
func appendGoto(b []byte, chain string) []byte {
	code := int32(unix.NFT_GOTO)
	b, data := nfattr.Begin(b, unix.NFTA_SET_ELEM_DATA)
	b, verdict := nfattr.Begin(b, unix.NFTA_DATA_VERDICT)
	b = nfattr.AppendUint32(b, unix.NFTA_VERDICT_CODE, uint32(code))
	b = nfattr.AppendString(b, unix.NFTA_VERDICT_CHAIN, chain)
	nfattr.End(b, verdict)
	nfattr.End(b, data)
	return b
}
