package scenarios

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// noneAdmitted asserts that no connection that addresses of a pod began bears the mark of
// what is allowed. With destinations only connections to these count.
func (s *stage) noneAdmitted(from []netip.Addr, to ...netip.Addr) {
	s.t.Helper()
	const mark = 0x40
	fatal.If(s.t, s.Node.Do(func() error {
		k, err := conntrack.Open()
		if err != nil {
			return err
		}
		defer k.Close()
		all, err := k.Flows(conntrack.Query{Sources: from, Peers: to})
		if len(all) == 0 {
			s.t.Errorf("no connection from %v to %v is known: this proves nothing", from, to)
		}
		for _, f := range all {
			diff.Equal(s.t, 0, f.Mark&mark, "the connection from", f.Src, "to", f.Dst, "the mark's bits of", f.Mark)
		}
		return err
	}))
}

// keptLines opens a pod's UDP sockets to an address of each family that one policy of its
// own allows, beside a policy that stays, and returns a function that applies and withdraws
// that policy.
func keptLines(t *testing.T, kind nodeKind) (s *stage, lines []*line, allow func(bool)) {
	s = cutStage(t, kind, "")
	gone := allowNames("gone", "client", "gone")
	s.start(map[string]string{
		"a.yaml":    s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
		"gone.yaml": gone,
		"kept.yaml": allowNames("kept", "client", "steady"),
	})
	s.asksFor("a", "gone", "steady")
	for _, form := range []string{"198.51.100.%d", "2001:db8:1::%x"} {
		lines = append(lines, s.line("a", "udp", netip.MustParseAddr(fmt.Sprintf(form, cutNames["gone"]))))
	}
	return s, lines, func(yes bool) {
		t.Helper()
		if !yes {
			s.apply(map[string]string{"gone.yaml": ""})
			return
		}
		s.apply(map[string]string{"gone.yaml": gone})
		s.asksFor("a", "gone")
	}
}

// TestGrantedAgain: a connection that was denied, or was cut, is admitted by its next packet
// when its address is granted, and of the same socket, as WireGuard, QUIC and chrony keep one.
func TestGrantedAgain(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s, lines, allow := keptLines(t, kind)
		for range 2 {
			allow(false)
			// Sockets that are denied from their first packet on.
			lines = append(lines, s.untried("a", cutNames["gone"])...)
			s.podNext("after the policy was withdrawn", lines, nil)
			allow(true)
			s.podsReceived("after the policy was applied again", lines)
			s.goesOn("after the policy was applied again", lines...)
		}
	})
}

// untried opens a pod's UDP sockets to an address of each family, by its last part, and sends
// nothing.
func (s *stage) untried(pod string, last int) (lines []*line) {
	s.t.Helper()
	for _, form := range []string{"198.51.100.%d", "2001:db8:1::%x"} {
		to := netip.MustParseAddr(fmt.Sprintf(form, last))
		l := &line{name: "untried " + to.String(), client: &end{}, server: &end{}}
		client, server := s.served(pod, "udp", s.World, to, l)
		s.t.Cleanup(func() { client.Close(); server() })
		l.conn, l.client.write = client, client.Write
		go l.client.hears(client.Read)
		lines = append(lines, l)
	}
	return lines
}

// TestUnseenCandidateAdmitsNothing: a packet to a granted address that ends before the
// judge, by its hop limit, admits nothing, and leaves nothing to a later packet.
func TestUnseenCandidateAdmitsNothing(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s, lines, allow := keptLines(t, kind)
		allow(false)
		s.podNext("after the policy was withdrawn", lines, nil)
		allow(true)
		var to []netip.Addr
		for _, l := range lines {
			to = append(to, addrOf(l.remote))
			hopLimit(t, l.conn, 1)
			for range 3 {
				l.client.say("unseen")
			}
			hopLimit(t, l.conn, 64)
		}
		a := []netip.Addr{s.Pod("a").Addr4, s.Pod("a").Addr6}
		s.noneAdmitted(a, to...)
		allow(false)
		s.noneAdmitted(a, to...)
		// A program that copies the connection's mark to each packet makes replies look like
		// candidates.
		s.xtables("-t mangle -A PREROUTING -j CONNMARK --restore-mark")
		s.serverNext("after the policy was withdrawn again", lines, nil)
		s.noneAdmitted(a, to...)
		s.podNext("after the policy was withdrawn again", lines, nil)
	})
}

