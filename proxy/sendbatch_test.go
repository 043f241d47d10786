package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/fatal"
)

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
				return [][]byte{unreadable(q), {1}, nil}
			case 2:
				return [][]byte{says(q, func(r *dns.Msg) { r.Truncated = !tcp })}
			}
			return [][]byte{says(q, func(r *dns.Msg) { r.Rcode = dns.RcodeServerFailure })}
		}),
	}
	before, files := runtime.NumGoroutine(), openFiles(t)
	l := newSocketLab(t, false)
	l.granter.tells(func(grants []policy.Grant, then GrantCallback) {
		if grants[0].Name[2]%3 != 0 {
			go then.Granted(map[bool]error{true: errKernelBusy}[grants[0].Name[1]%2 == 0], false)
		}
	})
	c := configWith(t, "cache")
	c.GrantTimeout, c.Limits.QueriesPerPod = 100*time.Millisecond, 600
	l.asks(c, func(z *corefile.Zone) {
		z.Policy, z.Timeout, z.Deadline, z.MaxFails = corefile.RoundRobin, 100*time.Millisecond, 400*time.Millisecond, 2
	}, ups...)
	fatal.If(t, l.s.Listen([]netip.AddrPort{loopback}))
	const queries = 600
	to := l.s.Addrs()[0]
	socket, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}, net.UDPAddrFromAddrPort(to))
	fatal.If(t, err)
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
	fatal.If(t, l.s.Close(context.Background()))
	fatal.Await(t, "the end of the goroutines", func() bool { return runtime.NumGoroutine() <= before+1 })
	fatal.Await(t, "the end of the descriptors", func() bool { return openFiles(t) <= files })
}
