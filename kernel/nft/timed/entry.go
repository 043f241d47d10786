package timed

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"time"

	"github.com/namegate/namegate/kernel/nft/wire"
)

// The names of sets begin with these, and end with the family. Behind the prefixes are a name and "-".
const (
	EntriesPrefix = "entries-" // of sets that rules by name ask
	GrantsPrefix  = "grants-"  // of sets of grants
	KeySet        = "named"    // the keys of all entries that rules by name ask
)

// Families are the ends of the names of sets, of IPv4 and of IPv6.
var Families = [2]string{"4", "6"}

// Suffix returns the end of the names of sets that hold an address.
func Suffix(a netip.Addr) string {
	if a.Is6() {
		return Families[1]
	}
	return Families[0]
}

// Entry is one element of a set.
type Entry struct {
	Subject, Addr netip.Addr // of one family; in a set of grants without Subject
	// Protocol and Port are of a set of grants whose entries have ports.
	Protocol uint8
	Port     uint16
	// Timeout is how long the entry lives, in a listing how long it is going to.
	Timeout time.Duration
	Comment string // up to MaxComment bytes
	Held    Held   // not in a listing
	// Uses, in a listing of a set whose ops have Count, is the bytes of the packets that matched
	// the entry, from the number on with which it was written. An entry that is there keeps
	// its number, unless the new one is higher and the entry is replaced.
	Uses uint64
	// catchAll: it is the set's catch-all element, see wire.CatchAllFlag.
	catchAll bool
}

// Held tells whether a set holds an entry before an op adds it.
type Held uint8

// The knowledge about an entry. A wrong Absent is noticed and costs time, a wrong
// SameComment leaves the old comment.
const (
	Unknown     Held = iota // what is there is replaced
	Absent                  // the entry is new
	SameComment             // only the timeout changes
)

// MaxComment bounds comments. The kernel keeps 256 bytes of user data of an element,
// three of which are the comment's type, length and end. The program nft takes 128 bytes at
// most, and prints all.
const MaxComment = 250

// entryKey is all that tells an entry of a set from the others.
type entryKey struct {
	subject, addr netip.Addr
	protocol      uint8
	port          uint16
	catchAll      bool
}

func (e *Entry) key() entryKey { return entryKey{e.Subject, e.Addr, e.Protocol, e.Port, e.catchAll} }

// Words is the key of an entry in words of nft.
func (e *Entry) Words() (out []string) {
	if e.Subject.IsValid() {
		out = append(out, e.Subject.String())
	}
	out = append(out, e.Addr.String())
	if e.Protocol != 0 {
		out = append(out, wire.ProtocolWord(e.Protocol), strconv.Itoa(int(e.Port)))
	}
	return out
}

// parse reads such words.
func (e *Entry) parse(words []string) (err error) {
	if len(words) == 3 {
		e.Protocol = wire.Protocols[words[1]]
		port, err := strconv.ParseUint(words[2], 10, 16)
		if err != nil {
			return err
		}
		e.Port, words = uint16(port), words[:1]
	}
	if len(words) == 2 {
		if e.Subject, err = netip.ParseAddr(words[0]); err != nil {
			return err
		}
	}
	e.Addr, err = netip.ParseAddr(words[len(words)-1])
	return err
}

// appendKey appends the key of an entry: its parts, each padded to words of registers.
func (e *Entry) appendKey(b []byte) []byte {
	b = append(append(b, e.Subject.AsSlice()...), e.Addr.AsSlice()...)
	if e.Protocol == 0 {
		return b
	}
	return append(binary.BigEndian.AppendUint16(append(b, e.Protocol, 0, 0, 0), e.Port), 0, 0)
}

// portsLen is the length of protocol and port in a key.
const portsLen = 2 * wire.RegisterWord

// readKey reads a key. Its length tells its parts.
func (e *Entry) readKey(key []byte) (ok bool) {
	switch len(key) {
	case 4, 16:
		e.Addr, ok = netip.AddrFromSlice(key)
	case 2 * 4, 2 * 16:
		e.Subject, _ = netip.AddrFromSlice(key[:len(key)/2])
		e.Addr, ok = netip.AddrFromSlice(key[len(key)/2:])
	case 4 + portsLen, 16 + portsLen:
		n := len(key) - portsLen
		e.Addr, ok = netip.AddrFromSlice(key[:n])
		e.Protocol, e.Port = key[n], binary.BigEndian.Uint16(key[n+wire.RegisterWord:])
	}
	return ok
}
