package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/namegate/namegate/kernel/nfattr"
	"golang.org/x/sys/unix"
)

// Commit makes the changes by a socket: all of them, or none. The error names the object of
// the first change that is refused; other errors are of no single change. Only the last message
// asks for a reply, which the kernel queues after it committed the transaction, as it does with
// errors, before the write returns. The changes count from 0.
func (m *Batch) Commit(s *nfattr.Socket) (refused []nfattr.Reply, err error) {
	return m.send(s, func() { m.b = appendControl(m.b, unix.NFNL_MSG_BATCH_END, uint32(len(m.about)+1)) })
}

// Check tells which changes the kernel would refuse, and makes none: a transaction without an
// end.
func (m *Batch) Check(s *nfattr.Socket) ([]nfattr.Reply, error) { return m.send(s, func() {}) }

func (m *Batch) send(s *nfattr.Socket, end func()) (refused []nfattr.Reply, err error) {
	if m.close(); m.err != nil {
		return nil, m.err
	}
	flags := m.b[m.last+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	end()
	replies, err := s.Send(m.b, len(m.about))
	for _, r := range replies {
		switch {
		case r.Err == nil:
		case r.Message > 0 && r.Message <= len(m.about):
			refused = append(refused, nfattr.Reply{Message: r.Message - 1, Err: r.Err})
		default:
			err = r.Err
		}
	}
	if len(refused) > 0 {
		err = fmt.Errorf("%s: %w", m.about[refused[0].Message], refused[0].Err)
	}
	return refused, err
}

// appendControl appends the message that begins or ends a transaction.
func appendControl(b []byte, typ uint16, seq uint32) []byte {
	b, begin := nfattr.AppendHeader(b, typ, 0, seq)
	b[begin+unix.SizeofNlMsghdr] = unix.NFPROTO_UNSPEC
	binary.BigEndian.PutUint16(b[begin+unix.SizeofNlMsghdr+2:], unix.NFNL_SUBSYS_NFTABLES)
	nfattr.EndMessage(b, begin)
	return b
}
