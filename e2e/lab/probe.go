package lab

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/cluster/echo"
)

// Outcome is what became of a probe, as its sender could tell.
type Outcome string

// The outcomes.
const (
	Answered Outcome = "answered" // the echo came back
	Refused  Outcome = "refused"  // an error came back: a reset, an ICMP message, or the kernel did not send it
	Silent   Outcome = "silent"   // nothing came back in time
)

const (
	// Patience is how long a probe waits before it calls an address silent.
	Patience = 400 * time.Millisecond
	// Limit bounds every wait for an event that has to come. The events take
	// milliseconds: a wait that ends by the limit has failed on the slowest machine
	// too.
	Limit = 20 * time.Second
)

// PatienceFor returns how long a probe with an expected outcome waits. A wait for
// an answer or a refusal ends when it comes, so only silence is short.
func PatienceFor(want Outcome) time.Duration {
	if want == Silent {
		return Patience
	}
	return Limit
}

// Probe sends to an address and waits for the echo. Network is tcp, udp or icmp;
// icmp has no port, and silence is all that a refused one shows.
func (h *Host) Probe(network string, to netip.AddrPort) Outcome {
	return h.ProbeFor(network, to, Patience)
}

// ProbeFor is Probe with a patience of the caller's.
func (h *Host) ProbeFor(network string, to netip.AddrPort, patience time.Duration) Outcome {
	if network == "icmp" {
		return h.ping(to.Addr(), patience)
	}
	c, err := h.Dial(network, to.String(), patience)
	if err != nil {
		return outcome(err)
	}
	defer c.Close()
	return Echo(c, patience)
}

// ProbeFirst is Probe over TCP for a connection whose first packet must get
// through: Silent if the kernel had to send that packet again. The machine may be
// as slow as it likes.
func (h *Host) ProbeFirst(to netip.AddrPort) Outcome {
	c, err := h.Dial("tcp", to.String(), Limit)
	if err != nil {
		return outcome(err)
	}
	defer c.Close()
	again, err := resent(c.(*net.TCPConn))
	if err != nil {
		return outcome(err)
	}
	if again {
		return Silent
	}
	return Echo(c, Limit)
}

// resent tells whether packets of a connection were sent more than once.
func resent(c *net.TCPConn) (again bool, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false, err
	}
	var info *unix.TCPInfo
	if e := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); e != nil {
		return false, e
	}
	if err != nil {
		return false, err
	}
	return info.Total_retrans > 0, nil
}

// Forge sends one packet to an address with a source that is not the pod's, and
// does not wait: whether it arrived is for a Sniffer to say.
func (h *Host) Forge(network, from string, to netip.AddrPort) error {
	c, err := h.DialFrom(network, from, to.String(), 30*time.Millisecond)
	if err != nil {
		if outcome(err) == Silent {
			return nil // the opening packet of a TCP connection is out
		}
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("forged\n"))
	return err
}

// Echo says hello on a connection and waits for it to come back.
func Echo(c net.Conn, patience time.Duration) Outcome {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return outcome(err)
	}
	word := fmt.Sprintf("hello %d", time.Now().UnixNano())
	if _, err := fmt.Fprintln(c, word); err != nil {
		return outcome(err)
	}
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return outcome(err)
		}
		if strings.TrimSpace(line) == word {
			return Answered
		}
	}
}

func outcome(err error) Outcome {
	var timeout net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return Silent
	}
	for _, e := range []syscall.Errno{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.EACCES, syscall.ENETUNREACH, syscall.EPIPE, syscall.EPERM} {
		if errors.Is(err, e) {
			return Refused
		}
	}
	return Outcome(err.Error())
}

// reaches waits until addresses answer: the kernel reports a new link's carrier
// late, and until then drops what it should send.
func (h *Host) reaches(addrs ...netip.Addr) error {
	for _, a := range addrs {
		got := Silent
		for until := time.Now().Add(Limit); got != Answered; {
			if time.Now().After(until) {
				return fmt.Errorf("%s does not reach %s: %s", h.Name, a, got)
			}
			got = h.ping(a, 100*time.Millisecond)
		}
	}
	return nil
}

func (h *Host) ping(to netip.Addr, patience time.Duration) Outcome {
	c, err := h.ListenPacket(echo.PingNetwork(to), "")
	if err != nil {
		return Outcome(err.Error())
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return outcome(err)
	}
	if err := echo.Ping(c, to); err != nil {
		return outcome(err)
	}
	return Answered
}

// Ask asks a DNS server from the host for a name, on a connection of its own.
func (h *Host) Ask(network string, server netip.AddrPort, name string, qtype uint16, patience time.Duration) (*dns.Msg, error) {
	c, err := h.Dial(network, server.String(), patience)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return Exchange(c, name, qtype, patience)
}

// Exchange asks for a name on a connection, and returns the reply to that query.
func Exchange(c net.Conn, name string, qtype uint16, patience time.Duration) (*dns.Msg, error) {
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	m.SetEdns0(1232, false)
	conn := &dns.Conn{Conn: c, UDPSize: 1232}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if err := conn.WriteMsg(m); err != nil {
		return nil, err
	}
	for {
		r, err := conn.ReadMsg()
		if err != nil || r.Id == m.Id {
			return r, err
		}
	}
}

// Addresses returns the addresses of a reply's answer.
func Addresses(r *dns.Msg) (out []netip.Addr) {
	for _, rr := range r.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			a, _ := netip.AddrFromSlice(rr.A.To4())
			out = append(out, a)
		case *dns.AAAA:
			a, _ := netip.AddrFromSlice(rr.AAAA)
			out = append(out, a)
		}
	}
	return out
}
