package upstream

import (
	"errors"
	"fmt"
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

// TestBatchReachesEachUpstream: more than fit into one call, alternating between two
// upstreams and a removed one; each query ends once.
func TestBatchReachesEachUpstream(t *testing.T) {
	pool := new(Pool)
	var ups []*upstream
	for range 2 {
		ups = append(ups, newUpstream(upstreamtest.Start(t, upstreamtest.Honest("192.0.2.1")).Addr, pool))
	}
	gone := upstreamtest.Start(t, upstreamtest.Silent)
	gone.Stop()
	ups = append(ups, newUpstream(gone.Addr, pool))
	var with Batch
	var ends [3]ending
	const each = 100
	for i := range each {
		for k, u := range ups {
			a := askFor(t, fmt.Sprintf("n%d.example.org", i))
			new(try).start(u, a, bounds{udp: time.Now().Add(time.Minute)}, &ends[k], &with)
		}
	}
	with.Send()
	for k := range ups {
		fatal.Await(t, "the end of all does not come", func() bool { return ends[k].all() == each })
	}
	if ends[0].replies.Load() != each || ends[1].replies.Load() != each || ends[2].replies.Load() != 0 || ends[2].others.Load() != 0 {
		t.Errorf("%+v", &ends)
	}
	for _, u := range ups {
		u.close()
	}
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
