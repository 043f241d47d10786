package enforcer_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestServerNames: what only rules with ServerName allow is led to the relay, which accepts nothing else. Without such
// rules the tables are as before.
func TestServerNames(t *testing.T) {
	t.Parallel()
	for name, tier := range map[string]policy.Tier{"Admin": policy.Admin, "Namespace": policy.Namespace, "Baseline": policy.Baseline} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachPeering(t, func(t *testing.T, p *peering) { p.serverNames(t, tier) })
		})
	}
}

func (p *peering) serverNames(t *testing.T, tier policy.Tier) {
	outside := outsides(1)
	if tier == policy.Baseline {
		p.labels["client"] = "client" // there is no Namespace tier
	}
	p.ordered = map[string][]*policy.Rule{"client": {}}
	p.apply()
	chains := func() string {
		out, err := p.Node.Run("nft", "list", "chains", "inet")
		fatal.If(t, err)
		return out
	}
	before := chains()
	p.serveRelay()
	rule := checked(tier, "tcp/80", "checked", "a.test", "b.test")
	p.ordered["client"] = []*policy.Rule{rule}
	if tier == policy.Baseline {
		p.ordered["client"] = append(p.ordered["client"], &policy.Rule{Tier: tier, Action: policy.Deny, Ports: policy.AnyPort, Policy: "cluster"})
	}
	p.apply()
	assigned, inForce := p.e.Interception().Relays()
	diff.Equal(t, len(assigned), len(inForce), "relays in force")
	p.silent("before an answer", assigned...)
	p.answer("client", "a.test", outside...)
	for _, a := range outside {
		to := netip.AddrPortFrom(a, 80)
		p.leads("granted", "client", to, true)
		p.leads("of another pod", "other", to, false)
		p.expect("client", a, 81, lab.Refused)
		source := p.Pod("client").Addr4
		if a.Is6() {
			source = p.Pod("client").Addr6
		}
		for name, want := range map[fqdn.Name]policy.Verdict{"": policy.CheckFlow, policytest.Name("A.test"): policy.CheckFlow, policytest.Name("b.test"): policy.DenyFlow} {
			if d := p.egress(source, to, name); d.Verdict != want || d.Pod != p.view("client").Pod.PodRef || d.By != rule {
				t.Errorf("%s to %s with %q: %+v", source, to, name, d)
			}
		}
		if d := p.egress(source, netip.AddrPortFrom(a, 81), ""); d.Verdict != policy.DenyFlow {
			t.Errorf("another port: %+v", d)
		}
		if d := p.egress(uplinks[0], to, ""); d.Verdict != policy.DenyFlow || d.Pod != (policy.PodRef{}) {
			t.Errorf("of no pod: %+v", d)
		}
	}
	p.silent("granted", assigned...)
	// Another program leads connections to the relay that are of no entry.
	elsewhere := netip.MustParseAddrPort("198.51.100.9:80")
	fatal.If(t, p.Node.Pipe("table ip other { chain pre { type nat hook prerouting priority -100; ip daddr "+elsewhere.Addr().String()+" tcp dport 80 dnat to "+assigned[0].String()+"; }; }", "nft", "-f", "-"))
	for _, pod := range []string{"client", "other"} {
		diff.Equal(t, lab.Silent, p.Pod(pod).Probe("tcp", elsewhere), pod, "led to the relay by another program")
	}
	_, err := p.Node.Run("nft", "delete", "table", "ip", "other")
	fatal.If(t, err)
	list, err := p.Node.Run("nft", "list", "table", "inet", layout.TableName)
	fatal.If(t, err)
	if strings.Count(list, `comment "connections whose TLS server name is checked"`) != 4 {
		t.Errorf("chains without a comment:\n%s", list)
	}
	p.relay.close()
	for _, a := range outside {
		diff.Equal(t, lab.Refused, p.Pod("client").ProbeFor("tcp", netip.AddrPortFrom(a, 80), lab.Limit), "without a relay")
	}
	p.silent("without a relay", assigned...)
	p.restart()
	p.silent("of the next agent", assigned...)
	p.apply()
	p.answer("client", "a.test", outside...)
	now, _ := p.e.Interception().Relays()
	p.leads("by the next agent", "client", netip.AddrPortFrom(outside[0], 80), true)
	p.silent("of both agents", append(slices.Clone(assigned), now...)...)
	p.ordered["client"], p.relay = nil, nil
	p.apply()
	p.countByName(p.services...)
	p.e.Interception().GiveBack()
	p.reconcile()
	diff.Error(t, before, chains(), "without rules")
}

// dialled is what becomes of a connection that the relay dials from a port of the node. told: Dialling was called.
func (p *peering) dialled(port uint16, to netip.AddrPort, told bool) lab.Outcome {
	p.t.Helper()
	local := netip.AddrPortFrom(netip.IPv4Unspecified(), port)
	if to.Addr().Is6() {
		local = netip.AddrPortFrom(netip.IPv6Unspecified(), port)
	}
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(local), Timeout: lab.Patience, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			fatal.If(p.t, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(p.e.RelayMark())))
		})
	}}
	var c net.Conn
	fatal.If(p.t, p.Node.Do(func() error {
		if told {
			fatal.If(p.t, p.e.Dialling(context.Background(), local, to))
		}
		c, _ = d.Dial("tcp", to.String())
		return nil
	}))
	if c == nil {
		return lab.Silent
	}
	defer func() { _ = c.(*net.TCPConn).SetLinger(0); c.Close() }()
	return lab.Echo(c, lab.Limit)
}

