package fake

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestEcho(t *testing.T) {
	q := query(t, "www.example.org.", dns.TypeA, true)
	want := bytes.Clone(q)
	want[2] |= 0x80
	if got := Echo(nil, q); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	if got := Echo(nil, q[:11]); got != nil {
		t.Errorf("what is no query came back as %x", got)
	}
}

// Every server answers its client over a real socket, goes on after what it cannot
// answer, and ends with its socket.
func TestServe(t *testing.T) {
	for which, respond := range Responders {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		fatal.If(t, err)
		end := make(chan error, 1)
		go func() { end <- loop(c, respond) }()
		client, err := net.Dial("udp", c.LocalAddr().String())
		fatal.If(t, err)
		fatal.If(t, client.SetDeadline(time.Now().Add(time.Minute)))
		q := query(t, "n7.w3.new.bench.test.", dns.TypeA, false)
		for _, packet := range [][]byte{[]byte("junk"), q} {
			if _, err := client.Write(packet); err != nil {
				t.Fatal(err)
			}
		}
		buf := make([]byte, 2048)
		n, err := client.Read(buf)
		if want := respond(nil, bytes.Clone(q)); err != nil || !bytes.Equal(buf[:n], want) {
			t.Errorf("%s: %x, %v, want %x", which, buf[:n], err, want)
		}
		client.Close()
		c.Close()
		if err := <-end; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s ended with %v", which, err)
		}
	}
}

func TestServeSaysWhere(t *testing.T) {
	taken, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	fatal.If(t, err)
	defer taken.Close()
	at := taken.LocalAddr().(*net.UDPAddr).AddrPort()
	err = Serve(netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), Echo)
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte(at.String())) {
		t.Errorf("a taken address: %v, want it named", err)
	}
}
