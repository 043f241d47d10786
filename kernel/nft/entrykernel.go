package nft

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/namegate/namegate/kernel/nfattr"
	"golang.org/x/sys/unix"
)

// The bounds of a transaction of entries. Each refused message has a reply of less than
// 1 KiB in the socket's receive buffer until the transaction ends, and the message that
// reaches entryBytes is up to 28 KiB.
const (
	messagesPerTransaction = 512
	bytesPerTransaction    = 256 << 10
	entrySendBuffer        = bytesPerTransaction * 3 / 2
	entryReceiveBuffer     = messagesPerTransaction << 10
)

var errSilent = errors.New("the kernel did not say whether the change was made")

// transaction returns how many changes are the next transaction.
func transaction(all []entryChange) int {
	size := 0
	for n := range all {
		if size >= bytesPerTransaction || 4*n >= messagesPerTransaction {
			return n
		}
		for i := range all[n].entries {
			size += entrySize(&all[n].entries[i])
		}
	}
	return len(all)
}

// entrySize bounds what an entry takes in messages.
func entrySize(e *Entry) int { return 320 + len(e.Comment) }

// kernelEntries are the entries in the kernel, of the calling thread's network namespace.
// The program nft, which takes comments of up to 128 bytes, starts for 10 ms.
type kernelEntries struct{}

// entryMessage is a message of a transaction.
type entryMessage struct {
	change *entryChange
	begin  int
}

// write implements entryStore. Only the last message asks for a reply, which the kernel
// queues after it committed the transaction, as it does with errors, before the write
// returns.
func (kernelEntries) write(changes []entryChange) error {
	fd, err := openEntries()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	b, _ := appendBatch(nil, unix.NFNL_MSG_BATCH_BEGIN, 0)
	// Messages are numbered from 1.
	var messages []entryMessage
	add := func(c *entryChange, set string, command, flags uint16, full bool) {
		messages = append(messages, entryMessage{c, len(b)})
		b = appendEntries(b, command, flags, uint32(len(messages)), set, c.entries, full)
	}
	for i := range changes {
		c := &changes[i]
		if !c.op.Remove && !c.op.Grants {
			add(c, c.named(), unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, false)
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
	return commitBatch(fd, b, messages)
}

// forget implements entryStore.
func (kernelEntries) forget(keys []Entry, generation uint32) error {
	fd, err := openEntries()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	b, begin := appendBatch(nil, unix.NFNL_MSG_BATCH_BEGIN, 0)
	b = nfattr.Append(b, unix.NFNL_BATCH_GENID, binary.BigEndian.AppendUint32(nil, generation))
	nfattr.EndMessage(b, begin)
	var messages []entryMessage
	for _, f := range families {
		of := slices.DeleteFunc(slices.Clone(keys), func(e Entry) bool { return suffix(e.Addr) != f.suffix })
		for part := range slices.Chunk(of, entriesPerMessage) {
			messages = append(messages, entryMessage{&entryChange{}, len(b)})
			b = appendEntries(b, unix.NFT_MSG_DELSETELEM, 0, uint32(len(messages)), namedSet+f.suffix, part, false)
		}
	}
	return commitBatch(fd, b, messages)
}

// commitBatch ends a transaction and reads what became of it.
func commitBatch(fd int, b []byte, messages []entryMessage) error {
	last := messages[len(messages)-1].begin
	binary.NativeEndian.PutUint16(b[last+6:], binary.NativeEndian.Uint16(b[last+6:])|unix.NLM_F_ACK)
	b, _ = appendBatch(b, unix.NFNL_MSG_BATCH_END, uint32(len(messages)+1))
	if _, err := unix.Write(fd, b); err != nil {
		return err
	}
	return replies(fd, messages)
}

// openEntries opens a socket to the kernel's nftables that takes short errors.
func openEntries() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, err
	}
	err = errors.Join(
		// Connected to the kernel, the socket receives from no other sender.
		unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, entrySendBuffer),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, entryReceiveBuffer))
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// appendBatch appends the message that begins or ends a transaction.
func appendBatch(b []byte, typ uint16, seq uint32) ([]byte, int) {
	b, begin := nfattr.AppendHeader(b, typ, 0, seq)
	b[begin+unix.SizeofNlMsghdr] = unix.NFPROTO_UNSPEC
	binary.BigEndian.PutUint16(b[begin+unix.SizeofNlMsghdr+2:], unix.NFNL_SUBSYS_NFTABLES)
	nfattr.EndMessage(b, begin)
	return b, begin
}

