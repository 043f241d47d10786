package wire

import (
	"encoding/binary"
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
	sets   uint32   // anonymous sets
	exprs  []byte   // of the rule that is being written
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

// AddChain adds a regular chain. It is no error if the chain is there.
func (m *Batch) AddChain(name string) {
	m.object(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, name)
}

// FlushChain removes the rules of a chain.
func (m *Batch) FlushChain(name string) {
	m.object(unix.NFT_MSG_DELRULE, 0, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, name)
}

// DeleteRule removes the rule of a chain that has a handle.
func (m *Batch) DeleteRule(chain string, handle uint64) {
	begin := m.begin(unix.NFT_MSG_DELRULE, 0, chain)
	m.b = nfattr.AppendString(nfattr.AppendString(m.b, unix.NFTA_RULE_TABLE, m.table), unix.NFTA_RULE_CHAIN, chain)
	m.b = nfattr.Append(m.b, unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, handle))
	nfattr.EndMessage(m.b, begin)
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
func (m *Batch) AddSet(name string, types []string, flags uint32) { m.set(name, types, flags, 0) }

// set adds a set. size is of a set that never changes, for others 0.
func (m *Batch) set(name string, types []string, flags uint32, size int) {
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

// AddElements adds elements of one set or map, whose key and value have types. It returns
// false for an element that it cannot write.
func (m *Batch) AddElements(of []*knftables.Element, types []string, interval bool) bool {
	return m.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, of, types, interval)
}

// DeleteElements is AddElements for elements that go.
func (m *Batch) DeleteElements(of []*knftables.Element, types []string, interval bool) bool {
	return m.elements(unix.NFT_MSG_DELSETELEM, 0, of, types, interval)
}

func (m *Batch) elements(command, flags uint16, of []*knftables.Element, types []string, interval bool) bool {
	for len(of) > 0 {
		begin, list := m.beginList(command, flags, of[0].Set+of[0].Map, 0)
		for len(of) > 0 && len(m.b)-list < bytesPerList {
			written := false
			if interval && of[0].Key[0] != CatchAllKey {
				written = m.interval(of[0].Key)
			} else {
				written = m.element(of[0], types, command == unix.NFT_MSG_NEWSETELEM)
			}
			if !written {
				return false
			}
			of = of[1:]
		}
		m.endList(begin, list)
	}
	return true
}

// beginList begins a message about elements of a set, of an anonymous one with its number;
// endList ends it.
func (m *Batch) beginList(command, flags uint16, set string, id uint32) (begin, list int) {
	begin = m.begin(command, flags, set)
	m.b = nfattr.AppendString(m.b, unix.NFTA_SET_ELEM_LIST_TABLE, m.table)
	m.b = nfattr.AppendString(m.b, unix.NFTA_SET_ELEM_LIST_SET, set)
	if id != 0 {
		m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_ELEM_LIST_SET_ID, id)
	}
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
	begin, list := m.beginList(command, flags, set, 0)
	m.b = each(m.b)
	m.endList(begin, list)
}

// element adds one element, of a map with its value if that is asked for.
func (m *Batch) element(e *knftables.Element, types []string, value bool) bool {
	var at int
	if slices.Equal(e.Key, []string{CatchAllKey}) {
		m.b, at = nfattr.Begin(m.b, unix.NFTA_LIST_ELEM)
		m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_ELEM_FLAGS, CatchAllFlag)
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
