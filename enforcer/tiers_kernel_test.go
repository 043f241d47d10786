package enforcer_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
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
			Index: policy.NewIndex(nil, 0), Traffic: trafficOf(p.nodeRules), Cluster: []*policy.Index{policy.NewIndex(p.nodeRules, 0)},
		}
		v.Rules.Admin = v.Traffic.Local.Egress
		if p.confirmed != nil {
			v.Confirmed = trafficOf(p.confirmed)
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
		Tier: tier, Action: action, Peer: policy.Peer{Kind: policy.PeerNames}, Ports: ports, Policy: "cluster", Path: of, Denial: policy.Denial{DNSDenied: policy.Resolve},
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
	v := p.view(pod)
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
	fatal.If(p.t, p.Node.Do(func() error { return granttest.Grant(context.Background(), p.e.Grants(), granted) }))
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
			return &policy.Rule{Tier: policy.Admin, Standard: standard, Action: action, Peer: peer, Ports: policy.AnyPort, Denial: policy.Denial{Denied: policy.Drop}, Policy: "cluster"}
		}
		p.apply(netpol("client", "tcp/80 db"))
		toDB := []net.Conn{p.dial("other", db.Addr4, 80), p.dial("other", db.Addr6, 80), p.dial("other", service4, 5432)}
		toOutside := []net.Conn{p.dial("other", outside[0].Addr(), 80), p.dial("other", outside[1].Addr(), 80)}
		isolated := []net.Conn{p.dial("client", db.Addr4, 80), p.dial("client", service6, 5432)}
		all := slices.Concat(toDB, toOutside, isolated)
		p.ordered = map[string][]*policy.Rule{"other": {rule(true, policy.Deny, policy.Peer{})}, "client": {rule(true, policy.Deny, policy.Peer{})}}
		p.apply()
		p.goOn("after the pod got a standard rule", true, all...)
		p.expect("other", db.Addr4, 80, lab.Silent)
		p.expect("client", db.Addr4, 80, lab.Silent)
		p.ordered["other"] = []*policy.Rule{rule(true, policy.Deny, dbs), rule(true, policy.Deny, policy.Peer{})}
		p.apply()
		p.goOn("after the standard rules changed", true, all...)
		p.restart()
		p.apply()
		p.goOn("after a restart", true, all...)
		p.expect("other", outside[0].Addr(), 80, lab.Silent)

		p.ordered["other"] = []*policy.Rule{rule(true, policy.Deny, policy.Peer{}), rule(false, policy.Deny, dbs)}
		p.apply(netpol("client", "tcp/80 other"))
		p.goOn("after a rule of ours denies it too", false, toDB...)
		p.goOn("after its NetworkPolicy goes, beside an FQDNNetworkPolicy", false, isolated...)
		p.goOn("after a rule of ours denies another destination", true, toOutside...)
		p.labels["other"] = "gated other"
		p.apply()
		p.goOn("after an FQDNNetworkPolicy isolates the pod", false, toOutside...)
	})
}

// TestLostOrderedRules: a connection that another program let pass, by taking an ordered
// rule away, is cut when the rule is restored, by a standard's rule too. So are the entries of a
// rule by name.
func TestLostOrderedRules(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		client, db := p.Pod("client"), p.Pod("db")
		late := byName(policy.Admin, policy.Deny, "tcp/81", "late", "ns.test")
		p.ordered = map[string][]*policy.Rule{"client": {{Tier: policy.Admin, Standard: true, Action: policy.Deny, Ports: "tcp/80", Policy: "cluster"}, late}}
		p.allowed = []string{"tcp/81 ns.test"}
		p.apply(netpol("client", "tcp/80 db"))
		p.answer("client", "ns.test", outsides(1)...)
		p.probes("denied by name", "tcp", lab.Refused, 81, outsides(1)...)
		p.reconcile() // no second look of the first Commit is left
		p.expect("client", db.Addr4, 80, lab.Refused)
		own := p.dial("client", client.Addr4, 80)
		for _, m := range []string{"tiers4", "tiers6"} {
			_, err := p.Node.Run("nft", "flush", "map", "inet", layout.TableName, m)
			fatal.If(t, err)
		}
		for _, command := range []string{"flush set inet namegate entries-" + string(late.ID) + "-4", "delete element inet namegate entries-" + string(late.ID) + "-6 { " + client.Addr6.String() + " . " + outsides(1)[1].String() + " }"} {
			_, err := p.Node.Run("nft", command)
			fatal.If(t, err)
		}
		p.probes("without the entries", "tcp", lab.Answered, 81, outsides(1)...)
		lost := []net.Conn{p.dial("client", db.Addr4, 80), p.dial("client", db.Addr6, 80), p.dial("client", service4, 5432)}
		p.reconcile()
		p.goOn("after the repair", false, lost...)
		p.goOn("after the repair", true, own)
		p.probes("after the repair", "tcp", lab.Refused, 81, outsides(1)...)
		if d := p.e.Deviations(); len(d) != 0 {
			t.Errorf("deviations: %v", d)
		}
		p.expect("client", db.Addr4, 80, lab.Refused)
		p.restart()
		p.apply()
		p.reconcile() // what was not recovered is another program's
		p.probes("after a restart", "tcp", lab.Refused, 81, outsides(1)...)
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
		c := p.dial("client", outside, 80)
		fatal.Await(p.t, "the end of the grant", func() bool {
			fatal.If(p.t, p.Node.Do(func() error { return p.e.Grants().Expire() }))
			return len(p.e.Grants().ListGrants(granted[0].Pod)) == 0
		})
		p.restart()
		p.apply()
		p.goOn("after a restart", true, c)
		p.restart()
		p.ordered["client"] = []*policy.Rule{deny}
		p.apply()
		p.goOn("after a restart with other rules", false, c)
	})
}
