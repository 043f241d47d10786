package enforcer_test

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// nodeRounds is how many random lists TestTheNodesPacketsEqualEvaluate tries on each network and
// with each dataplane.
const nodeRounds = 16

// nodeAddrs are the node's own addresses that packets to the world can come from, sorted.
func (p *peering) nodeAddrs() (out []netip.Addr) {
	p.t.Helper()
	fatal.If(p.t, p.Node.Do(func() error {
		all, err := net.InterfaceAddrs()
		for _, a := range all {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil && !prefix.Addr().IsLoopback() && !prefix.Addr().IsLinkLocalUnicast() {
				out = append(out, prefix.Addr())
			}
		}
		return err
	}))
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// nodeFailsafe is a failsafe of a range of ports, for every protocol with 0.
func nodeFailsafe(prefix string, protocol policy.Protocol, port uint16) policy.Failsafe {
	f := policy.Failsafe{Name: prefix, Networks: []netip.Prefix{netip.MustParsePrefix(prefix)}, Ports: []policy.PortRange{{Protocol: protocol, First: port, Last: port}}}
	switch {
	case protocol == policy.AnyProtocol:
		f.Ports = nil
	case port == 0:
		f.Ports[0].Last = 65535
	}
	return f
}

// probeFrom is ProbeFor of the node, from an address that it has, or any.
func (p *peering) probeFrom(from netip.Addr, network string, to netip.AddrPort, patience time.Duration) lab.Outcome {
	if !from.IsValid() {
		return p.Node.ProbeFor(network, to, patience)
	}
	c, err := p.Node.DialFrom(network, netip.AddrPortFrom(from, 0).String(), to.String(), patience)
	if err != nil {
		return lab.Silent
	}
	defer c.Close()
	return lab.Echo(c, patience)
}

// TestTheNodesPacketsEqualEvaluate: random rules of the node, beside failsafes, decide what its
// sockets send as policy.Evaluate decides flows, from each of its addresses. Pods that no policy
// selects go on.
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
		type probe struct {
			from netip.Addr
			policy.Flow
		}
		var probes []probe
		for _, f := range p.flowsTo(slices.Concat([]netip.Addr{db.Addr4, db.Addr6, other.Addr4, other.Addr6, outside4, outside6}, own)...) {
			probes = append(probes, probe{Flow: f})
		}
		for _, from := range own {
			for _, a := range []netip.Addr{outside4, outside6} {
				if at := netip.AddrPortFrom(a, 80); a.Is6() == from.Is6() {
					probes = append(probes, probe{from, policy.Flow{Protocol: policy.TCP, Dialled: at, Reached: at}})
				}
			}
		}
		answered := func(of probe, want bool) lab.Outcome {
			network, patience := probed[of.Protocol], lab.Patience
			got := p.probeFrom(of.from, network, of.Dialled, patience)
			if got != lab.Answered && want { // a busy machine gets more time
				got = p.probeFrom(of.from, network, of.Dialled, lab.Limit)
			}
			return got
		}
		each := func(f func(of probe)) {
			var probing sync.WaitGroup
			for _, of := range probes {
				probing.Go(func() { f(of) })
			}
			probing.Wait()
		}
		// What cannot be reached without rules cannot be judged.
		var mu sync.Mutex
		var reach []probe
		p.labels["client"] = "client"
		p.ordered = map[string][]*policy.Rule{}
		p.apply()
		each(func(of probe) {
			if answered(of, true) == lab.Answered {
				mu.Lock()
				defer mu.Unlock()
				reach = append(reach, of)
			}
		})
		if len(reach) < len(probes) {
			t.Errorf("without rules only %d of %d probes are answered", len(reach), len(probes))
		}
		probes = reach

		total, denied, safe := 0, 0, 0
		for round := range nodeRounds {
			p.drawPeers(r)
			p.node = &policy.Node{Name: "node", Addrs: own}
			for _, f := range []policy.Failsafe{
				nodeFailsafe("198.51.100.0/24", policy.TCP, 81), nodeFailsafe("2001:db8:1::/64", 0, 0), nodeFailsafe(db.Addr4.String()+"/32", policy.UDP, 80),
				nodeFailsafe("198.51.100.0/28", 1, 0), nodeFailsafe(service4.String()+"/32", policy.TCP, 5432), nodeFailsafe(other.Addr6.String()+"/128", policy.TCP, 0),
			} {
				if f.Yields = r.IntN(2) == 0; r.IntN(2) == 0 {
					p.node.Failsafes = append(p.node.Failsafes, f)
				}
			}
			p.nodeRules = nil
			for n := range r.IntN(5) {
				p.nodeRules = append(p.nodeRules, drawRule(r, n, drawnPeers[:3]))
			}
			p.nodeRules = append(p.nodeRules, &policy.Rule{Tier: policy.Admin, Priority: 9, Action: policy.Deny, Ports: policy.AnyPort, Denied: policy.Denied(r.IntN(2)), Audit: r.IntN(4) == 0, Policy: "cluster"})
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
				rest.Rules = policy.Rules{Admin: v.Confirmed.Local.Egress}
				v = &rest
			}
			each(func(of probe) {
				f := of.Flow
				p.enter(&f, v)
				want, by := policy.Evaluate(v, p.snapshot, &f)
				got := answered(of, want)
				mu.Lock()
				defer mu.Unlock()
				total++
				if !want {
					denied++
				} else if v.Failsafe(&f, p.snapshot) != nil {
					safe++
				}
				if (got == lab.Answered) != want {
					t.Errorf("round %d: from %s to %s over %s: %s, and Evaluate says %v by %+v of %v and %v, confirmed %v, held %v", round, of.from, f.Dialled, probed[f.Protocol], got, want, by, p.node.Failsafes, p.nodeRules, p.confirmed, held)
				}
			})
			for _, a := range []netip.Addr{outside4, outside6, db.Addr4, db.Addr6} {
				p.expect("client", a, 80, lab.Answered)
			}
			if t.Failed() {
				return
			}
			if r.IntN(4) == 0 {
				p.restart()
			}
		}
		if denied < 10 || safe < 10 {
			t.Errorf("%d probes are denied and %d safe: the test does not see them", denied, safe)
		}
		t.Logf("%d probes, %d denied, %d by failsafes", total, denied, safe)
	})
}

