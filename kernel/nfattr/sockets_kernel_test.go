package nfattr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
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
func change(p *Sockets, typ uint16, tables ...string) error {
	return p.With(func(s *Socket) error {
		replies, err := s.Send(batchOf(typ, tables...))
		for _, r := range replies {
			err = errors.Join(err, r.Err)
		}
		return err
	})
}

// tablesOf lists tables.
func tablesOf(p *Sockets) (names []string, err error) {
	err = p.With(func(s *Socket) error {
		return s.List(getTable, unix.NFPROTO_INET, func(b []byte) []byte { return b }, func(msg []byte) {
			names = append(names, String(Parse(msg[HeaderLen:])[unix.NFTA_TABLE_NAME]))
		})
	})
	return names, err
}

// own returns sockets of a new network namespace.
func own(t *testing.T) *Sockets {
	netns.Own(t)
	p := &Sockets{}
	t.Cleanup(p.Close)
	return p
}

// only returns the one socket that is kept.
func only(t *testing.T, p *Sockets) *Socket {
	t.Helper()
	if len(p.kept) != 1 {
		t.Fatalf("%d sockets are kept, want 1", len(p.kept))
	}
	return p.kept[0]
}

// TestSocketsAreKept: one socket serves requests one after the other, also behind those that
// the kernel refuses.
func TestSocketsAreKept(t *testing.T) {
	p := own(t)
	fatal.If(t, change(p, newTable, "a", "b"))
	first := only(t, p)
	if err := change(p, delTable, "missing"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a missing table is removed: %v", err)
	}
	err := p.With(func(s *Socket) error {
		return s.Get(getTable, unix.NFPROTO_INET, func(b []byte) []byte { return AppendString(b, unix.NFTA_TABLE_NAME, "missing") }, func([]byte) {})
	})
	if !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a missing table is read: %v", err)
	}
	if names, err := tablesOf(p); len(names) != 2 || err != nil {
		t.Errorf("tables %v, %v", names, err)
	}
	if only(t, p) != first {
		t.Error("the first socket is not kept")
	}
	p.Close()
	if len(p.kept) > 0 {
		t.Error("sockets are kept after Close")
	}
	if names, err := tablesOf(p); len(names) != 2 || err != nil || len(p.kept) > 0 {
		t.Errorf("after Close: tables %v, %v, %d sockets are kept", names, err, len(p.kept))
	}
}

// TestASocketThatLostAReplyIsClosed: where the receive buffer had no room for replies, they are
// not taken for those of the next batch.
func TestASocketThatLostAReplyIsClosed(t *testing.T) {
	p := own(t)
	var missing []string
	for i := range 300 {
		missing = append(missing, fmt.Sprint("missing-", i))
	}
	err := p.With(func(s *Socket) error {
		s.room = 1 << 30 // keeps the least buffer
		fatal.If(t, unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1))
		_, err := s.Send(batchOf(delTable, missing...))
		return err
	})
	if !errors.Is(err, syscall.ENOBUFS) {
		t.Errorf("the error is %v, want ENOBUFS", err)
	}
	if len(p.kept) > 0 {
		t.Error("the socket is kept")
	}
	fatal.If(t, change(p, newTable, "a"))
	only(t, p)
}

// TestASocketWithoutAnAnswerIsClosed: a listing that is cut off half-way, or a message that the
// kernel cannot answer, leaves no socket behind.
func TestASocketWithoutAnAnswerIsClosed(t *testing.T) {
	p := own(t)
	fatal.If(t, change(p, newTable, "a", "b"))
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
			fatal.If(t, unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 1000}))
			return s.exchange(0, unix.NLMSG_NOOP, unix.NFPROTO_INET, func(b []byte) []byte { return b }, func([]byte) {})
		},
	} {
		var used *Socket
		err := p.With(func(s *Socket) error {
			used = s
			return use(s)
		})
		if err == nil {
			t.Errorf("%s: no error", what)
		}
		if len(p.kept) > 0 {
			t.Errorf("%s: the socket is kept", what)
		}
		if names, err := tablesOf(p); len(names) < 2 || err != nil || only(t, p) == used {
			t.Errorf("%s: tables %v, %v after it", what, names, err)
		}
	}
}

// TestAnEarlierAnswerIsSkipped: what the kernel answered to an earlier request, of which the
// answer was not read, is no answer to the next one.
func TestAnEarlierAnswerIsSkipped(t *testing.T) {
	p := own(t)
	fatal.If(t, change(p, newTable, "a"))
	fatal.If(t, p.With(func(s *Socket) error {
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
		var names []string
		err = s.Get(getTable, unix.NFPROTO_INET, func(b []byte) []byte { return AppendString(b, unix.NFTA_TABLE_NAME, "b") }, func(msg []byte) {
			names = append(names, String(Parse(msg[HeaderLen:])[unix.NFTA_TABLE_NAME]))
		})
		if len(names) != 1 || names[0] != "b" {
			t.Errorf("answers %v, want that about b", names)
		}
		return err
	}))
}

// TestSocketsOfManyGoroutines: each gets the answers to its own requests.
func TestSocketsOfManyGoroutines(t *testing.T) {
	p := own(t)
	namespace, err := os.Open("/proc/thread-self/ns/net")
	fatal.If(t, err)
	defer namespace.Close()
	const goroutines = 24
	rounds := short.Rounds(10, 20, 80)
	var work sync.WaitGroup
	for i := range goroutines {
		name, other := fmt.Sprint("table-", i), fmt.Sprint("missing-", i)
		work.Go(func() {
			err := netns.Do("the test", namespace, func() error {
				for range rounds {
					if err := change(p, newTable, name); err != nil {
						return err
					}
					if err := change(p, delTable, name, other); !errors.Is(err, syscall.ENOENT) {
						return fmt.Errorf("%s and %s are removed: %w", name, other, err)
					}
					var got []string
					err := p.With(func(s *Socket) error {
						return s.Get(getTable, unix.NFPROTO_INET, func(b []byte) []byte { return AppendString(b, unix.NFTA_TABLE_NAME, name) }, func(msg []byte) {
							got = append(got, String(Parse(msg[HeaderLen:])[unix.NFTA_TABLE_NAME]))
						})
					})
					if err != nil || len(got) != 1 || got[0] != name {
						return fmt.Errorf("%s is read as %v: %w", name, got, err)
					}
					if err := change(p, delTable, name); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if n := len(p.kept); n == 0 || n > mostKept {
		t.Errorf("%d sockets are kept, want 1 to %d", n, mostKept)
	}
}
