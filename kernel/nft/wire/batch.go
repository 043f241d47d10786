package wire

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/kernel/nfattr"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// Batch is one transaction for a table, in netlink messages.
type Batch struct {
	family uint8
	table  string
	types  Types
	b      []byte
	about  []string // the object of each message
	last   int      // where the last message begins in b
	open   list     // that more elements come to
	sets   uint32   // that are added
	// timeout is of elements that are added, 0: that of their set.
	timeout time.Duration
	err     error // of an object that it cannot write
}

// Types returns the words for the types of the key of a set or map, and after them of its value, and
// whether the set has ranges of addresses.
type Types func(set string) (types []string, interval bool)

// list is a message about elements of a set.
type list struct {
	command     uint16
	set         string
	begin, list int
}

// New begins a transaction. types may be nil for a transaction without elements of knftables.
func New(family knftables.Family, table string, types Types) *Batch {
	m := &Batch{family: FamilyNumbers[family], table: table, types: types}
	m.b = appendControl(nil, unix.NFNL_MSG_BATCH_BEGIN, 0)
	return m
}

// Empty tells whether the transaction changes nothing.
func (m *Batch) Empty() bool { return len(m.about) == 0 }

// begin begins a message about an object; nfattr.EndMessage ends it.
func (m *Batch) begin(command, flags uint16, about string) (begin int) {
	m.close()
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

// Add adds a set or an element. It is no error if that is there. Commit returns the error of an object
// that cannot be written.
func (m *Batch) Add(o knftables.Object) {
	switch o := o.(type) {
	case *knftables.Set:
		m.addSet(o)
	case *knftables.Element:
		m.element(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, o)
	default:
		m.unknown(o)
	}
}

// AddFor adds an element that ends after a timeout. One that is there gets it as its own where the kernel can
// change that (Linux 6.12 and later).
func (m *Batch) AddFor(e *knftables.Element, timeout time.Duration) {
	m.timeout = timeout
	m.Add(e)
	m.timeout = 0
}

// Flush removes the rules of a chain, or the elements of a set.
func (m *Batch) Flush(o knftables.Object) {
	switch o := o.(type) {
	case *knftables.Chain:
		m.object(unix.NFT_MSG_DELRULE, 0, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, o.Name)
	case *knftables.Set:
		m.object(unix.NFT_MSG_DELSETELEM, 0, unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET, o.Name)
	default:
		m.unknown(o)
	}
}

// Delete removes a chain without rules, a set, a map as a set, or an element.
func (m *Batch) Delete(o knftables.Object) {
	switch o := o.(type) {
	case *knftables.Chain:
		m.object(unix.NFT_MSG_DELCHAIN, 0, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, o.Name)
	case *knftables.Set:
		m.object(unix.NFT_MSG_DELSET, 0, unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, o.Name)
	case *knftables.Element:
		m.element(unix.NFT_MSG_DELSETELEM, 0, o)
	default:
		m.unknown(o)
	}
}

func (m *Batch) unknown(o knftables.Object) {
	m.err = cmp.Or(m.err, fmt.Errorf("a %T is written by the program nft alone", o))
}

func (m *Batch) addSet(set *knftables.Set) {
	begin := m.begin(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, set.Name)
	m.b = nfattr.AppendString(nfattr.AppendString(m.b, unix.NFTA_SET_TABLE, m.table), unix.NFTA_SET_NAME, set.Name)
	types, order := Parts(set.Type), uint32(bigEndian)
	if len(types) > 1 {
		order = 0
	}
	typ, length := KeyForm(types)
	m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_FLAGS, Flags(set))
	m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_KEY_TYPE, typ)
	m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_KEY_LEN, length)
	m.sets++
	m.b = nfattr.AppendUint32(m.b, unix.NFTA_SET_ID, m.sets)
	data := binary.NativeEndian.AppendUint32([]byte{keyByteOrder, 4}, order)
	if set.Comment != nil {
		data = append(append(data, setComment, byte(len(*set.Comment)+1)), *set.Comment+"\x00"...)
	}
	m.b = nfattr.Append(m.b, unix.NFTA_SET_USERDATA, data)
	nfattr.EndMessage(m.b, begin)
}

// keyByteOrder and setComment are the types of a key's byte order and of a comment in a set's user data
// (enum nftnl_udata_set_types of libnftnl), bigEndian the value of the former (enum byteorder of nft).
const (
	keyByteOrder = 0
	setComment   = 7
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

// element adds an element to the open list, if that is of its set and has room, else to a new one.
func (m *Batch) element(command, flags uint16, e *knftables.Element) {
	set, written := e.Set+e.Map, false
	if m.open.set != set || m.open.command != command || len(m.b)-m.open.list >= bytesPerList {
		begin, at := m.beginList(command, flags, set)
		m.open = list{command, set, begin, at}
	}
	if types, interval := m.types(set); interval && e.Key[0] != CatchAllKey {
		written = m.interval(e.Key)
	} else {
		written = m.keyed(e, types, command == unix.NFT_MSG_NEWSETELEM)
	}
	if !written {
		m.err = cmp.Or(m.err, fmt.Errorf("%s: %q %q is no element", set, e.Key, e.Value))
	}
}

// close ends the open list.
func (m *Batch) close() {
	if m.open.set != "" {
		m.endList(m.open.begin, m.open.list)
		m.open = list{}
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

// keyed adds one element, of a map with its value if that is asked for. It returns false for
// one that is none of the set.
func (m *Batch) keyed(e *knftables.Element, types []string, value bool) bool {
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
	if m.timeout > 0 {
		m.b = AppendTimeout(m.b, m.timeout)
	}
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
