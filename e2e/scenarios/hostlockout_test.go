package scenarios

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// denyAll is a policy that denies the node every connection.
const denyAll = `[{action: Deny}]`

// hostReaches waits until the node reaches an address.
func (s *stage) hostReaches(what, to string) {
	s.t.Helper()
	at := netip.MustParseAddrPort(to)
	for until := time.Now().Add(eventLimit); ; time.Sleep(100 * time.Millisecond) {
		got := s.Node.ProbeFor("tcp", at, lab.Limit)
		if got == lab.Answered {
			return
		}
		if time.Now().After(until) {
			s.t.Fatalf("%s: the node to %s: %s", what, to, got)
		}
	}
}

// TestOverlayOfAClosedNode: the packets of a VXLAN between pods go on under a policy that denies
// the node everything, to a tunnel endpoint that no Node lists, and to one that comes later.
func TestOverlayOfAClosedNode(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newHostStage(t, kind, nil)
		own := s.nodeAddr()
		overlay := func(h *lab.Host, local, address string) {
			t.Helper()
			run(t, h, "ip", "link", "add", "vx0", "type", "vxlan", "id", "42", "dstport", "8472", "local", local, "nolearning")
			run(t, h, "ip", "addr", "add", address+"/24", "dev", "vx0")
			run(t, h, "ip", "link", "set", "vx0", "up")
		}
		overlay(s.Node, own.String(), "10.99.0.1")
		overlay(s.World, "198.51.100.77", "10.99.0.2")
		run(t, s.World, "bridge", "fdb", "append", "00:00:00:00:00:00", "dev", "vx0", "dst", own.String())
		run(t, s.Node, "bridge", "fdb", "append", "00:00:00:00:00:00", "dev", "vx0", "dst", "198.51.100.77")
		s.start(map[string]string{"node.yaml": hostNode, "a.yaml": s.Pod("a").Manifest("shop", "a", nil)})
		s.expect("a", "tcp", "10.99.0.2:80", lab.Answered)
		s.apply(map[string]string{"policy.yaml": hostPolicy(denyAll)})
		s.hostExpects("tcp", "198.51.100.77:80", lab.Refused)
		s.hostExpects("udp", "198.51.100.78:8472", lab.Refused)
		s.expect("a", "tcp", "10.99.0.2:80", lab.Answered)
		s.expect("a", "tcp", "10.99.0.2:81", lab.Answered)
		// The endpoint moves.
		run(t, s.World, "ip", "link", "set", "vx0", "type", "vxlan", "id", "42", "local", "198.51.100.79")
		run(t, s.Node, "bridge", "fdb", "append", "00:00:00:00:00:00", "dev", "vx0", "dst", "198.51.100.79")
		run(t, s.Node, "bridge", "fdb", "del", "00:00:00:00:00:00", "dev", "vx0", "dst", "198.51.100.77")
		for until := time.Now().Add(eventLimit); s.Pod("a").ProbeFor("tcp", netip.MustParseAddrPort("10.99.0.2:443"), lab.Limit) != lab.Answered; {
			if time.Now().After(until) {
				t.Fatal("the overlay does not come back after its endpoint has moved")
			}
		}
	})
}

// run runs a program on a host; it must succeed.
func run(t *testing.T, h *lab.Host, program string, args ...string) {
	t.Helper()
	if out, err := h.Run(program, args...); err != nil {
		t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
}

// nodeAddr returns the node's IPv4 address towards the world.
func (s *stage) nodeAddr() (a netip.Addr) {
	s.t.Helper()
	c, err := s.Node.Dial("udp", "198.51.100.1:9", lab.Limit)
	fatal.If(s.t, err)
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
}

// TestFailsafesOfAClosedNode: a routing session that was open when the node was closed can be
// opened again, and a resolver that the host is given later can be asked.
func TestFailsafesOfAClosedNode(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newHostStage(t, kind, nil)
		routers, err := s.World.Serve(179)
		fatal.If(t, err)
		t.Cleanup(routers.Close)
		const router, other = "198.51.100.179:179", "198.51.100.180:179"
		session, err := s.Node.Dial("tcp", router, lab.Limit)
		fatal.If(t, err)
		s.start(map[string]string{"node.yaml": hostNode, "policy.yaml": hostPolicy(denyAll)})
		s.hostExpects("tcp", other, lab.Refused)
		if got := lab.Echo(session, lab.Limit); got != lab.Answered {
			t.Errorf("the open session: %s", got)
		}
		session.Close()
		s.hostReaches("a routing session again", router)
		s.hostExpects("tcp", other, lab.Refused)
		// A resolver of the host's files is a failsafe, and a former one stays a failsafe.
		dns, err := s.World.Listen("203.0.113.53:53")
		fatal.If(t, err)
		t.Cleanup(func() { dns.Close() })
		if c, err := s.Node.Dial("tcp", "203.0.113.53:53", lab.Limit); err == nil {
			c.Close()
			t.Error("an address that is no failsafe yet is reached")
		}
		root := filepath.Join(s.agent.Dir, "host")
		fatal.If(t, lab.HostFiles(root, map[string]string{"etc/resolv.conf": "nameserver 203.0.113.53\n"}))
		for until := time.Now().Add(eventLimit); ; time.Sleep(100 * time.Millisecond) {
			c, err := s.Node.Dial("tcp", "203.0.113.53:53", lab.Limit)
			if err == nil {
				c.Close()
				break
			}
			if time.Now().After(until) {
				t.Fatalf("a new resolver of the host: %v", err)
			}
		}
		c, err := s.Node.Dial("tcp", fmt.Sprintf("%s:53", lab.Resolver4), lab.Limit)
		if err != nil {
			t.Fatalf("a former resolver of the host: %v", err)
		}
		c.Close()
	})
}
