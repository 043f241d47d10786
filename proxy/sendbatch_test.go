package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/wire"
)

// ending counts how queries end.
type ending struct{ replies, refused, late, others atomic.Int64 }

func (e *ending) take(packet []byte, err error) {
	switch {
	case err == nil && len(packet) > wire.HeaderBytes:
		e.replies.Add(1)
	case errors.Is(err, syscall.ECONNREFUSED):
		e.refused.Add(1)
	case errors.Is(err, os.ErrDeadlineExceeded):
		e.late.Add(1)
	default:
		e.others.Add(1)
	}
}

func (e *ending) all() int64 {
	return e.replies.Load() + e.refused.Load() + e.late.Load() + e.others.Load()
}

// TestSendBatchReachesEachUpstream: more than fit into one call, by turns to two
// upstreams and to one that has gone; each query ends once.
func TestSendBatchReachesEachUpstream(t *testing.T) {
	stats := new(counters)
	var ups []*upstream
	for range 2 {
		ups = append(ups, newUpstream(startScript(t, one("192.0.2.1")).addr, stats))
	}
	gone := startScript(t, silent)
	gone.stop()
	ups = append(ups, newUpstream(gone.addr, stats))
	var with mmsg.SendBatch[*line]
	var ends [3]ending
	const each = 100
	for i := range each {
		for k, u := range ups {
			a := askFor(t, fmt.Sprintf("n%d.example.org", i))
			u.start(a, attempt{udp: time.Now().Add(20 * time.Second)}, &ends[k], &with)
		}
	}
	with.Send()
	for k := range ups {
		until(t, "the end of all", func() bool { return ends[k].all() == each })
	}
	if ends[0].replies.Load() != each || ends[1].replies.Load() != each || ends[2].replies.Load() != 0 || ends[2].others.Load() != 0 {
		t.Errorf("%+v", &ends)
	}
	for _, u := range ups {
		u.close()
	}
}

// TestSendBatchOfAClosedLine: a query that was not sent yet ends with its line.
func TestSendBatchOfAClosedLine(t *testing.T) {
	u := newUpstream(startScript(t, one("192.0.2.1")).addr, new(counters))
	var with mmsg.SendBatch[*line]
	var end ending
	u.start(askFor(t, "www.example.org"), attempt{udp: time.Now().Add(20 * time.Second)}, &end, &with)
	_ = u.lines.all()[0].conn.Close()
	with.Send()
	until(t, "its end", func() bool { return end.all() == 1 })
	if end.replies.Load() != 0 {
		t.Error("it was answered")
	}
	u.close()
}

func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

// TestStormLeavesNothing: after a storm with lying, silent and refusing upstreams
// and a kernel that fails, descriptors, goroutines and places are as before.
func TestStormLeavesNothing(t *testing.T) {
	ups := []*scripted{
		startScript(t, one("192.0.2.1")),
		startScript(t, func(q *dns.Msg, tcp bool) [][]byte {
			switch q.Question[0].Name[0] % 4 {
			case 0:
				return nil
			case 1:
				return [][]byte{wireReply(q, noerror, [][]byte{{0xc0}}), {1}, nil}
			case 2:
				return [][]byte{says(q, func(r *dns.Msg) { r.Truncated = !tcp })}
			}
			return [][]byte{says(q, func(r *dns.Msg) { r.Rcode = dns.RcodeServerFailure })}
		}),
	}
	before, files := runtime.NumGoroutine(), openFiles(t)
	l := newExpressLab(t, false)
	l.granter.tells(func(grants []policy.Grant, then Then) {
		if grants[0].Name[2]%3 != 0 {
			go then.Granted(map[bool]error{true: errKernelBusy}[grants[0].Name[1]%2 == 0], false)
		}
	})
	c := configWith(t, "cache")
	c.GrantTimeout, c.Limits.QueriesPerPod = 100*time.Millisecond, 600
	l.asks(c, func(z *corefile.Zone) {
		z.Policy, z.Timeout, z.Deadline = corefile.RoundRobin, 100*time.Millisecond, 400*time.Millisecond
	}, ups...)
	if err := l.s.Listen([]netip.AddrPort{loopback}); err != nil {
		t.Fatal(err)
	}
	const queries = 600
	to := l.s.Addrs()[0]
	socket, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	conn := &dns.Conn{Conn: socket}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	var read atomic.Int64
	go func() {
		for i := range queries {
			if err := conn.WriteMsg(newQuery(fmt.Sprintf("%c%d.example.org", 'a'+i%26, i), dns.TypeA)); err != nil {
				t.Error(err)
			}
			for int64(i)-read.Load() >= 200 { // the client's socket holds as many replies
				time.Sleep(time.Millisecond)
			}
		}
	}()
	for i := range queries {
		if _, err := conn.ReadMsg(); err != nil {
			t.Fatalf("reply %d: %v, %+v", i, err, l.s.Stats())
		}
		read.Add(1)
	}
	if s := l.settled(); s.Panics != 0 || s.Failed == 0 || s.Allowed == 0 || s.ShedPod != 0 {
		t.Errorf("%+v", s)
	}
	_ = conn.Close()
	if err := l.s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of the goroutines", func() bool { return runtime.NumGoroutine() <= before+1 })
	until(t, "the end of the descriptors", func() bool { return openFiles(t) <= files })
}
