package timed

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/wire"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// bytesPerTransaction bounds a transaction of entries, as nfattr.MaxReplies does.
const bytesPerTransaction = 256 << 10

// transaction returns how many changes are the next transaction.
func transaction(all []change) int {
	size := 0
	for n := range all {
		if size >= bytesPerTransaction || 4*n >= nfattr.MaxReplies {
			return n
		}
		for i := range all[n].entries {
			size += entrySize(&all[n].entries[i])
		}
	}
	return len(all)
}

// entrySize bounds what an entry takes in messages.
func entrySize(e *Entry) int { return 368 + len(e.Comment) }

// kernelBackend are the entries in the kernel.
// The program nft, which takes comments of up to 128 bytes, starts for 10 ms.
type kernelBackend struct {
	changes, lister *nfattr.Socket
	table           string
}

// write implements backend.
func (k kernelBackend) write(changes []change) error {
	b := wire.New(knftables.InetFamily, k.table, nil)
	var of []*change // by message
	add := func(c *change, set string, command, flags uint16, full bool) {
		of = append(of, c)
		addEntries(b, command, flags, set, c.entries, full, c.count)
	}
	for i := range changes {
		c := &changes[i]
		if !c.op.Remove && !c.op.Grants {
			add(c, c.keySet(), unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, false)
		}
		if c.deletes() {
			// Deleting a missing element is an error, and adding one that is there is none.
			add(c, c.set, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, false)
			add(c, c.set, unix.NFT_MSG_DELSETELEM, 0, false)
		}
		switch {
		case c.op.Remove:
		case c.held == Absent:
			add(c, c.set, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE|unix.NLM_F_EXCL, true)
		default:
			add(c, c.set, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, true)
		}
	}
	refused, err := b.Commit(k.changes)
	for _, r := range refused {
		of[r.Message].err = cmp.Or(of[r.Message].err, r.Err)
	}
	return err
}

// keepUses implements backend.
func (k kernelBackend) keepUses(set string, entries []Entry) {
	for i := range entries {
		e := &entries[i]
		err := k.changes.Get(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETSETELEM, unix.NFPROTO_INET, func(b []byte) []byte {
			b = nfattr.AppendString(b, unix.NFTA_SET_ELEM_LIST_TABLE, k.table)
			b = nfattr.AppendString(b, unix.NFTA_SET_ELEM_LIST_SET, set)
			b, list := nfattr.Begin(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
			b = appendEntry(b, &Entry{Subject: e.Subject, Addr: e.Addr, Protocol: e.Protocol, Port: e.Port}, false, false)
			nfattr.End(b, list)
			return b
		}, func(msg []byte) {
			eachEntry(msg, set, func(is Entry) { e.Uses = max(e.Uses, is.Uses) })
		})
		if err != nil && !errors.Is(err, syscall.ENOENT) {
			return
		}
	}
}

// notesUses implements backend: the kernel has to know quotas of elements with a timeout.
func (k kernelBackend) notesUses() bool {
	b := wire.New(knftables.InetFamily, k.table+"-check", nil)
	b.AddTable()
	b.Add(&knftables.Set{Name: "check", Type: "ipv4_addr", Flags: []knftables.SetFlag{knftables.TimeoutFlag}})
	e := Entry{Addr: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Timeout: time.Minute}
	addEntries(b, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, "check", []Entry{e}, true, true)
	_, err := b.Check(k.changes)
	return err == nil
}

// eachEntry reads the entries of a message of a listing.
func eachEntry(msg []byte, set string, each func(Entry)) {
	nfattr.Each(msg[nfattr.HeaderLen:], func(typ int, list []byte) {
		if typ == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			nfattr.Each(list, func(_ int, element []byte) {
				if e, ok := readEntry(element, set); ok {
					each(e)
				}
			})
		}
	})
}

// writeKeys implements backend.
func (k kernelBackend) writeKeys(keys []Entry, remove bool) error {
	b := wire.New(knftables.InetFamily, k.table, nil)
	for _, f := range Families {
		of := slices.DeleteFunc(slices.Clone(keys), func(e Entry) bool { return Suffix(e.Addr) != f })
		for part := range slices.Chunk(of, entriesPerMessage) {
			addEntries(b, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, KeySet+f, part, false, false)
			if remove { // which is an error of one that is missing
				addEntries(b, unix.NFT_MSG_DELSETELEM, 0, KeySet+f, part, false, false)
			}
		}
	}
	_, err := b.Commit(k.changes)
	return err
}

