package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/namegate/namegate/kernel/nfattr"
	"golang.org/x/sys/unix"
)

// Refusal is a message of a transaction that the kernel refused.
type Refusal struct {
	Message int // from 0
	Err     error
}

// Commit makes the changes by one of sockets: all of them, or none. The error names the object of
// the first change that is refused; other errors are of no single change. Only the last message
// asks for a reply, which the kernel queues after it committed the transaction, as it does with
// errors, before the write returns.
func (m *Batch) Commit(sockets *nfattr.Sockets) ([]Refusal, error) {
	return m.send(sockets, func() { m.b, _ = appendControl(m.b, unix.NFNL_MSG_BATCH_END, uint32(len(m.about)+1)) })
}

// Check tells which changes the kernel would refuse, and makes none: a transaction without an
// end.
func (m *Batch) Check(sockets *nfattr.Sockets) ([]Refusal, error) { return m.send(sockets, func() {}) }

func (m *Batch) send(sockets *nfattr.Sockets, end func()) (refused []Refusal, err error) {
	if m.close(); m.err != nil {
		return nil, m.err
	}
	flags := m.b[m.last+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	end()
	err = sockets.With(func(s *nfattr.Socket) error {
		replies, err := s.Send(m.b, len(m.about))
		for _, r := range replies {
			switch {
			case r.Err == nil:
			case r.Message > 0 && r.Message <= len(m.about):
				refused = append(refused, Refusal{r.Message - 1, r.Err})
			default:
				err = r.Err
			}
		}
		return err
	})
	if len(refused) > 0 {
		err = fmt.Errorf("%s: %w", m.about[refused[0].Message], refused[0].Err)
	}
	return refused, err
}

// appendControl appends the message that begins or ends a transaction.
func appendControl(b []byte, typ uint16, seq uint32) ([]byte, int) {
	b, begin := nfattr.AppendHeader(b, typ, 0, seq)
	b[begin+unix.SizeofNlMsghdr] = unix.NFPROTO_UNSPEC
	binary.BigEndian.PutUint16(b[begin+unix.SizeofNlMsghdr+2:], unix.NFNL_SUBSYS_NFTABLES)
	nfattr.EndMessage(b, begin)
	return b, begin
}
