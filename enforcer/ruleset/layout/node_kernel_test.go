package layout_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// withNode adds rules of the node of every form to a state.
func withNode(s layout.State) layout.State {
	tcp := func(port uint16) []policy.PortRange {
		return []policy.PortRange{{Protocol: policy.TCP, First: port, Last: port}}
	}
	s.Entries = append(slices.Clone(s.Entries), "a01", "d02")
	s.Peers = append(slices.Clone(s.Peers),
		layout.PeerSet{Name: "kubelets", Kind: policy.PeerNetworks, Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:5::/64")}},
		layout.PeerSet{Name: "near", Kind: policy.PeerNetworks, Networks: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}},
	)
	s.NodeAudited = true
	s.Node = &layout.Node{
		ID: "0123456789abcdef",
		NodeRules: layout.NodeRules{
			In: []*layout.TierRule{{Peers: "near", Ports: tcp(22)}},
			Out: []*layout.TierRule{{Peers: "kubelets", Ports: tcp(10250)}, {Peers: "near", Ports: []policy.PortRange{{Protocol: 89, Last: 65535}}}, {Peers: "near"},
				{Peers: "kubelets", Ports: []policy.PortRange{{Protocol: 58, Last: 65535}}}, {Peers: "kubelets", Ports: []policy.PortRange{{Protocol: 2, Last: 65535}}}},
		},
		Confirmed: &layout.NodeRules{Out: []*layout.TierRule{{Peers: "near"}}},
	}
	for t := range s.Node.Traffic {
		s.Node.Traffic[t].Ingress = []layout.NodeList{{Interfaces: []string{"eth0", "eth*", "*", "fifteen-chars-x", "öööööööööö", "öööööööööö*"}, Rules: []*layout.TierRule{{Peers: "near", Ports: tcp(82)}, {Action: layout.Reject}}}}
		if policy.Traffic(t) != policy.BeforeNAT {
			s.Node.Traffic[t].Egress = []layout.NodeList{{Interfaces: []string{"eth0"}, Rules: []*layout.TierRule{{Peers: "near", Ports: tcp(82)}}}, {Interfaces: []string{"*"}, Rules: []*layout.TierRule{{Action: layout.Drop}}}}
		}
		s.Node.Confirmed.Traffic[t].Ingress = []layout.NodeList{{Interfaces: []string{"*"}, Rules: []*layout.TierRule{{Peers: "near", Action: layout.Drop}}}}
	}
	s.Node.Traffic[policy.Local].Egress[0].Rules = []*layout.TierRule{{Entries: "a01", Ports: tcp(443)}, {Entries: "d02", Action: layout.Drop}, {Ports: tcp(81), Action: layout.Reject}}
	s.Node.Confirmed.Traffic[policy.Local].Egress = []layout.NodeList{{Interfaces: []string{"*"}, Rules: []*layout.TierRule{{Entries: "d02", Action: layout.Drop}}}}
	return s
}

// TestTheNodesRulesComeAndGo: they add chains and sets of their own and change no other object;
// when they go nothing is left.
func TestTheNodesRulesComeAndGo(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]layout.State{"nothing": {}, "pods": full, "tiers": tiered()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, tables, s := context.Background(), inKernel(t), withNode(of)
			fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, of)))
			without := ruleset(t)
			if strings.Contains(without, "hook output priority filter - 10") {
				t.Fatalf("a chain of the output hook without rules of the node:\n%s", without)
			}
			fatal.If(t, tables.Apply(ctx, s))
			verified(t, tables, s)
			with := ruleset(t)
			if !strings.Contains(with, "hook output priority filter - 10") {
				t.Fatalf("no chain of the output hook:\n%s", with)
			}
			for line := range strings.Lines(without) {
				diff.Has(t, line, with, "with the node's rules")
			}
			// A later agent takes over what is there, whatever it wants: a rule goes, and members change.
			changed := withNode(of)
			changed.Node.ID, changed.Node.Traffic[policy.Local].Egress = "fedcba9876543210", changed.Node.Traffic[policy.Local].Egress[1:]
			changed.Peers[len(changed.Peers)-2].Networks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25")}
			for _, next := range []layout.State{s, of, s, changed, s} {
				tables = laterAgent(t)
				fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, next)))
				verified(t, tables, next)
			}
			fatal.If(t, tables.Apply(ctx, changed))
			verified(t, tables, changed)
			fatal.If(t, tables.Apply(ctx, of))
			diff.Error(t, without, ruleset(t), "the node's rules left something")
			fatal.If(t, errors.Join(tables.Apply(ctx, s), tables.Remove(ctx)))
			diff.Equal(t, "", ruleset(t), "after the removal")
		})
	}
}

