package proxy

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func came(arrived <-chan struct{}) bool {
	select {
	case <-arrived:
		return true
	default:
		return false
	}
}

// TestProbe: a query for a pending name arrives from any source at any rate, and is in no
// counter.
func TestProbe(t *testing.T) {
	l := newLab(t, labTable)
	config := *l.s.setup.Load().config
	config.Limits.RatePerPod, config.Limits.BurstPerPod = 1, 1
	l.use(&config, l.up)
	at := l.listen()
	before := l.s.Stats()
	for _, from := range []string{"127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.77"} { // the last is no pod
		c := client(t, "udp", from, at)
		probe, arrived, done := l.s.ExpectProbe()
		fatal.If(t, c.WriteMsg(newQuery(probe, dns.TypeAAAA)))
		fatal.Await(t, "the probe does not arrive", func() bool { return came(arrived) })
		done()
		done()
	}
	diff.Equal(t, before, l.s.Stats(), "it counts")
}

// TestProbeIsNotAnswered: the first reply is that of the query after it.
func TestProbeIsNotAnswered(t *testing.T) {
	l := newLab(t, labTable)
	at := l.listen()
	c := client(t, "udp", "127.0.0.2", at)
	probe, arrived, done := l.s.ExpectProbe()
	defer done()
	fatal.If(t, c.WriteMsg(newQuery(probe, dns.TypeA)))
	if r := exchange(t, c, newQuery("www.example.org", dns.TypeA)); r.Rcode != dns.RcodeSuccess || r.Question[0].Name != "www.example.org." {
		t.Errorf("the first reply: %v", r)
	}
	if !came(arrived) {
		t.Error("it did not arrive")
	}
}

// TestSelfQueryIsRepeated: three lost datagrams are no hung proxy.
func TestSelfQueryIsRepeated(t *testing.T) {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	fatal.If(t, err)
	defer c.Close()
	got := make(chan int, 1)
	go func() {
		buf := make([]byte, 512)
		for n := 1; ; n++ {
			size, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if n < 4 {
				continue
			}
			q := new(dns.Msg)
			if err := q.Unpack(buf[:size]); err != nil {
				t.Error(err)
			}
			got <- n
			_, _ = c.WriteToUDPAddrPort(says(q, nil, q.Question[0].Name+` 0 IN TXT "`+aliveText+`"`), from)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fatal.If(t, new(Server).SelfQuery(ctx, c.LocalAddr().(*net.UDPAddr).AddrPort()))
	diff.Equal(t, 4, <-got, "answered at datagram")
}
