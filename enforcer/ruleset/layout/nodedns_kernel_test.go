package layout_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

const agentMark = 0x60

var (
	resolver4, resolver6 = netip.MustParseAddr("198.51.100.53"), netip.MustParseAddr("2001:db8:1::53")
	nodeServe4           = netip.MustParseAddr("169.254.20.70")
	nodeServe6           = netip.MustParseAddr("fd5c:7a1e:93b4::1:7")
)

// nodeDNS is the interception of the resolvers of a nodeHost.
func nodeDNS() *layout.NodeDNS {
	return &layout.NodeDNS{Resolvers: map[netip.Addr]netip.Addr{resolver4: nodeServe4, resolver6: nodeServe6}, Mark: agentMark, LoopTest: "1234567"}
}

// nodeHost is a stage with an agent that serves the node's own queries, and resolvers beyond a
// gateway. Both answer each packet with their name.
type nodeHost struct {
	*stage
	held chan struct{} // answers to the packet "held" wait for its end
}

func newNodeHost(t *testing.T, pods ...string) *nodeHost {
	t.Helper()
	h := &nodeHost{stage: newStage(t, lab.Routed, pods), held: make(chan struct{})}
	for _, of := range []struct {
		host *lab.Host
		addr netip.Addr
		name string
	}{{h.Node, nodeServe4, "agent"}, {h.Node, nodeServe6, "agent"}, {h.World, resolver4, "resolver"}, {h.World, resolver6, "resolver"}} {
		fatal.If(t, of.host.IP("addr", "add", netip.PrefixFrom(of.addr, of.addr.BitLen()).String(), "dev", "lo", "nodad"))
		h.serve(of.host, of.addr, of.name)
	}
	return h
}

// serve answers DNS packets and connections at an address with a name.
func (h *nodeHost) serve(host *lab.Host, at netip.Addr, name string) {
	h.t.Helper()
	udp, err := host.ListenPacket("udp", netip.AddrPortFrom(at, 53).String())
	fatal.If(h.t, err)
	tcp, err := host.Listen(netip.AddrPortFrom(at, 53).String())
	fatal.If(h.t, err)
	h.t.Cleanup(func() { udp.Close(); tcp.Close() })
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			if string(b[:n]) == "held" {
				<-h.held
			}
			_, _ = udp.WriteTo([]byte(name), from)
		}
	}()
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(name))
			c.Close()
		}
	}()
}

// socket is how a program of the host asks.
type socket struct {
	network string
	mark    int
	device  string
	from    netip.Addr
	// unconnected: the reply has to come from the address that was asked.
	unconnected bool
}

// control sets the options of a socket.
func (s socket) control(_, _ string, c syscall.RawConn) (err error) {
	_ = c.Control(func(fd uintptr) {
		if s.mark != 0 {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, s.mark)
		}
		if s.device != "" {
			err = errors.Join(err, unix.BindToDevice(int(fd), s.device))
		}
	})
	return err
}

// asks returns the name of the server that answers a packet of a program of the node.
func (h *nodeHost) asks(s socket, to netip.Addr, packet string) (who string) {
	h.t.Helper()
	if err := h.Node.Do(func() (err error) { who, err = s.ask(netip.AddrPortFrom(to, 53), packet); return err }); err != nil {
		h.t.Errorf("%+v to %s: %v", s, to, err)
	}
	return who
}

