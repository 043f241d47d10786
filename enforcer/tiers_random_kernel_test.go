package enforcer_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/short"
)

// orderedRounds is how many random lists TestOrderedRulesEqualEvaluate tries on each network:
// with 68 probes of each, a run has more than 5,000.
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

// TestOrderedRulesEqualEvaluate: random rules of pods with and without a Namespace tier
// decide packets as policy.Evaluate decides flows, dialled directly and through a Service.
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
			p.allowed = [][]string{nil, {"tcp/80 a.test", "tcp/80,tcp/5432 c.test"}}[r.IntN(2)]
			p.countByName(some(service4, service6)...)
			p.apply(egress("client", port80, "db"))
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
			for _, from := range []string{"client", "other"} {
				var v *policy.View
				for _, of := range p.snapshot.Views {
					if of.Pod.Name == from {
						v = of
					}
				}
				var probing sync.WaitGroup
				for _, flow := range flows {
					p.enter(&flow, v)
					want, by := policy.Evaluate(v, p.snapshot, &flow)
					if by != nil && by.Peer.Kind == policy.PeerNames {
						byNames++
					}
					if by != nil && by.Tier == policy.Namespace && by.Action == policy.Deny {
						byDeny++
					}
					probes++
					probing.Go(func() {
						network := probed[flow.Protocol]
						got := p.Pod(from).ProbeFor(network, flow.Dialled, lab.Patience)
						if got != lab.Answered && want { // a busy machine gets more time
							got = p.Pod(from).ProbeFor(network, flow.Dialled, lab.Limit)
						}
						if (got == lab.Answered) != want {
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
			}
		}
		if byNames < 10 || byDeny < 10 {
			t.Errorf("%d flows were decided by names, %d by denies of the Namespace tier: the test does not see them", byNames, byDeny)
		}
		t.Logf("%d probes, %d decided by names", probes, byNames)
	})
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