// hopLimit sets the hop limit of what a socket sends.
func hopLimit(t *testing.T, c net.Conn, hops int) {
	t.Helper()
	raw, err := c.(*net.UDPConn).SyscallConn()
	fatal.If(t, err)
	level, option := unix.IPPROTO_IP, unix.IP_TTL
	if addrOf(c.LocalAddr()).Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
	}
	fatal.If(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, hops) }))
	fatal.If(t, err)
}

// expecting is a program that expects, of each connection to port 7000, one back to port
// 7070 of its client, as helpers for FTP do. It counts expected connections that come with
// their master's mark.
const expecting = `table inet helper {
	ct expectation e4 { protocol tcp; dport 7070; timeout 1m; size 8; l3proto ip; }
	ct expectation e6 { protocol tcp; dport 7070; timeout 1m; size 8; l3proto ip6; }
	chain masters {
		type filter hook prerouting priority -140;
		ct state new tcp dport 7000 meta nfproto ipv4 ct expectation set "e4"
		ct state new tcp dport 7000 meta nfproto ipv6 ct expectation set "e6"
	}
	chain expected {
		type filter hook prerouting priority -160;
		ct state related tcp dport 7070 ct mark & 0x40 == 0x40 counter
	}
}
`

// TestExpectedConnections: a connection that a helper expects is judged by itself, although
// it has the mark of its master, which is admitted.
func TestExpectedConnections(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		files := map[string]string{
			"a.yaml":  s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
			"b.yaml":  s.Pod("b").Manifest("shop", "b", map[string]string{"app": "other"}),
			"p.yaml":  policy("all", "podSelector: {}"),
			"np.yaml": networkPolicy("np", "podSelector: {matchLabels: {app: other}}\npolicyTypes: [Egress]\negress: [{to: [{podSelector: {matchLabels: {app: client}}}]}]"),
		}
		s.start(files)
		fatal.If(t, s.Node.Pipe(expecting, "nft", "-f", "-"))
		a, b := s.Pod("a"), s.Pod("b")
		for host, port := range map[*lab.Pod]int{a: 7000, b: 7070} {
			s.serve(host.Host, port)
		}
		expected := func(to string, want lab.Outcome) {
			t.Helper()
			master, err := b.Dial("tcp", netip.AddrPortFrom(map[bool]netip.Addr{false: a.Addr4, true: a.Addr6}[strings.Contains(to, "[")], 7000).String(), lab.Limit)
			fatal.If(t, err)
			defer master.Close()
			s.expect("a", "tcp", to, want)
		}
		var back []string
		for _, pair := range [][2]netip.Addr{{a.Addr4, b.Addr4}, {a.Addr6, b.Addr6}} {
			back = append(back, netip.AddrPortFrom(pair[1], 7070).String())
		}
		for _, to := range back {
			expected(to, lab.Refused)
		}
		counted := run(t, s.Node, "nft", "list", "chain", "inet", "helper", "expected")
		if strings.Contains(counted, "counter packets 0 ") {
			t.Errorf("no expected connection came with its master's mark: this proves nothing\n%s", counted)
		}
		s.apply(map[string]string{"np2.yaml": networkPolicy("np2", "podSelector: {matchLabels: {app: client}}\npolicyTypes: [Egress]\negress: [{to: [{podSelector: {matchLabels: {app: other}}}]}]")})
		for _, to := range back {
			expected(to, lab.Answered)
		}
	})
}

// TestUnansweredWithOverwrittenMarks: where another program overwrites packet marks, what
// is allowed goes on before its first answer.
func TestUnansweredWithOverwrittenMarks(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s, _, _ := keptLines(t, kind)
		s.xtables("-t mangle -A PREROUTING -j MARK --set-mark 0x1")
		lines := s.untried("a", cutNames["gone"])
		for range 3 {
			s.podsReceived("before an answer", lines)
		}
		s.goesOn("after it", lines...)
	})
}
