package enforcer_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// nodeRounds is how many random lists TestTheNodesPacketsEqualEvaluate tries on each network and
// with each dataplane.
const nodeRounds = 16

// nodeProbe is a connection of a host, from an address that it has, or any. pod is the host's name, "" of others.
type nodeProbe struct {
	*lab.Host
	pod  string
	from netip.Addr
	policy.Flow
}

// answered tells whether a probe is answered. A busy machine gets more time where it should be.
func (of *nodeProbe) answered(want bool) bool {
	try := func(patience time.Duration) lab.Outcome {
		network := probed[of.Protocol]
		if !of.from.IsValid() {
			return of.ProbeFor(network, of.Dialled, patience)
		}
		c, err := of.DialFrom(network, netip.AddrPortFrom(of.from, 0).String(), of.Dialled.String(), patience)
		if err != nil {
			return lab.Silent
		}
		defer c.Close()
		return lab.Echo(c, patience)
	}
	return try(lab.Patience) == lab.Answered || want && try(lab.Limit) == lab.Answered
}

// nodePort leads to the pod db.
const nodePort = 30080

// nodeProbes are connections that the node begins, gets and forwards, from each of its addresses, from the world and
// from pods.
func (p *peering) nodeProbes(own []netip.Addr) (out []nodeProbe) {
	db, other, client := p.Pod("db"), p.Pod("other"), p.Pod("client")
	outside := outsides(1)
	by := func(a netip.Addr) string {
		switch pod := slices.IndexFunc([]*lab.Pod{db, other, client}, func(of *lab.Pod) bool { return a == of.Addr4 || a == of.Addr6 }); {
		case slices.Contains(own, a):
			return "lo"
		case pod < 0:
			return "out0"
		case p.Network == lab.Bridged:
			return "br0"
		default:
			return []*lab.Pod{db, other, client}[pod].Iface
		}
	}
	for _, f := range p.flowsTo(slices.Concat([]netip.Addr{db.Addr4, db.Addr6, other.Addr4, other.Addr6}, outside, own)...) {
		f.Out = by(f.Reached.Addr())
		out = append(out, nodeProbe{Host: p.Node, Flow: f})
	}
	toPort := func(a netip.Addr, port uint16) policy.Flow {
		return policy.Flow{Protocol: policy.TCP, Dialled: netip.AddrPortFrom(a, port), Reached: netip.AddrPortFrom(a, port)}
	}
	for _, from := range own {
		for _, a := range outside {
			if f := toPort(a, 80); a.Is6() == from.Is6() {
				f.Out = "out0"
				out = append(out, nodeProbe{Host: p.Node, from: from, Flow: f})
			}
		}
	}
	arrives := func(from *lab.Host, pod string, bind netip.Addr, source4, source6 netip.Addr, flows ...policy.Flow) {
		for _, f := range flows {
			if f.Source = source4; f.Dialled.Addr().Is6() {
				f.Source = source6
			}
			if f.In, f.Out = by(f.Source), by(f.Reached.Addr()); f.Out == "lo" {
				f.Out = ""
			}
			out = append(out, nodeProbe{from, pod, bind, f})
		}
	}
	var toNode, nodePorts []policy.Flow
	for _, a := range own {
		for _, f := range []policy.Flow{toPort(a, 80), toPort(a, 81), {Protocol: policy.UDP, Dialled: netip.AddrPortFrom(a, 80)}, {Protocol: icmpOf(a), Dialled: netip.AddrPortFrom(a, 0)}} {
			f.Reached = f.Dialled
			toNode = append(toNode, f)
		}
	}
	for i, a := range uplinks {
		nodePorts = append(nodePorts, policy.Flow{Protocol: policy.TCP, Dialled: netip.AddrPortFrom(a, nodePort), Reached: netip.AddrPortFrom([]netip.Addr{db.Addr4, db.Addr6}[i], 80)})
	}
	arrives(p.World, "", netip.Addr{}, worlds[0], worlds[1], slices.Concat(toNode, nodePorts)...)
	arrives(p.World, "", netip.Addr{}, worlds[0], worlds[1], toPort(db.Addr4, 80), toPort(db.Addr6, 80), toPort(other.Addr6, 81))
	for i, a := range outside {
		arrives(p.World, "", a, outside[0], outside[1], toPort(uplinks[i], 80), toPort([]netip.Addr{db.Addr4, db.Addr6}[i], 80), nodePorts[i])
	}
	for name, pod := range map[string]*lab.Pod{"other": other, "client": client} {
		flows := append(p.flowsTo(slices.Concat([]netip.Addr{db.Addr4, db.Addr6}, outside)...), toNode...)
		arrives(pod.Host, name, netip.Addr{}, pod.Addr4, pod.Addr6, flows...)
	}
	return out
}

