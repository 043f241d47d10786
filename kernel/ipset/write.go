package ipset

import (
	"encoding/binary"
	"errors"
	"sync"
	"syscall"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The bounds of one write. Replies to refused messages wait in the socket's
// receive buffer until the whole write is done: 128 of them fit into the smallest
// that kernels have by default (212,992 bytes, of which each takes under 1 KiB).
const (
	// entriesPerMessage: 64 entries with a full comment are 20 KiB, below the
	// 64 KiB that an attribute's 16-bit length can say.
	entriesPerMessage = 64
	messagesPerWrite  = 128
	// bytesPerWrite is where a write ends: with the last message it is up to 20 KiB
	// longer, far below the send buffer's 212,992 bytes.
	bytesPerWrite = 32 << 10
)

var errSilent = errors.New("the kernel did not say what became of it")

// writer is the socket for changes of entries. The kernel handles all messages of one
// write, in order and each by itself, before the write returns, and has then replied: to
// each message that it refused, and to each that asks for a reply. Only the last one
// asks, so a write without errors costs one reply, and a missing reply shows that others
// may be missing.
type writer struct {
	mu   sync.Mutex
	fd   int
	seq  uint32 // of the last message
	out  []byte
	in   [4096]byte // replies are 36 bytes: NETLINK_CAP_ACK
	sent []sent     // the messages of the write, in order
	// counted are the names of sets with counters, as they were made or listed last. The kernel
	// refuses a counter for a set without, and keeps that of an entry that is added without
	// one: even a new entry has that of the entry whose place it takes.
	counted sync.Map
}

// count notes whether a set has counters.
func (w *writer) count(s Set) {
	if s.Counters {
		w.counted.Store(s.Name, true)
	} else {
		w.counted.Delete(s.Name)
	}
}

// sent is one message: a part of an op.
type sent struct {
	op    *Op
	begin int // in out
}

// openWriter opens the socket in the calling thread's network namespace.
func openWriter() (*writer, error) {
	fd, err := openSocket(unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &writer{fd: fd}, nil
}

// openSocket opens a socket to the kernel's netfilter that takes short errors.
func openSocket(flags int) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|flags, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, err
	}
	// Connected to the kernel, the socket receives from no other sender.
	err = unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	unix.Close(w.fd)
	w.fd = -1
}

// Add implements Interface.
func (k *Kernel) Add(name string, entries ...Entry) error {
	ops := []Op{{Set: name, Entries: entries}}
	k.Apply(ops)
	return ops[0].Err
}

// Delete implements Interface.
func (k *Kernel) Delete(name string, entries ...Entry) error {
	ops := []Op{{Set: name, Delete: true, Entries: entries}}
	k.Apply(ops)
	return ops[0].Err
}

// Apply implements Interface.
func (k *Kernel) Apply(ops []Op) {
	w := k.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin()
	for i := range ops {
		op := &ops[i]
		op.Err = nil
		for rest := op.Entries; len(rest) > 0; {
			part := rest[:min(len(rest), entriesPerMessage)]
			rest = rest[len(part):]
			w.add(op, part)
			if len(w.sent) == messagesPerWrite || len(w.out) >= bytesPerWrite {
				w.flush()
				// A small write need not wait for all of this one.
				w.mu.Unlock()
				w.mu.Lock()
			}
		}
	}
	w.flush()
}

func (w *writer) begin() { w.out, w.sent = w.out[:0], w.sent[:0] }

// add appends one message.
func (w *writer) add(op *Op, part []Entry) {
	w.seq++
	cmd := uint16(nl.IPSET_CMD_ADD)
	if op.Delete {
		cmd = nl.IPSET_CMD_DEL
	}
	// Without NLM_F_EXCL an existing entry is overwritten, and deleting a missing entry
	// is no error.
	b, begin := nfattr.AppendHeader(w.out, unix.NFNL_SUBSYS_IPSET<<8|cmd, 0, w.seq)
	b = nfattr.AppendUint8(b, nl.IPSET_ATTR_PROTOCOL, nl.IPSET_PROTOCOL)
	b = nfattr.AppendString(b, nl.IPSET_ATTR_SETNAME, op.Set)
	_, counted := w.counted.Load(op.Set)
	counted = counted && !op.Delete
	if len(part) == 1 {
		b = appendEntry(b, &part[0], counted)
	} else {
		// The kernel wants a line number beside a list, to tell which failed.
		b = nfattr.Append(b, nl.IPSET_ATTR_LINENO, "\x00\x00\x00\x00")
		list := 0
		b, list = nfattr.Begin(b, nl.IPSET_ATTR_ADT)
		for i := range part {
			b = appendEntry(b, &part[i], counted)
		}
		nfattr.End(b, list)
	}
	nfattr.EndMessage(b, begin)
	w.out, w.sent = b, append(w.sent, sent{op, begin})
}