// ask returns the answer to a packet, over TCP what the server says first.
func (s socket) ask(at netip.AddrPort, packet string) (string, error) {
	b := make([]byte, 512)
	if s.unconnected {
		c, err := net.ListenPacket("udp", ":0")
		if err != nil {
			return "", err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(lab.Limit))
		if _, err := c.WriteTo([]byte(packet), net.UDPAddrFromAddrPort(at)); err != nil {
			return "", err
		}
		n, from, err := c.ReadFrom(b)
		if got := from.(*net.UDPAddr).AddrPort(); err == nil && netip.AddrPortFrom(got.Addr().Unmap(), got.Port()) != at {
			return "", fmt.Errorf("the reply is from %s", got)
		}
		return string(b[:n]), err
	}
	d := net.Dialer{Control: s.control, Timeout: lab.Limit}
	if s.network == "tcp" && s.device != "" {
		d.Timeout = time.Second // it is dropped
	}
	if s.from.IsValid() {
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.from, 0))
	}
	c, err := d.Dial(s.network, at.String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(lab.Limit))
	if s.network == "udp" {
		if _, err := c.Write([]byte(packet)); err != nil {
			return "", err
		}
	}
	n, err := c.Read(b)
	return string(b[:n]), err
}

// beats keeps interception on, however slow the machine is, until end is called or the test is over.
func (h *nodeHost) beats() (end func()) {
	h.t.Helper()
	h.do(h.tables.Heartbeat)
	over := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(layout.HeartbeatTimeout / 4):
			}
			if err := h.Node.Do(func() error { return h.tables.Heartbeat(context.Background()) }); err != nil {
				h.t.Error(err)
			}
		}
	})
	end = sync.OnceFunc(func() { close(over); beating.Wait() })
	h.t.Cleanup(end)
	return end
}

// TestTheNodesOwnQueries: while an agent is alive, queries of the host's programs come to it, over
// UDP and TCP, whatever the socket is, and the reply comes from the resolver; the agent's own go to
// the resolver, and so do those of bound sockets, which are noted.
func TestTheNodesOwnQueries(t *testing.T) {
	t.Parallel()
	h := newNodeHost(t)
	state := withNode(full)
	state.NodeDNS = nodeDNS()
	// All else is denied: what comes to the agent is not, and what goes to the resolvers is a failsafe.
	state.Node.Out = []*layout.TierRule{{Peers: "resolvers", Ports: []policy.PortRange{{Protocol: policy.UDP, First: 53, Last: 53}, {Protocol: policy.TCP, First: 53, Last: 53}}}}
	state.Peers = append(state.Peers, layout.PeerSet{Name: "resolvers", Kind: policy.PeerNetworks, Networks: []netip.Prefix{netip.PrefixFrom(resolver4, 32), netip.PrefixFrom(resolver6, 128)}})
	h.apply(state)
	expect := func(when, want string) {
		t.Helper()
		for _, r := range []netip.Addr{resolver4, resolver6} {
			for _, s := range []socket{{network: "udp"}, {unconnected: true}, {network: "tcp"}} {
				diff.Equal(t, want, h.asks(s, r, "query"), when, s, "to", r, "answers")
			}
			for _, s := range []socket{{network: "udp", mark: agentMark}, {network: "tcp", mark: agentMark}} {
				diff.Equal(t, "resolver", h.asks(s, r, "query"), when, s, "to", r, "answers")
			}
		}
		for _, a := range []netip.Addr{nodeServe4, nodeServe6} {
			for _, s := range []socket{{network: "udp", from: a}, {unconnected: true}} {
				diff.Equal(t, "agent", h.asks(s, a, "query"), when, "the agent's own question", s, "answers")
			}
		}
	}
	expect("before a heartbeat", "resolver")
	end := h.beats()
	expect("while an agent is alive", "agent")
	end()
	h.do(h.tables.Disable)
	expect("without an agent", "resolver")
	h.beats()
	// A bound socket cannot be led.
	const uplink = "out0"
	noted := func(when string, want ...layout.Unled) {
		t.Helper()
		h.do(func(ctx context.Context) error {
			got, err := h.tables.Unled(ctx)
			diff.Error(t, want, got, when, "unled")
			return err
		})
	}
	noted("before")
	for i, r := range []netip.Addr{resolver4, resolver6} {
		bound := socket{network: "tcp", device: uplink}
		if err := h.Node.Do(func() error { _, err := bound.ask(netip.AddrPortFrom(r, 53), ""); return err }); err == nil {
			t.Errorf("a bound socket connects to %s over TCP", r)
		}
		noted("over TCP", []layout.Unled{{Iface: uplink, Resolver: resolver4}, {Iface: uplink, Resolver: resolver6}}[:i+1]...)
	}
	h.pipe("flush set inet namegate nodeunled4; flush set inet namegate nodeunled6")
	noted("after a flush")
	for _, r := range []netip.Addr{resolver4, resolver6} {
		diff.Equal(t, "resolver", h.asks(socket{network: "udp", device: uplink}, r, "query"), "a bound socket to", r, "answers")
	}
	noted("over UDP", layout.Unled{Iface: uplink, Resolver: resolver4}, layout.Unled{Iface: uplink, Resolver: resolver6})
	// A mark with other bits is not the agent's.
	diff.Equal(t, "agent", h.asks(socket{network: "udp", mark: agentMark | 0x100}, resolver4, "query"), "another mark", "answers")
	h.do(func(context.Context) error { verified(t, h.tables, state); return nil })
	state.NodeDNS = nil
	h.apply(state)
	expect("without names", "resolver")
}

