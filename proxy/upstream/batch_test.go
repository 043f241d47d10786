package upstream

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

// ending counts how tries end.
type ending struct{ replies, refused, late, others atomic.Int64 }

func (e *ending) packet(reply []byte) bool {
	if len(reply) > wire.HeaderBytes {
		e.replies.Add(1)
	} else {
		e.others.Add(1)
	}
	return true
}

func (e *ending) tried(_ *dns.Msg, err error) {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		e.refused.Add(1)
	case errors.Is(err, os.ErrDeadlineExceeded):
		e.late.Add(1)
	default:
		e.others.Add(1)
	}
}

func (e *ending) broken() { e.others.Add(1) }

func (e *ending) all() int64 {
	return e.replies.Load() + e.refused.Load() + e.late.Load() + e.others.Load()
}

// TestBatchOfAClosedSocket: a query that was not sent yet ends with its socket.
func TestBatchOfAClosedSocket(t *testing.T) {
	u := newUpstream(upstreamtest.Start(t, upstreamtest.Honest("192.0.2.1")).Addr, new(Pool))
	var with Batch
	var end ending
	new(try).start(u, askFor(t, "www.example.org"), bounds{udp: time.Now().Add(time.Minute)}, &end, &with)
	_ = u.sockets.sockets[0].conn.Close()
	with.Send()
	fatal.Await(t, "its end does not come", func() bool { return end.all() == 1 })
	if end.replies.Load() != 0 {
		t.Error("it was answered")
	}
	u.close()
}
