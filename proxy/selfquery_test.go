package proxy

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/fatal"
)

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
	if n := <-got; n != 4 {
		t.Errorf("answered at datagram %d", n)
	}
}