// TestLoopTests: a packet with a name that tests for loops is noted where a program without the
// agent's mark sends it, with the resolver that it asks, whether or not this is intercepted.
func TestLoopTests(t *testing.T) {
	t.Parallel()
	h := newNodeHost(t)
	state := full
	state.NodeDNS = nodeDNS()
	state.NodeDNS.Resolvers = nil
	h.apply(state)
	h.beats()
	packet := func(label string) string {
		return strings.Repeat("h", 12) + "\x0f" + label + "\x03abc\x00\x00\x10\x00\x01"
	}
	seen := func(rest string, want ...netip.Addr) {
		t.Helper()
		h.do(func(ctx context.Context) error {
			got, err := h.tables.LoopTested(ctx, rest)
			slices.SortFunc(got, netip.Addr.Compare)
			if !slices.Equal(got, want) {
				t.Errorf("with %s: %v, want %v", rest, got, want)
			}
			return err
		})
	}
	h.asks(socket{network: "udp", mark: agentMark}, resolver4, packet("123456700000001"))
	h.asks(socket{network: "udp"}, resolver4, packet("123456800000001"))
	h.asks(socket{network: "udp"}, resolver6, "query")
	seen("00000001")
	h.asks(socket{network: "udp"}, resolver4, packet("123456700000001"))
	h.asks(socket{network: "udp"}, resolver6, packet("123456700000002"))
	seen("00000001", resolver4)
	seen("00000002", resolver6)
	state.NodeDNS = nodeDNS()
	h.apply(state)
	diff.Equal(t, "agent", h.asks(socket{network: "udp"}, resolver4, packet("123456700000003")))
	seen("00000003", resolver4)
	h.do(func(context.Context) error { verified(t, h.tables, state); return nil })
}

// TestNodeServingIsForTheNode: a pod cannot ask on the node's behalf.
func TestNodeServingIsForTheNode(t *testing.T) {
	t.Parallel()
	h := newNodeHost(t, "a")
	state := layout.State{NodeDNS: nodeDNS()}
	for _, guarded := range []bool{false, true} {
		if guarded {
			h.apply(state)
			h.beats()
		}
		for _, a := range []netip.Addr{nodeServe4, nodeServe6} {
			c, err := h.Pod("a").Dial("udp", netip.AddrPortFrom(a, 53).String(), lab.Limit)
			fatal.If(t, err)
			_, _ = c.Write([]byte("query"))
			_ = c.SetDeadline(time.Now().Add(lab.PatienceFor(map[bool]lab.Outcome{true: lab.Silent, false: lab.Answered}[guarded])))
			if _, err := c.Read(make([]byte, 64)); (err == nil) == guarded {
				t.Errorf("guarded %v: a pod asks %s: %v", guarded, a, err)
			}
			c.Close()
		}
	}
}

