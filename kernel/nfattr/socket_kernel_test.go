package nfattr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
	"github.com/namegate/namegate/testkit/short"
)

const getTable, newTable, delTable = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETTABLE, unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE, unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELTABLE

// batchOf is a transaction of nftables with a message for each table.
func batchOf(typ uint16, tables ...string) (batch []byte, last int) {
	control := func(b []byte, typ uint16) []byte {
		b, begin := AppendHeader(b, typ, 0, 0)
		binary.BigEndian.PutUint16(b[begin+unix.SizeofNlMsghdr+2:], unix.NFNL_SUBSYS_NFTABLES)
		EndMessage(b, begin)
		return b
	}
	batch = control(nil, unix.NFNL_MSG_BATCH_BEGIN)
	for i, name := range tables {
		flags := uint16(unix.NLM_F_CREATE)
		if i == len(tables)-1 {
			flags |= unix.NLM_F_ACK
		}
		b, begin := AppendHeader(batch, typ, flags, 0)
		b[begin+unix.SizeofNlMsghdr] = unix.NFPROTO_INET
		batch = AppendString(b, unix.NFTA_TABLE_NAME, name)
		EndMessage(batch, begin)
	}
	return control(batch, unix.NFNL_MSG_BATCH_END), len(tables)
}

// change sends a transaction, and returns the first refusal.
func change(s *Socket, typ uint16, tables ...string) error {
	replies, err := s.Send(batchOf(typ, tables...))
	for _, r := range replies {
		err = errors.Join(err, r.Err)
	}
	return err
}

// tablesOf lists tables.
func tablesOf(s *Socket) (names []string, err error) {
	err = s.List(getTable, unix.NFPROTO_INET, func(b []byte) []byte { return b }, func(msg []byte) {
		names = append(names, String(Parse(msg[HeaderLen:])[unix.NFTA_TABLE_NAME]))
	})
	return names, err
}

// table reads a table.
func table(s *Socket, name string) (names []string, err error) {
	err = s.Get(getTable, unix.NFPROTO_INET, func(b []byte) []byte { return AppendString(b, unix.NFTA_TABLE_NAME, name) }, func(msg []byte) {
		names = append(names, String(Parse(msg[HeaderLen:])[unix.NFTA_TABLE_NAME]))
	})
	return names, err
}

// own returns a socket of a new network namespace.
func own(t *testing.T) *Socket {
	netns.Own(t)
	s, err := OpenSocket()
	fatal.If(t, err)
	t.Cleanup(s.Close)
	return s
}

// TestASocketServesManyRequests, one after the other, also behind those that the kernel refuses.
func TestASocketServesManyRequests(t *testing.T) {
	s := own(t)
	fatal.If(t, change(s, newTable, "a", "b"))
	if err := change(s, delTable, "missing"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a missing table is removed: %v", err)
	}
	if _, err := table(s, "missing"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a missing table is read: %v", err)
	}
	if names, err := tablesOf(s); len(names) != 2 || err != nil {
		t.Errorf("tables %v, %v", names, err)
	}
}

// TestASocketThatLostAReply: where the receive buffer had no room for replies, the others are
// not taken for those of the next batch.
func TestASocketThatLostAReply(t *testing.T) {
	s := own(t)
	var missing []string
	for i := range 300 {
		missing = append(missing, fmt.Sprint("missing-", i))
	}
	s.room = 1 << 30 // keeps the least buffer
	fatal.If(t, unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1))
	if _, err := s.Send(batchOf(delTable, missing...)); !errors.Is(err, syscall.ENOBUFS) {
		t.Errorf("the error is %v, want ENOBUFS", err)
	}
	fatal.If(t, change(s, newTable, "a"))
}

// TestASocketWithoutAnAnswer: a listing that is cut off half-way, or a message that the
// kernel cannot answer, spoils no later request.
func TestASocketWithoutAnAnswer(t *testing.T) {
	s := own(t)
	fatal.If(t, change(s, newTable, "a", "b"))
	for what, use := range map[string]func(*Socket) error{
		"a panic in a listing": func(s *Socket) (err error) {
			defer func() { err = fmt.Errorf("panic: %v", recover()) }()
			return s.List(getTable, unix.NFPROTO_INET, func(b []byte) []byte { return b }, func([]byte) { panic("cut") })
		},
		"a batch without a reply": func(s *Socket) error {
			batch, _ := batchOf(newTable, "c")
			_, err := s.Send(batch, 2) // which asks for none
			return err
		},
		"half a message": func(s *Socket) error {
			batch, last := batchOf(newTable, "c")
			_, err := s.Send(batch[:len(batch)-5], last)
			return err
		},
		"a silent kernel": func(s *Socket) error {
			patience := func(of unix.Timeval) {
				fatal.If(t, unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &of))
			}
			patience(unix.Timeval{Usec: 1000})
			defer patience(unix.Timeval{Sec: listPatience})
			return s.exchange(0, unix.NLMSG_NOOP, unix.NFPROTO_INET, func(b []byte) []byte { return b }, func([]byte) {})
		},
	} {
		if err := use(s); err == nil {
			t.Errorf("%s: no error", what)
		}
		if names, err := tablesOf(s); len(names) < 2 || err != nil {
			t.Errorf("%s: tables %v, %v after it", what, names, err)
		}
	}
}

// TestAnEarlierAnswerIsSkipped: what the kernel answered to an earlier request, of which the
// answer was not read, is no answer to the next one.
func TestAnEarlierAnswerIsSkipped(t *testing.T) {
	s := own(t)
	fatal.If(t, change(s, newTable, "a"))
	unread := func(b []byte) {
		_, _, err := s.number(b)
		fatal.If(t, err)
		_, err = unix.Write(s.fd, b)
		fatal.If(t, err)
	}
	refused, _ := batchOf(delTable, "missing", "missing too")
	b, begin := AppendHeader(nil, getTable, unix.NLM_F_ACK, 0)
	b[begin+unix.SizeofNlMsghdr] = unix.NFPROTO_INET
	b = AppendString(b, unix.NFTA_TABLE_NAME, "a")
	EndMessage(b, begin)

	unread(refused)
	unread(b)
	replies, err := s.Send(batchOf(newTable, "b"))
	if len(replies) != 1 || replies[0] != (Reply{1, nil}) || err != nil {
		t.Errorf("replies %v, %v, want one to message 1", replies, err)
	}
	unread(refused)
	unread(b)
	if names, err := table(s, "b"); len(names) != 1 || names[0] != "b" || err != nil {
		t.Errorf("answers %v, %v, want that about b", names, err)
	}
}

// TestASocketOfManyGoroutines: each gets the answers to its own requests.
func TestASocketOfManyGoroutines(t *testing.T) {
	s := own(t)
	const goroutines = 24
	rounds := short.Rounds(10, 20, 80)
	var work sync.WaitGroup
	for i := range goroutines {
		name, other := fmt.Sprint("table-", i), fmt.Sprint("missing-", i)
		round := func() error {
			if err := change(s, newTable, name); err != nil {
				return err
			}
			if err := change(s, delTable, name, other); !errors.Is(err, syscall.ENOENT) {
				return fmt.Errorf("%s and %s are removed: %w", name, other, err)
			}
			if got, err := table(s, name); err != nil || len(got) != 1 || got[0] != name {
				return fmt.Errorf("%s is read as %v: %w", name, got, err)
			}
			return change(s, delTable, name)
		}
		work.Go(func() {
			for range rounds {
				if err := round(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
}
