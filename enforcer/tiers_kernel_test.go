package enforcer_test

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// withOrdered returns a snapshot with the stage's ordered rules: those of a pod that no
// policy selects are of a view of its own.
func (p *peering) withOrdered(s *policy.Snapshot) *policy.Snapshot {
	owners := map[netip.Addr]policy.PodRef{}
	for _, pod := range s.Pods() {
		for _, a := range pod.IPs {
			owners[a] = pod.PodRef
		}
	}
	var views []*policy.View
	for _, pod := range s.Pods() {
		v := policy.View{Pod: pod, Index: policy.NewIndex(nil, 0)}
		if is := s.ViewOf(pod.PodRef); is != nil {
			v = *is
		} else if p.ordered[pod.Name] == nil {
			continue
		}
		v.Rules = slices.Concat(v.Rules, p.ordered[pod.Name])
		slices.SortStableFunc(v.Rules, func(a, b *policy.Rule) int { return int(a.Tier) - int(b.Tier) })
		views = append(views, &v)
	}
	sets := slices.Concat(s.PeerSets, p.peerSets)
	slices.SortFunc(sets, func(a, b *policy.PeerSet) int { return a.Peer.Compare(b.Peer) })
	return policy.NewSnapshot(policy.Snapshot{Number: s.Number, Views: views, PeerSets: sets}, s.Pods(), owners)
}