// passes tells whether the rules of the node let a connection and its answers pass, and which rule decides about it.
func (p *peering) passes(v *policy.View, f *policy.Flow) (bool, *policy.Rule) {
	alone := *v
	// Failsafes yield to what all rules list.
	alone.Traffic, alone.Rules = &policy.TrafficRules{Untracked: v.Traffic.Untracked, Local: policy.Directions{Egress: v.Traffic.Local.Egress}}, policy.Rules{}
	if f.In == "" && f.Dialled != f.Reached { // before the translation it leaves as all else
		before := *f
		before.Out = "out0"
		if allowed, by := policy.EvaluateNode(&alone, p.snapshot, &before); !allowed || by != nil {
			return false, by
		}
		rest := *v
		rest.Traffic = &policy.TrafficRules{Local: v.Traffic.Local}
		return policy.EvaluateNode(&rest, p.snapshot, f)
	}
	allowed, by := policy.EvaluateNode(v, p.snapshot, f)
	if by != nil && by.Traffic == policy.Untracked && f.Dialled != f.Reached {
		return false, by // it is not translated: nothing is there
	}
	if !allowed || f.In != "" && f.Out != "" || f.In == "lo" || f.Out == "lo" {
		return allowed, by
	}
	// The answer is to a port of no rule. Each direction of untracked packets is judged alone.
	back := policy.Flow{Protocol: f.Protocol, Source: f.Dialled.Addr(), In: f.Out, Out: f.In}
	if back.Dialled = netip.AddrPortFrom(f.Source, 40000); f.In == "" {
		at := slices.IndexFunc(p.node.Addrs, func(a netip.Addr) bool { return a.Is6() == f.Dialled.Addr().Is6() })
		back.Dialled = netip.AddrPortFrom(p.node.Addrs[at], 40000)
	}
	if back.Protocol == 1 || back.Protocol == 58 {
		back.Dialled = netip.AddrPortFrom(back.Dialled.Addr(), 0)
	}
	back.Reached = back.Dialled
	untracked := by != nil && by.Traffic == policy.Untracked
	if p.failsafe(v, f) {
		return true, nil
	}
	if allowed, denies := policy.EvaluateNode(&alone, p.snapshot, &back); !allowed {
		return false, denies
	} else if denies != nil || !untracked || back.Protocol != policy.UDP {
		return true, by
	}
	return policy.EvaluateNode(v, p.snapshot, &back) // for connection tracking it begins a connection
}

// failsafe tells whether a failsafe has a connection of the node.
func (p *peering) failsafe(v *policy.View, f *policy.Flow) bool {
	return (f.In == "" || f.Out == "") && v.Failsafe(f, p.snapshot) != nil
}

// drawNodeRule draws the nth rule of the node, for one direction of a traffic.
func drawNodeRule(r *rand.Rand, n int, traffic policy.Traffic, ingress bool) *policy.Rule {
	rule := drawRule(r, n, drawnPeers[:3])
	if rule.Peer.Kind == policy.PeerNames && (ingress || traffic != policy.Local) {
		rule.Peer, rule.Matches, rule.ID = one(r, drawnPeers[:3]...), nil, ""
	}
	if rule.Tier = policy.Admin; rule.Action == policy.Pass && rule.Peer.Kind != policy.PeerNames {
		rule.Action = policy.Accept
	} else if rule.Action == policy.Pass {
		rule.Action = policy.Deny
	}
	if r.IntN(4) == 0 && rule.Peer.Kind != policy.PeerNames {
		rule.Ports = "tcp/30080"
	}
	return inTraffic(r, rule, traffic, ingress)
}

