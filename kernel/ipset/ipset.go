package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Type is a set type of the kernel.
type Type string

// The set types that Namegate uses.
const (
	HashIP       Type = "hash:ip"
	HashIPPort   Type = "hash:ip,port"
	HashNetIface Type = "hash:net,iface"
)

// NameLengthMax is the longest set name in bytes: IPSET_MAXNAMELEN (32) of
// linux/netfilter/ipset/ip_set.h less the closing zero.
const NameLengthMax = 31

// CommentLengthMax is the longest comment of an entry in bytes:
// IPSET_MAX_COMMENT_SIZE of linux/netfilter/ipset/ip_set.h.
const CommentLengthMax = 255

// TimeoutMax is the longest timeout of an entry: the kernel holds it in
// milliseconds in 32 bits (IPSET_MAX_TIMEOUT of ip_set_timeout.h).
const TimeoutMax = (1<<31 - 1) / 1000 * time.Second

// Set is a set's name and header. Entries of a set with Timeout end by
// themselves; a set with Comment keeps a text with each entry, one with Counters counts the
// packets that rules match by each.
type Set struct {
	Name     string
	Type     Type
	IPv6     bool
	Timeout  bool
	Comment  bool
	Counters bool
	// HashSize is the initial number of buckets, a power of two. Zero is the
	// kernel's default, 1024, which costs a set 16 KiB before its first entry.
	HashSize uint32
	// MaxElem is the most entries the set takes; zero is the kernel's 65536.
	MaxElem uint32
}

// Entry is one element. Which fields count depends on the type of its set.
type Entry struct {
	Addr     netip.Addr
	Protocol uint8  // HashIPPort: IANA protocol number
	Port     uint16 // HashIPPort
	Iface    string // HashNetIface
	// Bits, of HashNetIface, is how long the prefix is whose first address Addr is; zero is
	// Addr alone. Other programs alone add prefixes.
	Bits uint8
	// Timeout is the time the entry has left, rounded up to seconds when it is
	// written; zero lives for ever. At most TimeoutMax.
	Timeout time.Duration
	Comment string
	// Packets, of a set with Counters, is how many packets matched the entry. An entry that is
	// added counts from there on if it is New, which says that the set does not have it; else
	// the number stays. A set without Counters takes no New entry.
	Packets uint64
	New     bool
}

// Key returns the entry with its identity only. The prefix of a whole address is the address.
func (e Entry) Key() Entry {
	e.Timeout, e.Comment, e.Packets, e.New = 0, "", 0, false
	if int(e.Bits) == e.Addr.BitLen() {
		e.Bits = 0
	}
	return e
}

// Op is one change of one set, for Interface.Apply.
type Op struct {
	Set     string
	Delete  bool // the entries go, instead of coming
	Entries []Entry
	// Err is what became of it: nil once the kernel has acknowledged all entries.
	Err error
}

// Interface is the enforcer's view of IP sets. All methods may be called from several
// goroutines; each returns after the kernel has acknowledged.
type Interface interface {
	// Ensure creates the set. A set of that name, type and family that is there
	// already stays as it is, with its entries; one of another type is an error
	// for which IsMismatch holds.
	Ensure(s Set) error
	// Destroy removes the set with its entries. Without such a set the error
	// satisfies IsNotFound; while a rule refers to it, IsBusy.
	Destroy(name string) error
	// Apply adds and deletes entries of one or more sets, in order and in as few system calls
	// as their size allows, and sets the Err of each operation: of a missing set IsNotFound. An
	// entry that is there already gets its timeout, comment and counter overwritten, and to
	// delete one that is missing is no error. Entries before a failing one have been added, and
	// some after it may be. A failed operation does not affect the others. Ops and entries are
	// not kept.
	Apply(ops []Op)
	// Swap exchanges two sets of one type and family under their names, for rules too. Of
	// others: IsMismatch.
	Swap(name, other string) error
	// Each hands over a set or, of the name "", every set of the namespace in one listing: the
	// header, but for HashSize and MaxElem, and the live entries in no order, with the time each
	// has left. A set with many entries comes in parts. each must not call the Interface and not
	// keep the entries. The set missing: IsNotFound.
	Each(name string, each func(s Set, entries []Entry)) error
	// Sizes returns the number of entries of each set of the namespace, by name, or of
	// each named set; missing sets are left out. Expired entries may still count.
	Sizes(names ...string) (map[string]int, error)
}

// refused is the error of an operation on one set.
func refused(op, set string, err error) error { return fmt.Errorf("ipset %s %s: %w", op, set, err) }

var (
	errNotFound = errors.New("no such set")
	errBusy     = errors.New("a rule still refers to the set")
	errMismatch = errors.New("a set of that name has another type or family; remove it with: ipset destroy")
	errFull     = errors.New("the set is full")
)

// IsNotFound tells whether err says that a set does not exist.
func IsNotFound(err error) bool { return errors.Is(err, errNotFound) }

// IsBusy tells whether err says that a set is still referred to.
func IsBusy(err error) bool { return errors.Is(err, errBusy) }

// IsMismatch tells whether err says that a set exists with another type.
func IsMismatch(err error) bool { return errors.Is(err, errMismatch) }