// appendEntries appends a message about entries of a set, full or their keys alone.
func appendEntries(b []byte, command, flags uint16, seq uint32, set string, entries []Entry, full bool) []byte {
	b, begin := nfattr.AppendHeader(b, unix.NFNL_SUBSYS_NFTABLES<<8|command, flags, seq)
	b[begin+unix.SizeofNlMsghdr] = unix.NFPROTO_INET
	b = nfattr.AppendString(b, unix.NFTA_SET_ELEM_LIST_TABLE, TableName)
	b = nfattr.AppendString(b, unix.NFTA_SET_ELEM_LIST_SET, set)
	b, list := nfattr.Begin(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for i := range entries {
		b = appendEntry(b, &entries[i], full)
	}
	nfattr.End(b, list)
	nfattr.EndMessage(b, begin)
	return b
}

func appendEntry(b []byte, e *Entry, full bool) []byte {
	b, element := nfattr.Begin(b, unix.NFTA_LIST_ELEM)
	if e.catchAll {
		b = nfattr.AppendUint32(b, unix.NFTA_SET_ELEM_FLAGS, catchAllFlag)
		nfattr.End(b, element)
		return b
	}
	b, key := nfattr.Begin(b, unix.NFTA_SET_ELEM_KEY)
	b = nfattr.Append(b, unix.NFTA_DATA_VALUE, e.appendKey(nil))
	nfattr.End(b, key)
	if full {
		// With the time that is left beside it, the timeout of an element that is there moves
		// (Linux 6.12 and later). 0 would be for ever.
		left := binary.BigEndian.AppendUint64(nil, uint64(max(e.Timeout, time.Millisecond).Milliseconds()))
		b = nfattr.Append(b, unix.NFTA_SET_ELEM_TIMEOUT, left)
		b = nfattr.Append(b, unix.NFTA_SET_ELEM_EXPIRATION, left)
		if e.Comment != "" {
			b = nfattr.Append(b, unix.NFTA_SET_ELEM_USERDATA, string([]byte{commentType, byte(len(e.Comment) + 1)})+e.Comment+"\x00")
		}
	}
	nfattr.End(b, element)
	return b
}

// replies reads what became of a transaction, and sets the errors of changes.
func replies(fd int, messages []entryMessage) (err error) {
	done := false
	var in [4096]byte // replies are 36 bytes: NETLINK_CAP_ACK
	for {
		n, failed := unix.Read(fd, in[:])
		if failed == unix.EINTR {
			continue
		}
		if failed != nil {
			break // after the last reply, or after replies that were lost
		}
		if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(in[4:]) != unix.NLMSG_ERROR {
			continue
		}
		seq, errno := int(binary.NativeEndian.Uint32(in[8:])), syscall.Errno(-int32(binary.NativeEndian.Uint32(in[unix.SizeofNlMsghdr:])))
		done = done || seq == len(messages)
		if errno == 0 {
			continue
		}
		err = errno
		if seq > 0 && seq <= len(messages) {
			if c := messages[seq-1].change; c.err == nil {
				c.err = errno
			}
		}
	}
	if err == nil && !done {
		return errSilent
	}
	return err
}

// list implements entryStore.
func (kernelEntries) list(set string) (out []Entry, err error) {
	l, err := nfattr.OpenLister()
	if err != nil {
		return nil, err
	}
	defer l.Close()
	err = l.List(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETSETELEM, unix.NFPROTO_INET, func(b []byte) []byte {
		b = nfattr.AppendString(b, unix.NFTA_SET_ELEM_LIST_TABLE, TableName)
		return nfattr.AppendString(b, unix.NFTA_SET_ELEM_LIST_SET, set)
	}, func(msg []byte) {
		nfattr.Each(msg[nfattr.HeaderLen:], func(typ int, list []byte) {
			if typ == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				nfattr.Each(list, func(_ int, element []byte) {
					if e, ok := readEntry(element, set); ok {
						out = append(out, e)
					}
				})
			}
		})
	})
	if errors.Is(err, syscall.ENOENT) {
		return nil, nil
	}
	return out, err
}

// readEntry reads an element of a set: a catch-all element as an entry of the unspecified
// address, with which it is removed.
func readEntry(b []byte, set string) (e Entry, ok bool) {
	nfattr.Each(b, func(typ int, value []byte) {
		switch typ {
		case unix.NFTA_SET_ELEM_FLAGS:
			if isCatchAll(value) {
				e.Addr, e.catchAll, ok = netip.IPv4Unspecified(), true, true
				if strings.HasSuffix(set, "6") {
					e.Addr = netip.IPv6Unspecified()
				}
				if !strings.HasPrefix(set, grantsPrefix) {
					e.Subject = e.Addr
				}
			}
		case unix.NFTA_SET_ELEM_KEY:
			nfattr.Each(value, func(_ int, key []byte) { ok = e.readKey(key) })
		case unix.NFTA_SET_ELEM_EXPIRATION:
			if len(value) == 8 {
				e.Timeout = time.Duration(binary.BigEndian.Uint64(value)) * time.Millisecond
			}
		case unix.NFTA_SET_ELEM_USERDATA:
			e.Comment = comment(value)
		}
	})
	return e, ok
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
const portsLen = 2 * registerWord

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
		e.Protocol, e.Port = key[n], binary.BigEndian.Uint16(key[n+registerWord:])
	}
	return ok
}
