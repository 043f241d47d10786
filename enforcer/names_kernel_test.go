package enforcer_test

import (
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
				c := p.dial("client", granted[0], 80)
				for _, command := range commands {
					_, err := p.Node.Run("nft", strings.Fields(command)...)
					fatal.If(t, err)
				}
				switch what {
				case "first table":
					p.probes("lost", "tcp", lab.Silent, 80, outsides(3)...)
					p.probes("lost, granted", "tcp", lab.Silent, 80, granted[0])
					p.goOn("lost", true, c)
				case "second net", "bridge table":
					p.probes("lost", "tcp", lab.Refused, 80, outsides(3)...)
					p.probes("lost, granted", "tcp", lab.Answered, 80, granted...)
					p.goOn("lost", true, c)
				}
				p.reconcile()
				p.probes("restored", "tcp", lab.Refused, 80, outsides(3)...)
				p.probes("restored, granted", "tcp", lab.Answered, 80, granted...)
				p.probes("restored, granted", "tcp", lab.Answered, 81, outsides(2)...)
				p.goOn("restored", true, c)
				if d := p.e.Deviations(); len(d) != 0 {
					t.Errorf("deviations: %v", d)
				}
			})
		}
	}
}