// flush writes the messages and reads what became of them.
func (w *writer) flush() {
	if len(w.sent) == 0 {
		return
	}
	last := w.out[w.sent[len(w.sent)-1].begin:]
	flags := binary.NativeEndian.Uint16(last[6:])
	binary.NativeEndian.PutUint16(last[6:], flags|unix.NLM_F_ACK)
	err := w.write()
	if err == nil {
		err = w.replies()
	}
	if err != nil {
		for _, s := range w.sent {
			s.op.fail(err)
		}
	}
	w.begin()
}

func (w *writer) write() error {
	for {
		_, err := unix.Write(w.fd, w.out)
		if err != unix.EINTR {
			return err
		}
	}
}

// replies reads until the last message's, which is there already.
func (w *writer) replies() error {
	first := w.seq - uint32(len(w.sent)) + 1
	for {
		n, err := unix.Read(w.fd, w.in[:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return errSilent
		case err != nil:
			return err
		}
		for b := w.in[:n]; len(b) >= unix.SizeofNlMsghdr+4; {
			length := int(binary.NativeEndian.Uint32(b))
			if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR {
				// One of an earlier write, whose replies could not be read, is out of range.
				i := binary.NativeEndian.Uint32(b[8:]) - first
				if errno := -int32(binary.NativeEndian.Uint32(b[16:])); errno != 0 && i < uint32(len(w.sent)) {
					if errno == nl.IPSET_ERR_COUNTER { // another program made the set anew
						w.count(Set{Name: w.sent[i].op.Set})
					}
					w.sent[i].op.fail(errnoError(syscall.Errno(errno)))
				}
				if i == uint32(len(w.sent)-1) {
					return nil
				}
			}
			b = b[min(max((length+3)&^3, unix.SizeofNlMsghdr), len(b)):]
		}
	}
}

// fail keeps the first error.
func (op *Op) fail(err error) {
	if op.Err != nil {
		return
	}
	what := "add"
	if op.Delete {
		what = "delete"
	}
	op.Err = wrap(what, op.Set, err)
}

// appendEntry appends one entry, of a set with counters with its counter.
func appendEntry(b []byte, e *Entry, counted bool) []byte {
	b, data := nfattr.Begin(b, nl.IPSET_ATTR_DATA)
	b, ip := nfattr.Begin(b, nl.IPSET_ATTR_IP)
	if e.Addr.Is4() {
		a := e.Addr.As4()
		b = nfattr.Append(b, nl.IPSET_ATTR_IPADDR_IPV4|unix.NLA_F_NET_BYTEORDER, a[:])
	} else {
		a := e.Addr.As16()
		b = nfattr.Append(b, nl.IPSET_ATTR_IPADDR_IPV6|unix.NLA_F_NET_BYTEORDER, a[:])
	}
	nfattr.End(b, ip)
	if e.Bits != 0 {
		b = nfattr.AppendUint8(b, nl.IPSET_ATTR_CIDR, e.Bits)
	}
	if e.Port != 0 {
		b = nfattr.AppendUint8(b, nl.IPSET_ATTR_PROTO, e.Protocol)
		b = nfattr.AppendUint16(b, nl.IPSET_ATTR_PORT, e.Port)
	}
	if e.Iface != "" {
		b = nfattr.AppendString(b, nl.IPSET_ATTR_IFACE, e.Iface)
	}
	if e.Timeout != 0 {
		b = nfattr.AppendUint32(b, nl.IPSET_ATTR_TIMEOUT, seconds(e.Timeout))
	}
	if e.Comment != "" {
		b = nfattr.AppendString(b, nl.IPSET_ATTR_COMMENT, e.Comment)
	}
	if counted && e.New {
		b = nfattr.AppendUint64(b, nl.IPSET_ATTR_BYTES, 0)
		b = nfattr.AppendUint64(b, nl.IPSET_ATTR_PACKETS, e.Packets)
	}
	nfattr.End(b, data)
	return b
}
