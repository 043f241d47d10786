package policy_test

import (
	"net/netip"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

func networks(list ...string) (out []netip.Prefix) {
	for _, n := range list {
		out = append(out, netip.MustParsePrefix(n))
	}
	return out
}

func TestFailsafe(t *testing.T) {
	tcp := func(first, last uint16) policy.PortRange {
		return policy.PortRange{Protocol: policy.TCP, First: first, Last: last}
	}
	nodes := policy.Failsafe{Networks: networks("192.0.2.0/24", "2001:db8::/64"), Ports: []policy.PortRange{tcp(179, 179), tcp(2379, 2380), {Protocol: policy.UDP, First: 8472, Last: 8472}, {Protocol: policy.ESP, Last: 65535}}}
	pods := policy.Failsafe{Networks: networks("198.51.100.0/24")}
	for _, c := range []struct {
		f        policy.Failsafe
		protocol policy.Protocol
		to       string
		want     bool
	}{
		{nodes, policy.TCP, "192.0.2.9:2380", true},
		{nodes, policy.TCP, "[::ffff:192.0.2.9]:179", true},
		{nodes, policy.TCP, "[2001:db8::9]:179", true},
		{nodes, policy.TCP, "192.0.2.9:2381", false},
		{nodes, policy.UDP, "192.0.2.9:179", false},
		{nodes, policy.UDP, "192.0.2.9:8472", true},
		{nodes, policy.TCP, "192.0.3.9:179", false},
		{nodes, policy.ESP, "192.0.2.9:0", true},
		{nodes, policy.IPIP, "192.0.2.9:0", false},
		{pods, policy.UDP, "198.51.100.7:8472", true},
		{pods, 1, "198.51.100.7:0", true},
	} {
		diff.Equal(t, c.want, c.f.Contains(c.protocol, netip.MustParseAddrPort(c.to)), c.f, c.protocol, "to", c.to)
	}
	diff.Equal(t, "TCP 179 2379-2380, UDP 8472, ESP; every protocol", nodes.PortText()+"; "+pods.PortText())
}

// TestFailsafesComeFirst: a node reaches itself and its failsafes, by what is dialled or what is
// reached, and its rules decide the rest.
func TestFailsafesComeFirst(t *testing.T) {
	deny := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Ports: policy.AnyPort}
	v := &policy.View{Pod: policy.Pod{PodRef: policy.NodeRef("n1"), IPs: policy.NodeSubjects}, Rules: policy.Rules{Admin: []*policy.Rule{deny}}, Node: &policy.Node{
		Addrs:     []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Failsafes: []policy.Failsafe{{Out: true, Networks: networks("198.51.100.0/24"), Ports: []policy.PortRange{{Protocol: policy.TCP, First: 443, Last: 443}}}},
	}}
	for _, c := range []struct {
		dialled, reached string
		want             bool
	}{
		{"127.0.0.9:80", "127.0.0.9:80", true},
		{"192.0.2.1:80", "192.0.2.1:80", true},
		{"203.0.113.1:80", "192.0.2.1:80", true}, // a Service that leads here
		{"198.51.100.7:443", "203.0.113.9:8443", true},
		{"203.0.113.1:443", "198.51.100.7:443", true},
		{"198.51.100.7:80", "198.51.100.7:80", false},
		{"192.0.2.2:443", "192.0.2.2:443", false},
	} {
		f := policy.Flow{Protocol: policy.TCP, Dialled: netip.MustParseAddrPort(c.dialled), Reached: netip.MustParseAddrPort(c.reached), Implied: true}
		if got, by := policy.Evaluate(v, nil, &f); got != c.want || !got && by != deny {
			t.Errorf("%s, which leads to %s: %t by %v", c.dialled, c.reached, got, by)
		}
	}
}

// TestWideNetworksListNothing: a failsafe that yields does not yield to a network that stands for
// every destination.
func TestWideNetworksListNothing(t *testing.T) {
	for network, want := range map[string]bool{"0.0.0.0/0": true, "8.0.0.0/6": true, "10.0.0.0/8": false, "10.1.0.0/16": false, "10.1.2.3/32": false} {
		set := &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerNetworks, Key: "n"}, Networks: []netip.Prefix{netip.MustParsePrefix(network)}}
		v := &policy.View{Pod: policy.Pod{PodRef: policy.NodeRef("n1"), IPs: policy.NodeSubjects}, Rules: policy.Rules{Admin: []*policy.Rule{{Tier: policy.Admin, Action: policy.Deny, Ports: policy.AnyPort, Peer: set.Peer}}},
			Node: &policy.Node{Failsafes: []policy.Failsafe{{Out: true, Networks: networks("10.1.0.0/16"), Yields: true}}}}
		at := netip.MustParseAddrPort("10.1.2.3:443")
		if got, _ := policy.Evaluate(v, &policy.Snapshot{PeerSets: []*policy.PeerSet{set}}, &policy.Flow{Protocol: policy.TCP, Dialled: at, Reached: at}); got != want {
			t.Errorf("Deny of %s: %t", network, got)
		}
	}
}

// TestFailsafesYield: a rule that lists an address decides about it although a failsafe that
// yields has it, and no other address of that failsafe.
func TestFailsafesYield(t *testing.T) {
	listed := &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerNetworks, Key: "n"}, Networks: networks("10.1.2.0/24")}
	named := &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerPorts, Key: "p"}, Ports: []policy.PeerPort{{Addr: netip.MustParseAddr("10.1.9.9"), Protocol: policy.TCP, Port: 80}}}
	in := &policy.Snapshot{PeerSets: []*policy.PeerSet{listed, named}}
	rules := func(audit bool) policy.Rules {
		return policy.Rules{
			Admin: []*policy.Rule{
				{Action: policy.Deny, Ports: "tcp/80", Peer: listed.Peer, Audit: audit}, {Action: policy.Deny, Ports: policy.AnyPort, Peer: named.Peer, Audit: audit},
				{Action: policy.Deny, Ports: policy.AnyPort},
			},
		}
	}
	for _, c := range []struct {
		yields, audit, would bool
		to                   string
		want                 bool
	}{
		{true, false, false, "10.1.2.3:80", false},
		{true, false, false, "10.1.2.3:81", false}, // by the rule for everything: the failsafe has the address no more
		{true, false, false, "10.1.3.3:80", true},
		{true, false, false, "10.1.9.9:80", false},
		{true, false, false, "10.1.9.9:81", false},
		{false, false, false, "10.1.2.3:80", true},
		{true, true, false, "10.1.2.3:80", true},
		{true, true, true, "10.1.2.3:80", false},
	} {
		v := &policy.View{Pod: policy.Pod{PodRef: policy.NodeRef("n1"), IPs: policy.NodeSubjects}, Rules: rules(c.audit), Node: &policy.Node{
			Failsafes: []policy.Failsafe{{Out: true, Networks: networks("10.1.0.0/16"), Yields: c.yields}},
		}}
		at := netip.MustParseAddrPort(c.to)
		if got, _ := policy.Evaluate(v, in, &policy.Flow{Protocol: policy.TCP, Dialled: at, Reached: at, Would: c.would}); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