// TestOrderedRulesOnTheKernel: the tiers are asked in order, on what is really reached, and
// a change of rules or of their peers counts for connections that are open.
func TestOrderedRulesOnTheKernel(t *testing.T) {
	eachPeering(t, func(p *peering) {
		client, db, other := p.Pod("client"), p.Pod("db"), p.Pod("other")
		outside4, outside6 := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:1::1")
		dbs := policy.Peer{Kind: policy.PeerPods, Key: "db"}
		world := policy.Peer{Kind: policy.PeerNetworks, Key: "world"}
		named := policy.Peer{Kind: policy.PeerPorts, Key: "http of other"}
		sets := func(members ...netip.Addr) {
			slices.SortFunc(members, netip.Addr.Compare)
			p.peerSets = []*policy.PeerSet{
				{Peer: dbs, Addrs: members}, {Peer: world, Networks: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:1::/64")}},
				{Peer: named, Ports: []policy.PeerPort{{Addr: other.Addr4, Protocol: policy.TCP, Port: 80}, {Addr: other.Addr6, Protocol: policy.TCP, Port: 80}}},
			}
		}
		rule := func(tier policy.Tier, action policy.Action, peer policy.Peer, ports policy.PortSet, denied policy.Denied) *policy.Rule {
			return &policy.Rule{Tier: tier, Action: action, Peer: peer, Ports: ports, Denied: denied, Policy: "cluster"}
		}
		anywhere := policy.Peer{}
		expect := func(from string, want lab.Outcome, at ...netip.AddrPort) {
			t.Helper()
			for _, to := range at {
				p.expect(from, to.Addr(), to.Port(), want)
			}
		}
		on80 := func(pod *lab.Pod) []netip.AddrPort {
			return []netip.AddrPort{netip.AddrPortFrom(pod.Addr4, 80), netip.AddrPortFrom(pod.Addr6, 80)}
		}
		services := []netip.AddrPort{netip.AddrPortFrom(service4, 5432), netip.AddrPortFrom(service6, 5432)}
		outside := []netip.AddrPort{netip.AddrPortFrom(outside4, 80), netip.AddrPortFrom(outside6, 80)}
		goOn := func(when string, want bool, cs ...net.Conn) {
			t.Helper()
			for _, c := range cs {
				p.goesOn(when, c, want)
			}
		}

		// Without ordered rules.
		p.apply(egress("client", port80, "db"))
		toDB := []net.Conn{p.open("client", db.Addr4, 80), p.open("client", db.Addr6, 80), p.open("client", service4, 5432)}
		free := []net.Conn{p.open("other", outside4, 80), p.open("other", db.Addr6, 80)}
		expect("client", lab.Refused, on80(other)...)

		// Admin before the Namespace tier.
		sets(db.Addr4, db.Addr6)
		p.ordered = map[string][]*policy.Rule{"client": {
			rule(policy.Admin, policy.Deny, dbs, "tcp/80", policy.Reject), rule(policy.Admin, policy.Accept, named, policy.AnyPort, 0),
			rule(policy.Admin, policy.Deny, world, "tcp", policy.Drop), rule(policy.Baseline, policy.Accept, anywhere, policy.AnyPort, 0),
		}}
		p.apply()
		goOn("after an Admin rule denies it", false, toDB...)
		expect("client", lab.Refused, slices.Concat(on80(db), services)...)
		expect("client", lab.Answered, on80(other)...)
		expect("client", lab.Silent, outside...)

		// The first rule that matches decides; a rule that passes leaves it to the NetworkPolicy.
		p.ordered["client"] = slices.Concat([]*policy.Rule{rule(policy.Admin, policy.Pass, dbs, policy.AnyPort, 0)}, p.ordered["client"])
		p.apply()
		expect("client", lab.Answered, slices.Concat(on80(db), services)...)
		toDB = []net.Conn{p.open("client", db.Addr4, 80), p.open("client", service6, 5432)}
		toOther := []net.Conn{p.open("client", other.Addr4, 80), p.open("client", other.Addr6, 80)}
		p.apply()
		goOn("after the same once more", true, slices.Concat(toDB, toOther)...)

		// Peers change: what the first rule passed is denied by the next.
		sets(db.Addr4)
		p.ordered["client"] = []*policy.Rule{rule(policy.Admin, policy.Pass, dbs, policy.AnyPort, 0), rule(policy.Admin, policy.Accept, named, policy.AnyPort, 0), rule(policy.Admin, policy.Deny, anywhere, policy.AnyPort, policy.Reject)}
		p.apply()
		expect("client", lab.Answered, on80(db)[0], services[0])
		expect("client", lab.Refused, on80(db)[1], services[1], outside[0])
		goOn("after one family lost its rule", true, toDB[0], toOther[0], toOther[1])
		goOn("after one family lost its rule", false, toDB[1])
		// Its own address is no rule's.
		expect("client", lab.Answered, on80(client)...)

		// Baseline for a pod without a Namespace tier; what no rule denies goes on.
		sets(db.Addr4, db.Addr6)
		p.ordered["other"] = []*policy.Rule{rule(policy.Baseline, policy.Deny, dbs, "tcp", policy.Reject), rule(policy.Baseline, policy.Deny, anywhere, "udp", policy.Drop)}
		p.apply()
		goOn("after the pod got a Baseline", true, free[0])
		goOn("after the pod got a Baseline", false, free[1])
		expect("other", lab.Answered, slices.Concat(outside, on80(client))...)
		expect("other", lab.Refused, slices.Concat(on80(db), services)...)

		// Another enforcer takes over, and the rules go.
		opened := []net.Conn{p.open("client", db.Addr4, 80), p.open("other", outside6, 80)}
		p.restart()
		p.apply()
		goOn("after a restart", true, opened...)
		expect("other", lab.Refused, on80(db)...)
		expect("client", lab.Refused, outside[0])
		p.ordered = nil
		p.apply()
		goOn("after the rules are gone", true, opened...)
		expect("other", lab.Answered, slices.Concat(on80(db), services)...)
		expect("client", lab.Answered, on80(db)...)
		expect("client", lab.Refused, on80(other)...)
	})
}

// TestConnectionsOutliveStandardRules: a rule of a ClusterNetworkPolicy decides about new
// connections, also of a pod that no policy selected before. A rule of ours and the isolation
// of an FQDNNetworkPolicy cut those that are open.
func TestConnectionsOutliveStandardRules(t *testing.T) {
	eachPeering(t, func(p *peering) {
		db := p.Pod("db")
		outside := []netip.AddrPort{netip.MustParseAddrPort("198.51.100.1:80"), netip.MustParseAddrPort("[2001:db8:1::1]:80")}
		dbs := policy.Peer{Kind: policy.PeerPods, Key: "db"}
		p.peerSets = []*policy.PeerSet{{Peer: dbs, Addrs: []netip.Addr{db.Addr4, db.Addr6}}}
		rule := func(standard bool, action policy.Action, peer policy.Peer) *policy.Rule {
			return &policy.Rule{Tier: policy.Admin, Standard: standard, Action: action, Peer: peer, Ports: policy.AnyPort, Denied: policy.Drop, Policy: "cluster"}
		}
		p.apply(egress("client", port80, "db"))
		toDB := []net.Conn{p.open("other", db.Addr4, 80), p.open("other", db.Addr6, 80), p.open("other", service4, 5432)}
		toOutside := []net.Conn{p.open("other", outside[0].Addr(), 80), p.open("other", outside[1].Addr(), 80)}
		isolated := []net.Conn{p.open("client", db.Addr4, 80), p.open("client", service6, 5432)}
		all := slices.Concat(toDB, toOutside, isolated)
		expect := func(when string, want bool, cs ...net.Conn) {
			t.Helper()
			for _, c := range cs {
				p.goesOn(when, c, want)
			}
		}

		p.ordered = map[string][]*policy.Rule{"other": {rule(true, policy.Deny, policy.Peer{})}, "client": {rule(true, policy.Deny, policy.Peer{})}}
		p.apply()
		expect("after the pod got a standard rule", true, all...)
		p.expect("other", db.Addr4, 80, lab.Silent)
		p.expect("client", db.Addr4, 80, lab.Silent)
		p.ordered["other"] = []*policy.Rule{rule(true, policy.Deny, dbs), rule(true, policy.Deny, policy.Peer{})}
		p.apply()
		expect("after the standard rules changed", true, all...)
		p.restart()
		p.apply()
		expect("after a restart", true, all...)
		p.expect("other", outside[0].Addr(), 80, lab.Silent)

		p.ordered["other"] = []*policy.Rule{rule(true, policy.Deny, policy.Peer{}), rule(false, policy.Deny, dbs)}
		p.apply(egress("client", port80, "other"))
		expect("after a rule of ours denies it too", false, toDB...)
		expect("after its NetworkPolicy goes, beside an FQDNNetworkPolicy", false, isolated...)
		expect("after a rule of ours denies another destination", true, toOutside...)
		p.labels["other"] = "gated other"
		p.apply()
		expect("after an FQDNNetworkPolicy isolates the pod", false, toOutside...)
	})
}

// TestLostOrderedRules: a connection that another program let pass, by taking an ordered
// rule away, is cut when the rule is restored, by a standard's rule too.
func TestLostOrderedRules(t *testing.T) {
	eachPeering(t, func(p *peering) {
		client, db := p.Pod("client"), p.Pod("db")
		p.ordered = map[string][]*policy.Rule{"client": {{Tier: policy.Admin, Standard: true, Action: policy.Deny, Ports: "tcp/80", Policy: "cluster"}}}
		p.apply(egress("client", port80, "db"))
		reconcile := func() {
			fatal.If(t, p.Node.Do(func() error {
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
				defer cancel()
				return p.e.RunReconcile(ctx)
			}))
		}
		reconcile() // no second look of the first Commit is left
		p.expect("client", db.Addr4, 80, lab.Refused)
		own := p.open("client", client.Addr4, 80)
		for _, m := range []string{"tiers4", "tiers6"} {
			_, err := p.Node.Run("nft", "flush", "map", "inet", nft.TableName, m)
			fatal.If(t, err)
		}
		lost := []net.Conn{p.open("client", db.Addr4, 80), p.open("client", db.Addr6, 80), p.open("client", service4, 5432)}
		reconcile()
		for _, c := range lost {
			p.goesOn("after the repair", c, false)
		}
		p.goesOn("after the repair", own, true)
		p.expect("client", db.Addr4, 80, lab.Refused)
	})
}

// orderedRounds is how many random lists TestOrderedRulesEqualEvaluate tries on each network.
const orderedRounds = 12

// TestOrderedRulesEqualEvaluate: random rules of pods with and without a Namespace tier
// decide packets as policy.Evaluate decides flows, dialled directly and through a Service.
func TestOrderedRulesEqualEvaluate(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	eachPeering(t, func(p *peering) {
		db, other, client := p.Pod("db"), p.Pod("other"), p.Pod("client")
		outside4, outside6 := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:1::1")
		at := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, 80) }
		reached := map[netip.AddrPort]netip.AddrPort{netip.AddrPortFrom(service4, 5432): at(db.Addr4), netip.AddrPortFrom(service6, 5432): at(db.Addr6)}
		for _, a := range []netip.Addr{db.Addr4, db.Addr6, other.Addr4, other.Addr6, client.Addr4, client.Addr6, outside4, outside6} {
			reached[at(a)] = at(a)
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
				out = append(out, rule)
			}
			return out
		}
		for range orderedRounds {
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
			p.apply(egress("client", port80, "db"))
			for _, from := range []string{"client", "other"} {
				var v *policy.View
				for _, of := range p.snapshot.Views {
					if of.Pod.Name == from {
						v = of
					}
				}
				for to, peer := range reached {
					want, by := policy.Evaluate(v, p.snapshot, &policy.Flow{Protocol: policy.TCP, Dialled: to, Reached: peer})
					got := p.Pod(from).ProbeFor("tcp", to, lab.Patience)
					if got != lab.Answered && want { // a busy machine gets more time
						got = p.Pod(from).ProbeFor("tcp", to, lab.Limit)
					}
					if (got == lab.Answered) != want {
						t.Errorf("%s to %s: %s, and Evaluate says %v by %+v of %+v", from, to, got, want, by, v)
					}
				}
			}
			if t.Failed() {
				return
			}
		}
	})
}
