package enforcer_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
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
		v.Rules = policytest.Rules(slices.AppendSeq(p.ordered[pod.Name], v.Rules.All())...)
		v.Cluster = []*policy.Index{policy.NewIndex(p.ordered[pod.Name], 0)}
		views = append(views, &v)
	}
	if p.node != nil {
		v := policy.View{
			Pod: policy.Pod{PodRef: policy.NodeRef(p.node.Name), IPs: policy.NodeSubjects}, Node: p.node,
			Index: policy.NewIndex(nil, 0), Rules: policytest.Rules(p.nodeRules...), Cluster: []*policy.Index{policy.NewIndex(p.nodeRules, 0)},
		}
		if p.confirmed != nil {
			rest := policytest.Rules(p.confirmed...)
			v.Confirmed = &rest
		}
		views = append(views, &v)
	}
	sets := slices.Concat(s.PeerSets, p.peerSets)
	slices.SortFunc(sets, func(a, b *policy.PeerSet) int { return a.Peer.Compare(b.Peer) })
	return policy.NewSnapshot(policy.Snapshot{Number: s.Number, Views: views, PeerSets: sets}, s.Pods(), owners)
}

// byName returns an ordered rule for names of a policy, whose addresses count for a day and,
// if it denies or passes, for a minute after an answer or a packet.
func byName(tier policy.Tier, action policy.Action, ports policy.PortSet, of string, names ...string) *policy.Rule {
	r := &policy.Rule{
		Tier: tier, Action: action, Peer: policy.Peer{Kind: policy.PeerNames}, Ports: ports, Policy: "cluster", Path: of, DNSDenied: policy.Resolve,
		TTL: policy.TTL{Min: 24 * time.Hour, Max: 24 * time.Hour, Reuse: time.Minute},
	}
	r.ID = r.NewID()
	for i, name := range names {
		pattern, err := fqdn.ParsePattern(name)
		if err != nil {
			panic(err)
		}
		r.Matches = append(r.Matches, policy.NewMatch(r, of, pattern, i))
	}
	return r
}

// answer grants the addresses of an answer to a pod, as the proxy does.
func (p *peering) answer(pod, name string, at ...netip.Addr) []policy.Grant {
	p.t.Helper()
	return p.grant(pod, name, time.Time{}, at...)
}

// grantUntil grants addresses of a name to the client until a deadline.
func (p *peering) grantUntil(name string, deadline time.Time, at ...netip.Addr) {
	p.t.Helper()
	p.grant("client", name, deadline, at...)
}

// grant grants addresses until a deadline, the zero time for that of an answer.
func (p *peering) grant(pod, name string, deadline time.Time, at ...netip.Addr) (granted []policy.Grant) {
	p.t.Helper()
	var v *policy.View
	for _, of := range p.snapshot.Views {
		if of.Pod.Name == pod {
			v = of
		}
	}
	if v == nil {
		return nil
	}
	for _, o := range v.Decide(policytest.Name(name)).Openings(600) {
		until := deadline
		if until.IsZero() {
			until = time.Now().Add(o.Lifetime)
		}
		granted = append(granted, policy.Grant{Pod: v.Pod.PodRef, View: v, Name: policytest.Name(name), Addrs: at, Ports: o.Ports, Rule: o.Rule, By: o.By, Deadline: until})
	}
	fatal.If(p.t, p.Node.Do(func() error { return p.e.Grants().Grant(context.Background(), granted) }))
	return granted
}

// reconcile has the enforcer compare the kernel with what it wants, and look at connections
// as often as it means to.
func (p *peering) reconcile() {
	p.t.Helper()
	fatal.If(p.t, p.Node.Do(p.e.Compare))
	fatal.Await(p.t, "the last look at connections", func() (last bool) {
		fatal.If(p.t, p.Node.Do(func() error { last = p.e.RecheckDue(); return nil }))
		return last
	})
}

