package enforcer_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/short"
)

// orderedRounds is how many random lists TestOrderedRulesEqualEvaluate tries on each network:
// with 78 probes of each, a run has more than 5,000.
const orderedRounds = 37

// probed are the networks of probes.
var probed = map[policy.Protocol]string{policy.TCP: "tcp", policy.UDP: "udp", 1: "icmp", 58: "icmp"}

// icmpOf is the protocol of pings to an address.
func icmpOf(a netip.Addr) policy.Protocol {
	if a.Is6() {
		return 58
	}
	return 1
}

// untracked exempts a port from connection tracking.
const untracked = "table inet bare { chain c { type filter hook prerouting priority -300; th dport 82 notrack; th sport 82 notrack; }; }"

// opened is a connection of a pod.
type opened struct {
	net.Conn
	from string
	flow policy.Flow
}

// TestOrderedRulesEqualEvaluate: random rules of pods with and without a Namespace tier
// decide packets as policy.Evaluate decides flows, dialled directly and through a Service, and
// untracked. Connections go on as policy.Keeps says.
func TestOrderedRulesEqualEvaluate(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		byNames, byDeny, probes := 0, 0, 0
		db, other, client := p.Pod("db"), p.Pod("other"), p.Pod("client")
		outside4, outside6 := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:1::1")
		var flows []policy.Flow
		for _, a := range []netip.Addr{db.Addr4, db.Addr6, other.Addr4, other.Addr6, client.Addr4, client.Addr6, outside4, outside6} {
			for _, to := range []struct {
				over policy.Protocol
				port uint16
			}{{policy.TCP, 80}, {policy.TCP, 81}, {policy.UDP, 80}, {icmpOf(a), 0}} {
				at := netip.AddrPortFrom(a, to.port)
				flows = append(flows, policy.Flow{Protocol: to.over, Dialled: at, Reached: at})
			}
		}
		for service, to := range map[netip.Addr]netip.Addr{service4: db.Addr4, service6: db.Addr6} {
			flows = append(flows, policy.Flow{Protocol: policy.TCP, Dialled: netip.AddrPortFrom(service, 5432), Reached: netip.AddrPortFrom(to, 80)})
		}
		fatal.If(t, p.Node.Pipe(untracked, "nft", "-f", "-"))
		for _, a := range []netip.Addr{db.Addr4, db.Addr6, outside4, outside6} {
			at := netip.AddrPortFrom(a, 82)
			flows = append(flows, policy.Flow{Protocol: policy.UDP, Dialled: at, Reached: at}, policy.Flow{Protocol: policy.TCP, Dialled: at, Reached: at})
		}
		netpols := [][]*networkingv1.NetworkPolicy{
			nil, {egress("client", port80, "db")}, {egress("client", http, "db", "other")}, {egress("client", port80, db.Addr4.String()+"/32", db.Addr6.String()+"/128")},
			{egress("client", intstr.IntOrString{}, "0.0.0.0/0")}, {egress("client", intstr.IntOrString{})},
		}
		var open []*opened
		pods := policy.Peer{Kind: policy.PeerPods, Key: "pods"}
		networks := policy.Peer{Kind: policy.PeerNetworks, Key: "networks"}
		named := policy.Peer{Kind: policy.PeerPorts, Key: "named"}
		some := func(all ...netip.Addr) (out []netip.Addr) {
			for _, a := range all {
				if r.IntN(2) == 0 {
					out = append(out, a)
				}
			}
			slices.SortFunc(out, netip.Addr.Compare)
			return out
		}
		rules := func() (out []*policy.Rule) {
			for range r.IntN(5) {
				rule := &policy.Rule{
					Tier: []policy.Tier{policy.Admin, policy.Baseline}[r.IntN(2)], Action: policy.Action(r.IntN(3)), Peer: []policy.Peer{{}, pods, networks, named}[r.IntN(4)],
					Ports:  []policy.PortSet{policy.AnyPort, "tcp", "tcp/80", "tcp/79-81", "tcp/81", "udp", "tcp/443,tcp/5432"}[r.IntN(7)],
					Denied: policy.Denied(r.IntN(2)), Broken: r.IntN(20) == 0, Audit: r.IntN(8) == 0, Policy: "cluster",
				}
				if r.IntN(2) == 0 {
					names := []string{[]string{"a.test", "b.test"}[r.IntN(2)], []string{"b.test", "c.test", "*.test"}[r.IntN(3)]}
					rule = byName(rule.Tier, rule.Action, rule.Ports, fmt.Sprint(len(out)), names...)
					rule.DNSDenied, rule.Denied = policy.Unmatched(r.IntN(3)), policy.Denied(r.IntN(2))
				}
				out = append(out, rule)
			}
			return out
		}
		rounds := short.Rounds(orderedRounds, orderedRounds, 10*orderedRounds)
		for round := 0; round < rounds || (byNames < 10 || byDeny < 10) && round < 10*rounds; round++ {
			var prefixes []netip.Prefix
			for _, a := range some(outside4, outside6, db.Addr4, other.Addr6) {
				prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
			}
			var ports []policy.PeerPort
			for _, a := range some(db.Addr4, db.Addr6, other.Addr4, other.Addr6) {
				ports = append(ports, policy.PeerPort{Addr: a, Protocol: policy.TCP, Port: 80})
			}
			p.peerSets = []*policy.PeerSet{{Peer: pods, Addrs: some(db.Addr4, db.Addr6, other.Addr4, other.Addr6)}, {Peer: networks, Networks: prefixes}, {Peer: named, Ports: ports}}
			p.ordered = map[string][]*policy.Rule{"client": rules(), "other": rules()}
			p.labels["client"] = []string{"gated client", "client"}[r.IntN(2)]
			if p.labels["client"] == "gated client" && r.IntN(2) == 0 {
				p.ordered["client"] = append(p.ordered["client"], &policy.Rule{
					Action: policy.Deny, Ports: []policy.PortSet{"tcp/80,udp/80", "tcp/81", "udp"}[r.IntN(3)], Denied: policy.Denied(r.IntN(2)), Audit: r.IntN(8) == 0, Policy: "shop/gated",
				})
			}
			p.labels["db"], p.labels["other"] = []string{"db", "", "db"}[r.IntN(3)], []string{"other", "other db"}[r.IntN(2)]
			p.netpols = netpols[r.IntN(len(netpols))]
			p.allowed = [][]string{nil, {"tcp/80 a.test", "tcp/80,tcp/5432 c.test"}, {"udp/80-82,tcp/81 b.test", "any c.test"}}[r.IntN(3)]
			p.countByName(some(service4, service6)...)
			p.apply()
			open = p.kept(fmt.Sprint("in round ", round), open)
			for range 8 {
				from, name := []string{"client", "other"}[r.IntN(2)], []string{"a.test", "b.test", "c.test"}[r.IntN(3)]
				for _, g := range p.answer(from, name, some(service4, service6, db.Addr4, db.Addr6, other.Addr4, other.Addr6, outside4, outside6)...) {
					for _, a := range g.Addrs {
						if !slices.ContainsFunc(p.e.Grants().NamesOf(g.Pod, a), func(i policy.GrantInfo) bool { return i.Rule == g.Rule && i.Ports == g.Ports && i.Name == g.Name }) {
							t.Errorf("%s of %s is not entered for %q", a, name, g.Rule)
						}
					}
				}
			}
			p.forgetDatagrams()
			for _, from := range []string{"client", "other"} {
				v := p.view(from)
				var probing sync.WaitGroup
				for _, i := range r.Perm(len(flows)) {
					flow := flows[i]
					p.enter(&flow, v)
					want, by := policy.Evaluate(v, p.snapshot, &flow)
					if by != nil && by.Peer.Kind == policy.PeerNames {
						byNames++
					}
					if by != nil && by.Tier == policy.Namespace && by.Action == policy.Deny {
						byDeny++
					}
					if probes++; want && flow.Protocol == policy.TCP && flow.Dialled == flow.Reached && flow.Dialled.Port() != 82 && len(open) < 8 {
						open = append(open, &opened{p.dial(from, flow.Dialled.Addr(), flow.Dialled.Port()), from, flow})
					}
					refused := !want && by != nil && !by.Broken && by.Denied == policy.Reject && flow.Protocol == policy.TCP
					probing.Go(func() {
						network := probed[flow.Protocol]
						got := p.Pod(from).ProbeFor(network, flow.Dialled, lab.Patience)
						if got != lab.Answered && want || got == lab.Silent && refused { // a busy machine gets more time
							got = p.Pod(from).ProbeFor(network, flow.Dialled, lab.Limit)
						}
						if (got == lab.Answered) != want || refused && got != lab.Refused {
							t.Errorf("%s to %s over %s: %s, and Evaluate says %v by %+v of %+v", from, flow.Dialled, network, got, want, by, v)
						}
					})
				}
				probing.Wait()
			}
			if t.Failed() {
				return
			}
			if r.IntN(4) == 0 {
				p.restart()
				for _, c := range open {
					p.goOn("before the first snapshot of the next agent", true, c)
				}
			}
		}
		p.ordered, p.netpols, p.allowed = nil, nil, nil
		p.apply()
		if sets, err := p.Node.Run("nft", "list", "sets", "inet"); err != nil || strings.Contains(sets, "peers-") || strings.Contains(sets, "entries-") {
			t.Errorf("sets are left: %v, %v", sets, err)
		}
		if byNames < 10 || byDeny < 10 {
			t.Errorf("%d flows were decided by names, %d by denies of the Namespace tier: the test does not see them", byNames, byDeny)
		}
		t.Logf("%d probes, %d decided by names", probes, byNames)
	})
}

