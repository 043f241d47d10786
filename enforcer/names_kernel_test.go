package enforcer_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// outsides are addresses outside of the cluster, of both families, the nth of each.
func outsides(n byte) []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, n}), netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 0, 1, 15: n})}
}

// probes asserts what packets of the client come to, on a port of addresses.
func (p *peering) probes(when, network string, want lab.Outcome, port uint16, to ...netip.Addr) {
	p.t.Helper()
	for _, a := range to {
		if got := p.Pod("client").ProbeFor(network, netip.AddrPortFrom(a, port), lab.PatienceFor(want)); got != want {
			p.t.Errorf("%s: %s to %s port %d: %s, want %s", when, network, a, port, got, want)
		}
	}
}

// TestNamesOnTheKernel: an address is open on the ports of its name alone, as dialled, to the
// pod that asked, until its deadline or until no policy allows it.
func TestNamesOnTheKernel(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		p.allowed = []string{"tcp/80 one.test", "tcp/81 other.test", "udp/80-81,tcp/81 wide.test", "any any.test", "tcp/5432 service.test", "udp/82 bare.test"}
		p.apply()
		single, other, wide, everything := outsides(1), outsides(2), outsides(3), outsides(4)
		p.probes("before an answer", "tcp", lab.Refused, 80, slices.Concat(single, wide, everything)...)
		p.answer("client", "one.test", single...)
		p.answer("client", "other.test", slices.Concat(single[:1], other)...)
		p.answer("client", "wide.test", wide...)
		p.answer("client", "any.test", everything...)
		p.answer("client", "service.test", service4, service6)
		expect := func(when string) {
			t.Helper()
			p.probes(when, "tcp", lab.Answered, 80, slices.Concat(single, everything)...)
			p.probes(when, "tcp", lab.Answered, 81, slices.Concat(single[:1], other, wide, everything)...)
			p.probes(when, "udp", lab.Answered, 81, slices.Concat(wide, everything)...)
			p.probes(when, "icmp", lab.Answered, 0, everything...)
			p.probes(when, "tcp", lab.Answered, 5432, service4, service6)
			p.probes(when, "tcp", lab.Refused, 80, slices.Concat(other, wide)...)
			p.probes(when, "tcp", lab.Refused, 81, single[1])
			p.probes(when, "udp", lab.Refused, 80, slices.Concat(single, other)...)
			p.probes(when, "icmp", lab.Silent, 0, single[0], wide[0])
			p.probes(when, "tcp", lab.Refused, 80, p.Pod("db").Addr4, p.Pod("db").Addr6) // what the Service leads to
		}
		expect("granted")
		stays := []net.Conn{p.open("client", single[0], 80), p.open("client", single[1], 80)}
		cut := []net.Conn{p.open("client", single[0], 81), p.open("client", other[1], 81)}
		n := p.e.Grants().Count()
		p.restart()
		p.apply()
		expect("after a restart")
		if got := p.e.Grants().Count(); got != n {
			t.Errorf("%d grants after a restart, want %d", got, n)
		}
		// One port of a pod goes, which has others.
		p.allowed = slices.DeleteFunc(p.allowed, func(rule string) bool { return strings.Contains(rule, "other.test") })
		p.apply()
		p.probes("taken back", "tcp", lab.Refused, 81, slices.Concat(single[:1], other)...)
		p.probes("not taken back", "tcp", lab.Answered, 80, single...)
		for _, c := range cut {
			p.goesOn("taken back", c, false)
		}
		for _, c := range stays {
			p.goesOn("not taken back", c, true)
		}
		p.allowed = append(p.allowed, "tcp/81 other.test")
		p.apply()
		p.probes("allowed and not asked again", "tcp", lab.Refused, 81, slices.Concat(single[:1], other)...)
	})
}

// TestNamesOfUntrackedPackets: another program exempts a port from connection tracking.
func TestNamesOfUntrackedPackets(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		const bare = "table inet bare { chain c { type filter hook prerouting priority -300; udp dport 81 notrack; udp sport 81 notrack; }; }"
		fatal.If(t, p.Node.Pipe(bare, "nft", "-f", "-"))
		p.allowed = []string{"udp/81 one.test", "udp/80-81 wide.test", "any any.test"}
		p.apply()
		p.answer("client", "one.test", outsides(1)...)
		p.answer("client", "wide.test", outsides(2)...)
		p.answer("client", "any.test", outsides(3)...)
		p.probes("granted", "udp", lab.Answered, 81, slices.Concat(outsides(1), outsides(2), outsides(3))...)
		p.probes("not granted", "udp", lab.Refused, 81, outsides(4)...)
	})
}

// TestLostTables: while a table of ours is gone nothing opens, what is open goes on as far as
// the other net asks, and all comes back.
func TestLostTables(t *testing.T) {
	t.Parallel()
	for _, network := range networks {
		for what, commands := range map[string][]string{
			"first table":  {"delete table inet namegate"},
			"bridge table": {"delete table bridge namegate"},
			"second net":   {"delete table inet namegate-net"},
			"both nets":    {"flush set inet namegate-net selected4", "flush chain inet namegate judge"},
			"subjects":     {"flush map inet namegate pods4", "flush map inet namegate pods6"},
			"grants":       {"flush ruleset"},
		} {
			t.Run(string(network)+"/"+what, func(t *testing.T) {
				t.Parallel()
				p := newPeering(t, nftablesPlane, network)
				p.allowed = []string{"tcp/80 one.test", "tcp/80-81 wide.test"}
				p.apply()
				p.answer("client", "one.test", outsides(1)...)
				p.answer("client", "wide.test", outsides(2)...)
				granted := slices.Concat(outsides(1), outsides(2))
				p.probes("at first", "tcp", lab.Answered, 80, granted...)
				c := p.open("client", granted[0], 80)
				for _, command := range commands {
					_, err := p.Node.Run("nft", strings.Fields(command)...)
					fatal.If(t, err)
				}
				switch what {
				case "first table":
					p.probes("lost", "tcp", lab.Silent, 80, outsides(3)...)
					p.probes("lost, granted", "tcp", lab.Silent, 80, granted[0])
					p.goesOn("lost", c, true)
				case "second net", "bridge table":
					p.probes("lost", "tcp", lab.Refused, 80, outsides(3)...)
					p.probes("lost, granted", "tcp", lab.Answered, 80, granted...)
					p.goesOn("lost", c, true)
				}
				p.reconcile()
				p.probes("restored", "tcp", lab.Refused, 80, outsides(3)...)
				p.probes("restored, granted", "tcp", lab.Answered, 80, granted...)
				p.probes("restored, granted", "tcp", lab.Answered, 81, outsides(2)...)
				p.goesOn("restored", c, true)
				if d := p.e.Deviations(); len(d) != 0 {
					t.Errorf("deviations: %v", d)
				}
			})
		}
	}
}