// TestOrderedNamesOnTheKernel: rules by name decide in order, on what was dialled, also
// where an address has several names, and their entries outlive an agent and come back.
func TestOrderedNamesOnTheKernel(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		db, other := p.Pod("db"), p.Pod("other")
		at := func(port uint16, addrs ...netip.Addr) (out []netip.AddrPort) {
			for _, a := range addrs {
				out = append(out, netip.AddrPortFrom(a, port))
			}
			return out
		}
		outside := []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:1::1")}
		services, others := []netip.Addr{service4, service6}, []netip.Addr{other.Addr4, other.Addr6}
		expect := func(when string, want lab.Outcome, to ...netip.AddrPort) {
			t.Helper()
			for _, to := range to {
				if got := p.Pod("client").ProbeFor("tcp", to, lab.PatienceFor(want)); got != want {
					t.Errorf("%s: %s is %s, want %s", when, to, got, want)
				}
			}
		}
		deny := byName(policy.Admin, policy.Deny, "tcp/80,tcp/5432", "deny", "**.paste.test")
		accept := byName(policy.Admin, policy.Accept, policy.AnyPort, "accept", "good.test")
		pass := byName(policy.Admin, policy.Pass, policy.AnyPort, "pass", "pass.test")
		last := byName(policy.Baseline, policy.Deny, policy.AnyPort, "last", "*.test")

		// A pod without a Namespace tier.
		p.labels["client"] = "client"
		p.ordered = map[string][]*policy.Rule{"client": {deny, accept}}
		p.apply()
		expect("before answers", lab.Answered, slices.Concat(at(80, outside...), at(5432, services...))...)
		p.answer("client", "a.paste.test", slices.Concat(outside, services)...)
		expect("denied by name", lab.Refused, slices.Concat(at(80, outside...), at(5432, services...))...)
		expect("other addresses", lab.Answered, at(80, slices.Concat(others, []netip.Addr{db.Addr4, db.Addr6})...)...)
		p.answer("client", "good.test", slices.Concat(outside, services)...)
		expect("a shared address", lab.Refused, slices.Concat(at(80, outside...), at(5432, services...))...)
		p.ordered["client"] = []*policy.Rule{accept, deny}
		p.apply()
		expect("accepted before", lab.Answered, slices.Concat(at(80, outside...), at(5432, services...))...)

		// A rule that comes takes over the names that are known.
		p.labels["client"], p.allowed = "gated client", []string{"tcp/80 ns.test pass.test"}
		p.ordered["client"] = []*policy.Rule{pass, last}
		p.apply()
		p.answer("client", "ns.test", others...)
		expect("by the namespace", lab.Answered, at(80, others...)...)
		cs := []net.Conn{p.open("client", other.Addr4, 80), p.open("client", other.Addr6, 80)}
		late := byName(policy.Admin, policy.Deny, "tcp", "late", "ns.test")
		p.ordered["client"] = []*policy.Rule{pass, late}
		p.apply()
		expect("denied later", lab.Refused, at(80, others...)...)
		for _, c := range cs {
			p.goesOn("denied later", c, false)
		}
		p.answer("client", "pass.test", others...)
		expect("passed", lab.Answered, at(80, others...)...)

		p.labels["client"] = "gated client"

		// Another agent, another program.
		p.ordered["client"] = []*policy.Rule{late}
		p.apply()
		p.answer("client", "ns.test", slices.Concat(outside, others)...)
		denied := at(80, slices.Concat(outside, others)...)
		expect("before the restart", lab.Refused, denied...)
		p.restart()
		p.apply()
		expect("after a restart", lab.Refused, denied...)
		for _, g := range p.e.Grants().ListGrants(p.snapshot.Views[0].Pod.PodRef) {
			if g.Rule != "" && (g.Rule != late.ID || g.Name.String() != "ns.test" || g.By != "cluster ns.test") {
				t.Errorf("recovered: %+v", g)
			}
		}
		_, err := p.Node.Run("nft", "flush", "set", "inet", nft.TableName, "entries-"+string(late.ID)+"-4")
		fatal.If(t, err)
		_, err = p.Node.Run("nft", "delete", "element", "inet", nft.TableName, "entries-"+string(late.ID)+"-6", "{ "+p.Pod("client").Addr6.String()+" . "+outside[1].String()+" }")
		fatal.If(t, err)
		expect("after a flush", lab.Answered, denied[0])
		p.reconcile()
		expect("after the repair", lab.Refused, denied...)
		if n := len(p.e.Deviations()); n != 0 {
			t.Errorf("%d deviations are left", n)
		}
		p.ordered = nil
		p.apply()
		expect("without the rule", lab.Answered, denied...)
		if out, err := p.Node.Run("nft", "list", "sets", "inet"); err != nil || strings.Contains(out, "entries-") {
			t.Errorf("sets are left: %v", err)
		}
	})
}

// TestOrderedRulesOnTheKernel: the tiers are asked in order, on what is really reached, and
// a change of rules or of their peers counts for connections that are open.
func TestOrderedRulesOnTheKernel(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
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
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
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
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		client, db := p.Pod("client"), p.Pod("db")
		p.ordered = map[string][]*policy.Rule{"client": {{Tier: policy.Admin, Standard: true, Action: policy.Deny, Ports: "tcp/80", Policy: "cluster"}}}
		p.apply(egress("client", port80, "db"))
		p.reconcile() // no second look of the first Commit is left
		p.expect("client", db.Addr4, 80, lab.Refused)
		own := p.open("client", client.Addr4, 80)
		for _, m := range []string{"tiers4", "tiers6"} {
			_, err := p.Node.Run("nft", "flush", "map", "inet", nft.TableName, m)
			fatal.If(t, err)
		}
		lost := []net.Conn{p.open("client", db.Addr4, 80), p.open("client", db.Addr6, 80), p.open("client", service4, 5432)}
		p.reconcile()
		for _, c := range lost {
			p.goesOn("after the repair", c, false)
		}
		p.goesOn("after the repair", own, true)
		p.expect("client", db.Addr4, 80, lab.Refused)
	})
}

// TestARestartKeepsWhatOrderedRulesAdmitted: a connection whose grant has ended goes on under
// the next agent, unless its rules are others.
func TestARestartKeepsWhatOrderedRulesAdmitted(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		outside := netip.MustParseAddr("198.51.100.1")
		brief := byName(policy.Admin, policy.Accept, policy.AnyPort, "brief", "brief.test")
		brief.TTL.Min, brief.TTL.Max = time.Millisecond, time.Millisecond
		brief.Matches[0].TTL = brief.TTL
		deny := byName(policy.Admin, policy.Deny, policy.AnyPort, "deny", "deny.test")
		p.ordered = map[string][]*policy.Rule{"client": {brief, deny}}
		p.apply()
		p.reconcile() // no second look of the first Commit is left
		granted := p.answer("client", "brief.test", outside)
		c := p.open("client", outside, 80)
		fatal.Await(p.t, "the end of the grant", func() bool {
			fatal.If(p.t, p.Node.Do(func() error { return p.e.Grants().Expire() }))
			return len(p.e.Grants().ListGrants(granted[0].Pod)) == 0
		})
		p.restart()
		p.apply()
		p.goesOn("after a restart", c, true)
		p.restart()
		p.ordered["client"] = []*policy.Rule{deny}
		p.apply()
		p.goesOn("after a restart with other rules", c, false)
	})
}