// kept asserts which connections go on, and returns those, at most five: that others can be opened.
func (p *peering) kept(when string, open []*opened) (out []*opened) {
	p.t.Helper()
	for _, c := range open {
		f := c.flow
		p.enter(&f, p.view(c.from))
		keeps := policy.Keeps(p.view(c.from), p.snapshot, &f)
		if p.goOn(fmt.Sprintf("%s, from %s to %s", when, c.from, f.Dialled), keeps, c); keeps && len(out) < 5 {
			out = append(out, c)
		} else {
			c.Close()
		}
	}
	return out
}

// forgetDatagrams ends the connections of earlier probes without a handshake. A probe may have the
// port of one, and the entry of a Deny that came since cuts no connection.
func (p *peering) forgetDatagrams() {
	_, err := p.Node.Run("sh", "-c", "conntrack -D -p udp; conntrack -D -p icmp; conntrack -D -f ipv6 -p udp; conntrack -D -f ipv6 -p icmpv6; true")
	fatal.If(p.t, err)
}

// enter adds the live entries of the grants to a flow of a view's pod.
func (p *peering) enter(f *policy.Flow, v *policy.View) {
	f.ByName = slices.Contains(p.services, f.Dialled.Addr())
	if v == nil {
		return
	}
	for _, g := range p.e.Grants().NamesOf(v.Pod.PodRef, f.Dialled.Addr()) {
		if g.Until.Before(time.Now()) {
			continue
		}
		f.EnterGrant(v, &g)
	}
}