// TestWhatTheRelayDials: the node's rules judge it as what the node forwards, by the interface that it leaves by, and not as
// what the node sends. It goes to what it dials alone.
func TestWhatTheRelayDials(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		p.nodePeering(t)
		p.serveRelay()
		p.apply()
		port := uint16(20000)
		is := func(when string, want lab.Outcome, told bool, to ...netip.AddrPort) {
			t.Helper()
			for _, at := range to {
				port++
				if got := p.dialled(port, at, told); got != want {
					t.Errorf("%s, told %v: to %s: %s", when, told, at, got)
				}
			}
		}
		var outside, other []netip.AddrPort
		for _, a := range outsides(1) {
			outside, other = append(outside, netip.AddrPortFrom(a, 80)), append(other, netip.AddrPortFrom(a, 81))
		}
		services := []netip.AddrPort{netip.AddrPortFrom(service4, 5432), netip.AddrPortFrom(service6, 5432)}
		is("without rules of the node", lab.Answered, true, outside...)
		is("led elsewhere by another program", lab.Silent, true, services...)
		if list, err := p.Node.Run("nft", "list", "set", "inet", "namegate", "dialling4"); err != nil || strings.Contains(list, "elements") {
			t.Errorf("written without rules of the node: %s, %v", list, err)
		}
		deny := nodeRule(policy.Forwarded, false, policy.Deny, "tcp/81")
		deny.Interfaces = []string{"out0"}
		elsewhere := nodeRule(policy.Forwarded, false, policy.Deny, "tcp/80")
		elsewhere.Interfaces = []string{"other*"}
		p.closeNode([]*policy.Rule{deny, elsewhere}, policy.Local)
		is("on a closed node", lab.Answered, true, outside...)
		is("on a closed node", lab.Silent, true, other...)
		is("on a closed node", lab.Silent, true, services...)
		is("on a closed node", lab.Silent, false, outside...)
		began := time.Now()
		const writes = 200
		for i := range uint16(writes) {
			fatal.If(t, p.Node.Do(func() error {
				return p.e.Dialling(context.Background(), netip.AddrPortFrom(netip.IPv4Unspecified(), 30000+i), outside[0])
			}))
		}
		t.Logf("Dialling takes %v", time.Since(began)/writes)
		p.nodeRules = []*policy.Rule{deny}
		p.apply()
		is("with rules for what is forwarded alone", lab.Answered, true, outside...)
		is("with rules for what is forwarded alone", lab.Silent, true, other...)
		is("with rules for what is forwarded alone", lab.Answered, false, other...)
	})
}

// TestRelayedConnectionsAtAHandOver: connections to the relay of an agent go on under the next, which leads new ones to its
// own, and the address goes with the last of them. What takes the right away cuts them.
func TestRelayedConnectionsAtAHandOver(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		outside, client := outsides(1), p.Pod("client")
		p.serveRelay()
		rule := checked(policy.Namespace, "tcp/80", "checked", "a.test")
		p.ordered = map[string][]*policy.Rule{"client": {rule}}
		p.apply()
		p.answer("client", "a.test", outside...)
		open := []net.Conn{p.dial("client", outside[0], 80), p.dial("client", outside[1], 80)}
		before, _ := p.e.Interception().Relays()
		flows, err := p.flows.Flows(conntrack.Query{Sources: []netip.Addr{client.Addr4, client.Addr6}, Mark: enforcer.DefaultMark, Mask: enforcer.DefaultMark})
		for _, f := range flows {
			if !slices.Contains(before, f.Peer) || !slices.Contains(outside, f.Dst.Addr()) {
				t.Errorf("%s is led to %s", f.Dst, f.Peer)
			}
		}
		diff.Equal(t, 2, len(flows), "admitted connections", err)
		p.restart()
		p.goOn("before the next agent's first snapshot", true, open...)
		p.apply()
		p.reconcile()
		p.goOn("under the next agent", true, open...)
		p.answer("client", "a.test", outside...)
		p.leads("by the next agent", "client", netip.AddrPortFrom(outside[0], 80), true)
		p.silent("of both agents", append(slices.Clone(before), p.relays()...)...)
		for _, c := range open {
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
		has := func() bool {
			out, err := p.Node.Run("ip", "address")
			fatal.If(t, err)
			return strings.Contains(out, " "+before[0].Addr().String()+"/") || strings.Contains(out, " "+before[1].Addr().String()+"/")
		}
		if !has() {
			t.Error("an address that is in use is gone")
		}
		fatal.Await(t, "the end of the last agent's addresses", func() bool { p.reconcile(); return !has() })
		p.goOn("just opened", true, p.dial("client", outside[0], 80))
		last := p.dial("client", outside[1], 80)
		p.ordered["client"] = []*policy.Rule{{Tier: policy.Admin, Action: policy.Deny, Ports: "tcp/80", Policy: "cluster"}, rule}
		p.apply()
		p.goOn("denied by an administrator", false, last)
	})
}

// relays are where the present agent's relay is.
func (p *peering) relays() []netip.AddrPort {
	all, _ := p.e.Interception().Relays()
	return all
}