// holdUnconfirmed has the rules count that wait for confirmation, or has their time end.
func (p *peering) holdUnconfirmed(unconfirmed bool) {
	p.t.Helper()
	if unconfirmed {
		fatal.If(p.t, p.Node.Do(func() error { return p.e.InForce().HoldUnconfirmed(context.Background()) }))
		return
	}
	for _, set := range []string{"nodeheld4", "nodeheld6"} {
		_, err := p.Node.Run("nft", "flush", "set", "inet", "namegate", set)
		fatal.If(p.t, err)
	}
}

// TestANodeWithoutAnAgent: rules that wait for confirmation end with their time in the kernel, and
// the others do not. A repair and the next agent's start change nothing about either.
func TestANodeWithoutAnAgent(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		secret, other := netip.MustParseAddrPort("198.51.100.1:81"), netip.MustParseAddrPort("198.51.100.1:80")
		p.ordered, p.node = map[string][]*policy.Rule{}, &policy.Node{Name: "node", Addrs: p.nodeAddrs()}
		p.confirmed = []*policy.Rule{{Tier: policy.Admin, Action: policy.Deny, Ports: "tcp/81", Policy: "old"}}
		p.nodeRules = append(slices.Clone(p.confirmed), &policy.Rule{Tier: policy.Admin, Priority: 1, Action: policy.Deny, Ports: policy.AnyPort, Policy: "new"})
		p.apply()
		are := func(when string, want lab.Outcome) {
			t.Helper()
			diff.Equal(t, want, p.Node.ProbeFor("tcp", other, lab.PatienceFor(want)), when)
			diff.Equal(t, lab.Refused, p.Node.ProbeFor("tcp", secret, lab.Limit), when, "to what a confirmed rule denies")
		}
		p.holdUnconfirmed(false)
		are("before an agent holds them", lab.Answered)
		p.holdUnconfirmed(true)
		are("held", lab.Refused)
		p.reconcile()
		are("compared", lab.Refused)
		p.restart()
		are("before the next agent's first snapshot", lab.Refused)
		p.apply()
		are("by the next agent", lab.Refused)
		p.holdUnconfirmed(false) // as at the end of the time
		are("after their time", lab.Answered)
		p.reconcile()
		are("compared after their time", lab.Answered)
		p.holdUnconfirmed(true)
		p.confirmed = nil
		p.apply()
		p.holdUnconfirmed(false)
		are("confirmed", lab.Refused)
	})
}

