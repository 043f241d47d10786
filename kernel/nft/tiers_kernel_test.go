package nft_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
)

// finder is a program that finds candidates in place of the iptables chains: everything to
// the last address 2, and to the last address 1 and 20 on all ports.
const finder = `
table inet finder { chain c { type filter hook prerouting priority -150;
	ip daddr { 198.51.100.1, 198.51.100.2, 198.51.100.20 } ct direction original meta mark set meta mark | 0x20 ct mark set ct mark | 0x20
	ip6 daddr { 2001:db8:1::1, 2001:db8:1::2, 2001:db8:1::14 } ct direction original meta mark set meta mark | 0x20 ct mark set ct mark | 0x20
}
}`

// TestTiersDecidePackets: the tiers are asked in order, and the first rule that matches
// decides. A candidate counts in the Namespace tier alone.
func TestTiersDecidePackets(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Fatal("this test asks the kernel: run it as root")
	}
	for _, network := range []lab.Network{lab.Routed, lab.Bridged} {
		t.Run(fmt.Sprint(network), func(t *testing.T) {
			t.Parallel()
			l, err := lab.New(network)
			fatal.If(t, err)
			t.Cleanup(func() { _ = l.Remove() })
			s := nft.State{DNS: []netip.Addr{lab.Resolver4, lab.Resolver6}, Peers: []nft.PeerSet{
				{Name: "one", Kind: nft.PeerAddrs, Addrs: []netip.Addr{worldAddr(1, false), worldAddr(1, true)}},
				{Name: "near", Kind: nft.PeerNetworks, Networks: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/28"), netip.MustParsePrefix("2001:db8:1::/124")}},
				{Name: "named", Kind: nft.PeerPorts, Ports: []nft.PeerPort{{Addr: worldAddr(21, false), Protocol: "tcp", Port: 81}, {Addr: worldAddr(21, true), Protocol: "tcp", Port: 81}}},
			}}
			tcp := func(port uint16) []nft.PortRange { return []nft.PortRange{{Protocol: "tcp", First: port, Last: port}} }
			admin := []*nft.TierRule{
				{Peers: "one", Ports: tcp(80), Action: nft.Accept}, {Peers: "one", Action: nft.Reject}, {Peers: "near", Action: nft.Pass},
				{Peers: "named", Action: nft.Accept}, {Ports: tcp(8080), Action: nft.Drop},
			}
			for i, tiers := range []nft.Tiers{
				{ID: "a", Admin: admin, Namespace: true, Baseline: []*nft.TierRule{{Action: nft.Accept}}},
				{ID: "b", Admin: admin, Baseline: []*nft.TierRule{{Peers: "near", Ports: tcp(81), Action: nft.Reject}, {Peers: "near", Action: nft.Pass}, {Action: nft.Drop}}},
				{ID: "c", Admin: []*nft.TierRule{{Action: nft.Reject}}, DNS: true},
				{ID: "d", Admin: []*nft.TierRule{{Action: nft.Reject}}},
			} {
				p, err := l.AddPod(tiers.ID, 5+i)
				fatal.If(t, err)
				tiers.Subjects = []netip.Addr{p.Addr4, p.Addr6}
				s.Selected, s.Pods, s.Tiers = append(s.Selected, tiers.Subjects...), append(s.Pods, tiers.Subjects), append(s.Tiers, tiers)
			}
			outside, err := l.ServeWorld(nil, 80, 81, 8080)
			fatal.If(t, err)
			t.Cleanup(outside.Close)
			fatal.If(t, l.Ready())
			var tables *nft.Tables
			fatal.If(t, l.Node.Do(func() error {
				other := exec.Command("nft", "-f", "-")
				other.Stdin = strings.NewReader(finder)
				if out, err := other.CombinedOutput(); err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				var err error
				if tables, err = nft.Open(bits); err == nil {
					err = tables.Setup(context.Background())
				}
				if err == nil {
					err = tables.Apply(context.Background(), s)
				}
				return err
			}))
			for _, test := range []struct {
				pod  string
				last byte
				port uint16
				want lab.Outcome
				by   string
			}{
				{"a", 1, 80, lab.Answered, "an Admin rule accepts"},
				{"a", 1, 81, lab.Refused, "an Admin rule denies a candidate"},
				{"a", 2, 80, lab.Answered, "passed, and a candidate"},
				{"a", 2, 8080, lab.Answered, "passed before the rule that denies"},
				{"a", 3, 80, lab.Refused, "passed, and no candidate: Baseline is not asked"},
				{"a", 20, 80, lab.Answered, "no rule matches a candidate"},
				{"a", 20, 8080, lab.Silent, "an Admin rule drops a candidate"},
				{"a", 21, 81, lab.Answered, "an Admin rule accepts a port of an address"},
				{"a", 21, 80, lab.Refused, "no rule, and no candidate"},
				{"b", 1, 80, lab.Answered, "an Admin rule accepts"},
				{"b", 1, 81, lab.Refused, "an Admin rule denies"},
				{"b", 3, 80, lab.Answered, "passed by both tiers"},
				{"b", 3, 81, lab.Refused, "a Baseline rule denies"},
				{"b", 20, 80, lab.Silent, "a Baseline rule drops, whatever is a candidate"},
				{"b", 21, 81, lab.Answered, "an Admin rule accepts a port of an address"},
				{"c", 2, 80, lab.Refused, "an Admin rule denies everything"},
			} {
				for _, v6 := range []bool{false, true} {
					to := netip.AddrPortFrom(worldAddr(test.last, v6), test.port)
					if got := l.Pod(test.pod).ProbeFor("tcp", to, lab.PatienceFor(test.want)); got != test.want {
						t.Errorf("pod %s to %s: %s, want %s: %s", test.pod, to, got, test.want, test.by)
					}
				}
			}
			// No rule denies DNS that comes before them: the resolver takes the connection.
			for _, a := range s.DNS {
				conn, err := l.Pod("c").Dial("tcp", netip.AddrPortFrom(a, 53).String(), lab.Limit)
				fatal.If(t, err)
				conn.Close()
				if got := l.Pod("c").ProbeFor("tcp", netip.AddrPortFrom(a, 80), lab.Limit); got != lab.Refused {
					t.Errorf("another port of the resolver %s: %s", a, got)
				}
				if got := l.Pod("d").ProbeFor("tcp", netip.AddrPortFrom(a, 53), lab.Limit); got != lab.Refused {
					t.Errorf("the resolver %s, where the rules come first: %s", a, got)
				}
			}
			// An agent that serves in the resolver's place takes every query.
			s.Intercepted, s.Known, s.Serving = s.Pods[3], s.Pods[3], []netip.Addr{netip.MustParseAddr("169.254.20.64"), netip.MustParseAddr("fd5c:7a1e:93b4::64")}
			dialled := []netip.Addr{worldAddr(99, false), worldAddr(99, true)}
			s.Resolvers = map[netip.Addr]netip.Addr{}
			for i, a := range s.Serving {
				s.Resolvers[dialled[i]] = a
				fatal.If(t, l.Node.IP("addr", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", "lo", "nodad"))
			}
			agent, err := l.Node.Serve(53, 80)
			fatal.If(t, err)
			t.Cleanup(agent.Close)
			fatal.If(t, l.Node.Do(func() error {
				return errors.Join(tables.Apply(context.Background(), s), tables.Heartbeat(context.Background()))
			}))
			for _, a := range dialled {
				conn, err := l.Pod("d").Dial("tcp", netip.AddrPortFrom(a, 53).String(), lab.Limit)
				fatal.If(t, err)
				conn.Close()
			}
			for _, a := range s.Serving {
				if got := l.Pod("d").ProbeFor("tcp", netip.AddrPortFrom(a, 80), lab.Limit); got != lab.Refused {
					t.Errorf("another port of the agent's address %s: %s", a, got)
				}
			}
		})
	}
}

// worldAddr is an address of the world.
func worldAddr(last byte, v6 bool) netip.Addr {
	if v6 {
		return netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 0, 1, 15: last})
	}
	return netip.AddrFrom4([4]byte{198, 51, 100, last})
}