// TestTheNodesRulesAreRepaired: what another program does to them is found and repaired.
func TestTheNodesRulesAreRepaired(t *testing.T) {
	t.Parallel()
	s := withNode(full)
	tables := written(t, s)
	repaired(t, tables, s, tables.Apply, map[string]string{
		"flush chain inet namegate node-output":                             "nft chain inet namegate node-output",
		"delete chain inet namegate node-output":                            "nft chain inet namegate node-output",
		"insert rule inet namegate node-output accept":                      "nft chain inet namegate node-output",
		"flush chain inet namegate node-audited":                            "nft chain inet namegate node-audited",
		"flush chain inet namegate node-output-rejected":                    "nft chain inet namegate node-output-rejected",
		"flush set inet namegate peers-kubelets-4":                          "nft set inet namegate peers-kubelets-4",
		"delete element inet namegate peers-kubelets-6 { 2001:db8:5::/64 }": "nft set inet namegate peers-kubelets-6",
		"delete chain inet namegate node-output; add chain inet namegate node-output { type filter hook output priority 5; }": "nft chain inet namegate node-output",
	})
}

// TestHeldRules: a Rewrite holds the rules that wait for confirmation, and what others add to the sets
// is removed.
func TestHeldRules(t *testing.T) {
	t.Parallel()
	ctx, tables, s := context.Background(), inKernel(t), withNode(layout.State{})
	holds := func(when string, want bool) {
		t.Helper()
		for _, set := range []string{"nodeheld4", "nodeheld6"} {
			out, err := exec.Command("nft", "list", "set", "inet", "namegate", set).CombinedOutput()
			fatal.If(t, err)
			if got := strings.Contains(string(out), "expires"); got != want || strings.Contains(string(out), "*") {
				t.Errorf("%s: %s", when, out)
			}
		}
	}
	flush := func() {
		piped(t, "flush set inet namegate nodeheld4; flush set inet namegate nodeheld6")
	}
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Rewrite(ctx, s)))
	holds("rewritten", true)
	verified(t, tables, s)
	flush()
	verified(t, tables, s)
	holds("after its time", false)
	fatal.If(t, tables.HoldUnconfirmed(ctx))
	holds("held", true)
	piped(t, "add element inet namegate nodeheld4 { * }")
	verified(t, tables, s, "nft set inet namegate nodeheld4")
	fatal.If(t, tables.Apply(ctx, s))
	holds("repaired", true)
	s.Node.Confirmed = nil
	s.Node.ID = "confirmed"
	flush()
	fatal.If(t, tables.Rewrite(ctx, s))
	holds("confirmed", false)
}

// TestTheNodesDenialsAreLogged: what rules of the node deny is logged with the traffic, the direction and the interfaces.
func TestTheNodesDenialsAreLogged(t *testing.T) {
	t.Parallel()
	w := listen(t, lab.Routed)
	var out0 *net.Interface
	fatal.If(t, w.Node.Do(func() (err error) { out0, err = net.InterfaceByName("out0"); return err }))
	uplink, pod, outside := netip.MustParseAddrPort("192.168.77.1:81"), netip.AddrPortFrom(w.Pod("c").Addr4, 80), netip.MustParseAddrPort("198.51.100.1:80")
	for _, test := range []struct {
		traffic  policy.Traffic
		egress   bool
		from     *lab.Host
		to       netip.AddrPort
		prefix   string
		in, out0 bool
	}{
		{policy.Local, false, w.World, uplink, "namegate node Local ingress ", true, false},
		{policy.Local, true, w.Node, outside, "namegate denied ", false, true},
		{policy.Forwarded, false, w.World, pod, "namegate node Forwarded ingress ", true, false},
		{policy.Forwarded, true, w.World, pod, "namegate node Forwarded egress ", true, false},
		{policy.BeforeNAT, false, w.World, uplink, "namegate node BeforeNAT ingress ", true, false},
		{policy.Untracked, false, w.World, uplink, "namegate node Untracked ingress ", true, false},
		{policy.Untracked, true, w.Node, outside, "namegate node Untracked egress ", false, true},
	} {
		s := w.state
		s.Node = &layout.Node{ID: test.prefix, Accepted: 0x10}
		lists := &s.Node.Traffic[test.traffic]
		list := &lists.Ingress
		if test.egress {
			list = &lists.Egress
		}
		*list = []layout.NodeList{{Interfaces: []string{"*"}, Rules: []*layout.TierRule{{Action: layout.Reject}}}}
		w.apply(s)
		if got := test.from.ProbeFor("tcp", test.to, lab.Patience); got == lab.Answered {
			t.Errorf("%s: answered", test.prefix)
		}
		var p nflog.Packet
		fatal.Await(t, test.prefix, func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			at := slices.IndexFunc(w.heard, func(p nflog.Packet) bool { return p.Prefix == test.prefix && p.Destination == test.to })
			if at >= 0 {
				p = w.heard[at]
			}
			return at >= 0
		})
		diff.Equal(t, test.in, p.In == out0.Index, test.prefix, "in by", p.In)
		diff.Equal(t, test.out0, p.Out == out0.Index, test.prefix, "out by", p.Out)
	}
}