// inTraffic makes a rule one of a traffic and a direction, on drawn interfaces.
func inTraffic(r *rand.Rand, rule *policy.Rule, traffic policy.Traffic, ingress bool) *policy.Rule {
	rule.Traffic, rule.Ingress = traffic, ingress
	rule.Interfaces = one(r, nil, nil, []string{"out0"}, []string{"out*", "veth*"}, []string{"br0", "out0"}, everywhere)
	return rule
}

// TestTheNodesPacketsEqualEvaluate: random rules of the node, beside failsafes, decide what its
// sockets send and get, from each of its addresses, and what it forwards, as policy.EvaluateNode decides flows. Pods'
// own rules have their say beside it.
func TestTheNodesPacketsEqualEvaluate(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		serves, err := p.Node.Serve(80, 81)
		fatal.If(t, err)
		t.Cleanup(serves.Close)
		db, other := p.Pod("db"), p.Pod("other")
		outside4, outside6 := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:1::1")
		own := p.nodeAddrs()
		var services []lab.Service
		for at, to := range map[netip.AddrPort]netip.Addr{
			netip.AddrPortFrom(service4, 5432): db.Addr4, netip.AddrPortFrom(service6, 5432): db.Addr6,
			netip.MustParseAddrPort("192.168.77.1:30080"): db.Addr4, netip.MustParseAddrPort("[fd00:77::1]:30080"): db.Addr6,
		} {
			services = append(services, lab.Service{Addr: at.Addr(), Protocol: "tcp", Port: at.Port(), To: []netip.AddrPort{netip.AddrPortFrom(to, 80)}})
		}
		fatal.If(t, p.SetServices(services...))
		probes := p.nodeProbes(own)
		each := func(f func(of nodeProbe)) {
			var probing sync.WaitGroup
			for _, of := range probes {
				probing.Go(func() { f(of) })
			}
			probing.Wait()
		}
		// What cannot be reached without rules cannot be judged.
		var mu sync.Mutex
		var reach []nodeProbe
		p.labels["client"] = "client"
		p.ordered = map[string][]*policy.Rule{}
		p.apply()
		each(func(of nodeProbe) {
			is := of.answered(true)
			mu.Lock()
			defer mu.Unlock()
			if is {
				reach = append(reach, of)
			} else {
				t.Errorf("without rules %s to %s over %s is not answered", of.Source, of.Dialled, probed[of.Protocol])
			}
		})
		probes = reach

		audits, logged := p.hearAudits(t), 0
		total, denied, safe, by := 0, 0, 0, map[string]int{}
		for round := range nodeRounds {
			p.drawPeers(r)
			p.node = &policy.Node{Name: "node", Addrs: own, Interfaces: one(r, []string{"out0"}, everywhere)}
			for _, f := range []policy.Failsafe{
				nodeFailsafe("198.51.100.0/24", policy.TCP, 81), nodeFailsafe("2001:db8:1::/64", 0, 0), nodeFailsafe(db.Addr4.String()+"/32", policy.UDP, 80),
				nodeFailsafe("198.51.100.0/28", 1, 0), nodeFailsafe(service4.String()+"/32", policy.TCP, 5432), nodeFailsafe(other.Addr6.String()+"/128", policy.TCP, 0),
				nodeFailsafe("192.168.77.0/24", policy.TCP, 81), nodeFailsafe("fd00:77::/64", policy.UDP, 80), nodeFailsafe("0.0.0.0/0", policy.TCP, nodePort),
			} {
				f.Yields, f.In, f.Out = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
				if r.IntN(2) == 0 {
					p.node.Failsafes = append(p.node.Failsafes, f)
				}
			}
			p.nodeRules = nil
			for traffic := range policy.Untracked + 1 {
				for _, ingress := range []bool{true, false} {
					if traffic == policy.BeforeNAT && !ingress || r.IntN(2) == 0 {
						continue
					}
					for n := range r.IntN(5) {
						p.nodeRules = append(p.nodeRules, drawNodeRule(r, n, traffic, ingress))
					}
					if r.IntN(3) > 0 {
						last := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Ports: policy.AnyPort, Denial: policy.Denial{Denied: policy.Denied(r.IntN(2))}, Audit: r.IntN(3) == 0, Policy: "cluster"}
						p.nodeRules = append(p.nodeRules, inTraffic(r, last, traffic, ingress))
					}
				}
			}
			p.ordered = map[string][]*policy.Rule{"client": {{Tier: policy.Admin, Action: policy.Deny, Ports: one[policy.PortSet](r, "tcp/81", "udp", "tcp/80"), Denial: policy.Denial{Denied: policy.Denied(r.IntN(2))}, Policy: "cluster"}}}
			held := r.IntN(2) == 0
			if p.confirmed = nil; r.IntN(2) == 0 {
				p.confirmed = []*policy.Rule{}
				for _, rule := range p.nodeRules {
					if r.IntN(3) > 0 {
						p.confirmed = append(p.confirmed, rule)
					}
				}
			}
			p.countByName(some(r, service4, service6)...)
			p.apply()
			p.holdUnconfirmed(held)
			p.answer("node", "a.test", some(r, service4, service6, db.Addr4, db.Addr6, outside4, outside6)...)
			v := p.snapshot.Node()
			if v.Confirmed != nil && !held {
				rest := *v
				rest.Traffic, rest.Rules.Admin = v.Confirmed, v.Confirmed.Local.Egress
				v = &rest
			}
			audits.forget()
			wouldDeny := map[string]bool{}
			each(func(of nodeProbe) {
				f := of.Flow
				if f.In == "" {
					p.enter(&f, v)
				}
				want, rule := p.passes(v, &f)
				if of.pod != "" {
					pods, _ := policy.Evaluate(p.view(of.pod), p.snapshot, &f)
					want = want && pods
				}
				got := of.answered(want)
				mu.Lock()
				defer mu.Unlock()
				total++
				switch {
				case rule != nil:
					by[rule.Traffic.String()+" "+rule.Action.String()]++
				case v.Failsafe(&f, p.snapshot) != nil:
					safe++
				}
				if !want {
					denied++
				} else if got {
					for _, line := range audits.wouldDeny(v, f) {
						wouldDeny[line] = true
					}
				}
				if got != want {
					t.Errorf("round %d: from %s to %s (%s) over %s, in by %s and out by %s: answered %t, and the evaluation says %v by %s of %+v and %s, confirmed %s, held %v",
						round, cmp.Or(of.from, f.Source), f.Dialled, f.Reached, probed[f.Protocol], f.In, f.Out, got, want, ruleTexts([]*policy.Rule{rule}), p.node, ruleTexts(p.nodeRules), ruleTexts(p.confirmed), held)
				}
			})
			if v == p.snapshot.Node() {
				logged += audits.equal(t, v, wouldDeny)
			}
			if t.Failed() {
				t.Logf("rules %s, of %+v", ruleTexts(p.nodeRules), p.node)
				return
			}
			if r.IntN(4) == 0 {
				p.restart()
			}
		}
		if denied < 10 || safe < 10 || len(by) < 6 || logged == 0 {
			t.Errorf("%d probes are denied, %d safe and %d logged, decided by rules %v: the test does not see them", denied, safe, logged, by)
		}
		t.Logf("%d probes, %d denied, %d by failsafes, %d logged for Audit policies, decided by rules %v", total, denied, safe, logged, by)
	})
}

// ruleTexts are rules of the node in one line each.
func ruleTexts(rules []*policy.Rule) (out []string) {
	for _, r := range rules {
		if r == nil {
			continue
		}
		out = append(out, fmt.Sprintf("\n%s ingress=%t %v %s %v %q broken=%t audit=%t %s", r.Traffic, r.Ingress, r.Interfaces, r.Action, r.Peer, r.Ports, r.Broken, r.Audit, r.ID))
	}
	return out
}