// TestANodeThatIsClosed: connections of a node that are open go on when a policy denies
// everything, what others open to it is answered, and the rules come back after another program
// took them. When the policy goes nothing is left.
func TestANodeThatIsClosed(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		serves, err := p.Node.Serve(80)
		fatal.If(t, err)
		t.Cleanup(serves.Close)
		outside := []netip.AddrPort{netip.MustParseAddrPort("198.51.100.1:80"), netip.MustParseAddrPort("[2001:db8:1::1]:80")}
		own := p.nodeAddrs()
		p.ordered = map[string][]*policy.Rule{}
		p.labels["client"] = "client"
		p.apply()
		chains := func() string {
			out, err := p.Node.Run("nft", "list", "chains")
			fatal.If(t, err)
			return out
		}
		before := chains()
		if strings.Contains(before, "node-") {
			t.Fatalf("chains of the node without a policy for it:\n%s", before)
		}
		var open []net.Conn
		for _, to := range outside {
			c, err := p.Node.Dial("tcp", to.String(), lab.Limit)
			fatal.If(t, err)
			t.Cleanup(func() { c.Close() })
			open = append(open, c)
			p.goOn("before the policy", true, c)
		}
		p.node = &policy.Node{Name: "node", Addrs: own}
		p.nodeRules = []*policy.Rule{{Tier: policy.Admin, Action: policy.Deny, Ports: policy.AnyPort, Policy: "cluster"}}
		p.apply()
		closed := func(when string, want lab.Outcome) {
			t.Helper()
			for _, to := range outside {
				diff.Equal(t, want, p.Node.ProbeFor("tcp", to, lab.PatienceFor(want)), when, "the node to", to)
				p.expect("client", to.Addr(), 80, lab.Answered)
			}
		}
		closed("by the policy", lab.Refused)
		p.goOn("under the policy", true, open...)
		reached := func(when string) {
			t.Helper()
			for _, a := range own {
				diff.Equal(t, lab.Answered, p.Pod("client").ProbeFor("tcp", netip.AddrPortFrom(a, 80), lab.Limit), when, "a pod to the node's address", a)
			}
		}
		reached("under the policy")
		_, err = p.Node.Run("conntrack", "-F")
		fatal.If(t, err)
		p.goOn("forgotten by connection tracking", true, open...)
		closed("after connection tracking forgot connections", lab.Refused)
		_, err = p.Node.Run("nft", "table inet other { chain in { type filter hook prerouting priority raw; tcp dport 80 notrack; }; chain out { type filter hook output priority raw; tcp sport 80 notrack; }; }")
		fatal.If(t, err)
		reached("without connection tracking")
		_, err = p.Node.Run("nft", "delete", "table", "inet", "other")
		fatal.If(t, err)
		_, err = p.Node.Run("nft", "flush", "chain", "inet", "namegate", "node-output")
		fatal.If(t, err)
		closed("without its chain", lab.Answered)
		p.reconcile()
		closed("after the repair", lab.Refused)
		p.restart()
		closed("before the next agent's first snapshot", lab.Refused)
		p.apply()
		closed("by the next agent", lab.Refused)
		p.nodeRules[0] = &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Ports: policy.AnyPort, Policy: "cluster", Audit: true}
		p.apply()
		closed("audited alone", lab.Answered)
		p.node, p.nodeRules = nil, nil
		p.apply()
		diff.Error(t, before, chains(), "the node's rules left chains")
	})
}