// TestAnUpgradeOfNodeDNS: a later agent leads queries to itself, and the replies of the one before
// are given back as long as that serves.
func TestAnUpgradeOfNodeDNS(t *testing.T) {
	t.Parallel()
	h := newNodeHost(t)
	next4 := netip.MustParseAddr("169.254.20.71")
	fatal.If(t, h.Node.IP("addr", "add", next4.String()+"/32", "dev", "lo"))
	h.serve(h.Node, next4, "next")
	first := layout.State{NodeDNS: nodeDNS()}
	h.apply(first)
	h.beats()
	open, err := h.Node.Dial("udp", netip.AddrPortFrom(resolver4, 53).String(), lab.Limit)
	fatal.If(t, err)
	defer open.Close()
	if _, err := open.Write([]byte("held")); err != nil {
		t.Fatal(err)
	}
	var later *stateTables
	var earlier layout.Earlier
	h.do(func(ctx context.Context) error {
		later = laterAgent(t)
		earlier, err = later.ReadEarlier(ctx)
		fatal.If(t, errors.Join(err, later.Setup(ctx)))
		serving, err := later.NodeServing(ctx)
		if serving[resolver4] != nodeServe4 || len(serving) != 2 || earlier.NodeGivenBack[nodeServe6] != resolver6 {
			t.Errorf("the next agent finds %v, and %v", serving, earlier.NodeGivenBack)
		}
		return err
	})
	second := layout.State{NodeDNS: &layout.NodeDNS{Resolvers: map[netip.Addr]netip.Addr{resolver4: next4}, Predecessor: earlier.NodeGivenBack, Mark: agentMark, LoopTest: "7654321"}}
	h.do(func(ctx context.Context) error { return later.Apply(ctx, second) })
	diff.Equal(t, "next", h.asks(socket{network: "udp"}, resolver4, "query"), "a query comes to")
	h.do(func(context.Context) error { verified(t, later, second); return nil })
	close(h.held) // the agent before replies
	b := make([]byte, 64)
	_ = open.SetReadDeadline(time.Now().Add(lab.Limit))
	if n, err := open.Read(b); err != nil || string(b[:n]) != "agent" {
		t.Errorf("the reply of the agent before: %q, %v", b[:n], err)
	}
	diff.Equal(t, "resolver", h.asks(socket{network: "udp"}, resolver6, "query"), "a resolver that the next agent does not serve")
}

// TestNodeDNSIsRepaired: what another program does to it is found and repaired.
func TestNodeDNSIsRepaired(t *testing.T) {
	t.Parallel()
	s := withNode(full)
	s.NodeDNS = nodeDNS()
	tables := written(t, s)
	repaired(t, tables, s, tables.Apply, map[string]string{
		"flush chain inet namegate node-intercept":                                     "nft chain inet namegate node-intercept",
		"delete chain inet namegate node-intercept":                                    "nft chain inet namegate node-intercept",
		"insert rule inet namegate giveback accept":                                    "nft chain inet namegate giveback",
		"flush map inet namegate nodeintercept4":                                       "nft set inet namegate nodeintercept4",
		"delete element inet namegate nodeserving6 { fd5c:7a1e:93b4::1:7 }":            "nft set inet namegate nodeserving6",
		"flush set inet namegate nodelooptest":                                         "nft set inet namegate nodelooptest",
		"delete chain inet namegate node-guard":                                        "nft chain inet namegate node-guard",
		"delete element inet namegate nodegiveback4 { 169.254.20.70 : 198.51.100.53 }": "nft set inet namegate nodegiveback4",
	})
	s.NodeDNS = nil
	fatal.If(t, tables.Apply(t.Context(), s))
	verified(t, tables, s)
	if left := ruleset(t); strings.Contains(left, "type route") || strings.Contains(left, "hook postrouting priority 310") {
		t.Errorf("chains are left:\n%s", left)
	}
}
