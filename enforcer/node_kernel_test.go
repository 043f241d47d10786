package enforcer_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

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

// trafficOf are rules of the node by what they are about.
func trafficOf(rules []*policy.Rule) *policy.TrafficRules {
	var out policy.TrafficRules
	for _, r := range rules {
		of := out.Of(r.Traffic)
		list := &of.Egress
		if r.Ingress {
			list = &of.Ingress
		}
		*list = append(*list, r)
	}
	return &out
}

// everywhere are the interfaces of the node's rules that name none.
var everywhere = []string{"*"}

// nodeFailsafe is a failsafe of a range of ports, for every protocol with 0.
func nodeFailsafe(prefix string, protocol policy.Protocol, port uint16) policy.Failsafe {
	f := policy.Failsafe{Name: prefix, Out: true, Networks: []netip.Prefix{netip.MustParsePrefix(prefix)}, Ports: []policy.PortRange{{Protocol: protocol, First: port, Last: port}}}
	switch {
	case protocol == policy.AnyProtocol:
		f.Ports = nil
	case port == 0:
		f.Ports[0].Last = 65535
	}
	return f
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
		p.ordered, p.node = map[string][]*policy.Rule{}, &policy.Node{Name: "node", Addrs: p.nodeAddrs(), Interfaces: everywhere}
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
		p.node = &policy.Node{Name: "node", Addrs: own, Interfaces: everywhere}
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
		for _, chain := range strings.Split(chains(), "chain ") {
			if hook := "type filter hook "; strings.HasPrefix(chain, "node-") && strings.Contains(chain, hook) && !strings.Contains(chain, hook+"output") && !strings.Contains(chain, hook+"input") {
				t.Errorf("forwarded packets come to %s", chain)
			}
		}
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