// addEntries adds a message about entries of a set, full or their keys alone. With count
// the kernel counts the packets that match a full one.
func addEntries(b *wire.Batch, command, flags uint16, set string, entries []Entry, full, count bool) {
	b.List(command, flags, set, func(b []byte) []byte {
		for i := range entries {
			b = appendEntry(b, &entries[i], full, count)
		}
		return b
	})
}

func appendEntry(b []byte, e *Entry, full, count bool) []byte {
	b, element := nfattr.Begin(b, unix.NFTA_LIST_ELEM)
	if e.catchAll {
		b = nfattr.AppendUint32(b, unix.NFTA_SET_ELEM_FLAGS, wire.CatchAllFlag)
		nfattr.End(b, element)
		return b
	}
	b, key := nfattr.Begin(b, unix.NFTA_SET_ELEM_KEY)
	b = nfattr.Append(b, unix.NFTA_DATA_VALUE, e.appendKey(nil))
	nfattr.End(b, key)
	if full {
		b = wire.AppendTimeout(b, e.Timeout)
		if count {
			b = wire.AppendQuota(b, e.Uses)
		}
		if e.Comment != "" {
			b = wire.AppendComment(b, unix.NFTA_SET_ELEM_USERDATA, e.Comment)
		}
	}
	nfattr.End(b, element)
	return b
}

// list implements backend. A listing of several messages goes on behind as many elements
// as were counted before. It skips some where elements that had ended were collected in
// between, and where the kernel resized its hash table, which also has others twice. It
// skipped none if it has as many as the set: ended ones count until they are collected.
func (k kernelBackend) list(set string) (out []Entry, whole bool, err error) {
	messages, keyed := 0, 0
	count, err := k.countElements(set)
	if err == nil {
		err = k.lister.List(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETSETELEM, unix.NFPROTO_INET, func(b []byte) []byte {
			b = nfattr.AppendString(b, unix.NFTA_SET_ELEM_LIST_TABLE, k.table)
			return nfattr.AppendString(b, unix.NFTA_SET_ELEM_LIST_SET, set)
		}, func(msg []byte) {
			before := len(out)
			eachEntry(msg, set, func(e Entry) {
				out = append(out, e)
				if !e.catchAll {
					keyed++
				}
			})
			if len(out) > before {
				messages++
			}
		})
	}
	switch {
	case errors.Is(err, syscall.ENOENT):
		return nil, true, nil
	case errors.Is(err, nfattr.ErrChanged):
		err = nil // the caller compares generations
	}
	return out, (messages <= 1 || keyed == count) && distinct(out), err
}

// setCount is NFTA_SET_COUNT of linux/netfilter/nf_tables.h.
const setCount = 20

// countElements returns how many elements a set has besides a catch-all element, -1 where the
// kernel, before Linux 6.18, does not tell.
func (k kernelBackend) countElements(set string) (count int, err error) {
	count = -1
	err = k.lister.Get(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETSET, unix.NFPROTO_INET, func(b []byte) []byte {
		b = nfattr.AppendString(b, unix.NFTA_SET_TABLE, k.table)
		return nfattr.AppendString(b, unix.NFTA_SET_NAME, set)
	}, func(msg []byte) {
		nfattr.Each(msg[nfattr.HeaderLen:], func(typ int, value []byte) {
			if typ == setCount {
				count = int(nfattr.Uint32(value))
			}
		})
	})
	return count, err
}

// readEntry reads an element of a set: a catch-all element as an entry of the unspecified
// address, with which it is removed.
func readEntry(b []byte, set string) (e Entry, ok bool) {
	nfattr.Each(b, func(typ int, value []byte) {
		switch typ {
		case unix.NFTA_SET_ELEM_FLAGS:
			if wire.IsCatchAll(value) {
				e.Addr, e.catchAll, ok = netip.IPv4Unspecified(), true, true
				if strings.HasSuffix(set, "6") {
					e.Addr = netip.IPv6Unspecified()
				}
				if !strings.HasPrefix(set, GrantsPrefix) {
					e.Subject = e.Addr
				}
			}
		case unix.NFTA_SET_ELEM_KEY:
			nfattr.Each(value, func(_ int, key []byte) { ok = e.readKey(key) })
		case unix.NFTA_SET_ELEM_EXPIRATION:
			if len(value) == 8 {
				e.Timeout = time.Duration(binary.BigEndian.Uint64(value)) * time.Millisecond
			}
		case unix.NFTA_SET_ELEM_EXPR:
			e.Uses = wire.Quota(value)
		case unix.NFTA_SET_ELEM_USERDATA:
			e.Comment = wire.Comment(value)
		}
	})
	return e, ok
}
