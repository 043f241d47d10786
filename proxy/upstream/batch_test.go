package upstream

import (
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/upstreamtest"
)

// TestBatchOfAClosedSocket: a query that was not sent yet ends with its socket.
func TestBatchOfAClosedSocket(t *testing.T) {
	u := newUpstream(upstreamtest.Start(t, upstreamtest.Honest("192.0.2.1")).Addr, new(Pool))
	var with Batch
	end := tried{done: make(chan struct{})}
	new(try).start(u, askFor(t, "www.example.org"), bounds{udp: time.Now().Add(time.Minute)}, &end, &with)
	_ = u.sockets.sockets[0].conn.Close()
	with.Send()
	if <-end.done; end.err == nil {
		t.Error("it was answered")
	}
	u.close()
}
