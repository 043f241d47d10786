package ipset

import (
	"encoding/binary"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
)

// The bounds of one write, besides nfattr.MaxReplies.
const (
	// entriesPerMessage: 64 entries with a full comment are 20 KiB, below the
	// 64 KiB that an attribute's 16-bit length can say.
	entriesPerMessage = 64
	// bytesPerWrite is where a write ends: with the last message it is up to 20 KiB longer.
	bytesPerWrite = 32 << 10
)

// writer writes changes of entries. The kernel handles all messages of one
// write, in order and each by itself. Only the last one asks for a reply, so a write without
// errors costs one.
type writer struct {
	send func(batch []byte, last int) ([]nfattr.Reply, error) // of a socket

	mu   sync.Mutex
	out  []byte
	sent []*Op // by message; a large one has several
	last int   // where the last message begins in out
}

// Apply implements Interface.
func (k *Kernel) Apply(ops []Op) {
	w := &k.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range ops {
		op := &ops[i]
		op.Err = nil
		for rest := op.Entries; len(rest) > 0; {
			part := rest[:min(len(rest), entriesPerMessage)]
			rest = rest[len(part):]
			w.add(op, part)
			if len(w.sent) == nfattr.MaxReplies || len(w.out) >= bytesPerWrite {
				w.flush()
				// A small write need not wait for all of this one.
				w.mu.Unlock()
				w.mu.Lock()
			}
		}
	}
	w.flush()
}

// add appends one message.
func (w *writer) add(op *Op, part []Entry) {
	cmd := uint16(nl.IPSET_CMD_ADD)
	if op.Delete {
		cmd = nl.IPSET_CMD_DEL
	}
	// Without NLM_F_EXCL an existing entry is overwritten, and deleting a missing entry
	// is no error.
	b, begin := nfattr.AppendHeader(w.out, message(cmd), 0, 0)
	b = appendName(b, op.Set)
	if len(part) == 1 {
		b = appendEntry(b, &part[0], !op.Delete)
	} else {
		// The kernel wants a line number beside a list, to tell which failed.
		b = nfattr.Append(b, nl.IPSET_ATTR_LINENO, "\x00\x00\x00\x00")
		list := 0
		b, list = nfattr.Begin(b, nl.IPSET_ATTR_ADT)
		for i := range part {
			b = appendEntry(b, &part[i], !op.Delete)
		}
		nfattr.End(b, list)
	}
	nfattr.EndMessage(b, begin)
	w.out, w.sent, w.last = b, append(w.sent, op), begin
}

// flush writes the messages and reads what became of them.
func (w *writer) flush() {
	if len(w.sent) == 0 {
		return
	}
	flags := w.out[w.last+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	replies, err := w.send(w.out, len(w.sent)-1)
	if err != nil {
		for _, op := range w.sent {
			op.fail(err)
		}
	}
	for _, r := range replies {
		w.sent[r.Message].fail(r.Err)
	}
	clear(w.sent)
	w.out, w.sent = w.out[:0], w.sent[:0]
}

// fail keeps the first error.
func (op *Op) fail(err error) {
	if op.Err != nil || err == nil {
		return
	}
	what := "add"
	if op.Delete {
		what = "delete"
	}
	op.Err = wrap(what, op.Set, err)
}

// appendEntry appends one entry, a new one that is added with its counter: without one the kernel
// gives it that of the entry whose place it takes.
func appendEntry(b []byte, e *Entry, added bool) []byte {
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
	if added && e.New {
		b = nfattr.AppendUint64(b, nl.IPSET_ATTR_BYTES, 0)
		b = nfattr.AppendUint64(b, nl.IPSET_ATTR_PACKETS, e.Packets)
	}
	nfattr.End(b, data)
	return b
}
