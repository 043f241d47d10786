package layout_test

import (
	"context"
	"errors"
	"fmt"
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
	s.Node.Audited = &layout.NodeRules{In: s.Node.In, Out: s.Node.Out, Traffic: s.Node.Traffic}
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
		logged := func(prefix string) (all []nflog.Packet) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, p := range w.heard {
				if p.Prefix == prefix && p.Destination == test.to {
					all = append(all, p)
				}
			}
			return all
		}
		audited := strings.Replace(test.prefix, "node ", "node-audited ", 1)
		for _, prefix := range []string{test.prefix, audited} {
			denies, rules := prefix == test.prefix, layout.NodeRules{}
			if prefix == nflog.PrefixDenied && !denies {
				continue
			}
			list := &rules.Traffic[test.traffic].Ingress
			if test.egress {
				list = &rules.Traffic[test.traffic].Egress
			}
			*list = []layout.NodeList{{Interfaces: []string{"*"}, Rules: []*layout.TierRule{{Action: layout.Drop}}}}
			if s.Node = (&layout.Node{ID: prefix, Accepted: 0x10, NodeRules: rules}); !denies {
				s.Node.NodeRules, s.Node.Audited = layout.NodeRules{}, &rules
			}
			w.apply(s)
			if got := test.from.ProbeFor("tcp", test.to, lab.Patience); denies != (got == lab.Silent) {
				t.Errorf("%s: %v", prefix, got)
			}
			fatal.Await(t, prefix, func() bool { return len(logged(prefix)) > 0 })
			p := logged(prefix)[0]
			diff.Equal(t, test.in, p.In == out0.Index, prefix, "in by", p.In)
			diff.Equal(t, test.out0, p.Out == out0.Index, prefix, "out by", p.Out)
		}
	}
}

// TestWhatTheNodeWouldDenyIsLoggedOnce: a connection that repeats is logged once in a while by each hook that asks about
// it, whatever others log. What a rule before accepts is logged by none.
func TestWhatTheNodeWouldDenyIsLoggedOnce(t *testing.T) {
	t.Parallel()
	w := listen(t, lab.Routed)
	s, from, pod := w.state, w.World, netip.AddrPortFrom(w.Pod("c").Addr4, 80)
	s.Node = &layout.Node{ID: "audited", Accepted: 0x10, Audited: &layout.NodeRules{}}
	denied := []layout.NodeList{{Interfaces: []string{"*"}, Rules: []*layout.TierRule{{Action: layout.Drop}}}}
	s.Node.Audited.Traffic[policy.BeforeNAT].Ingress, s.Node.Audited.Traffic[policy.Forwarded].Ingress, s.Node.Audited.Traffic[policy.Forwarded].Egress = denied, denied, denied
	logged := func(accepted bool, want ...string) {
		t.Helper()
		for _, network := range []string{"tcp", "udp"} { // the pod serves neither
			diff.Equal(t, lab.Refused, from.ProbeFor(network, pod, lab.Limit), network)
		}
		var got []string
		read := func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			got = nil
			for _, p := range w.heard {
				if strings.HasPrefix(p.Prefix, nflog.PrefixNodeAudited) && p.Destination == pod {
					got = append(got, words(p))
				}
			}
			slices.Sort(got)
			return len(got) >= len(want)
		}
		fatal.Await(t, fmt.Sprint(want), read)
		w.loggedSoFar("c")
		read()
		diff.Equal(t, fmt.Sprint(want), fmt.Sprint(got), "accepted before:", accepted)
		w.mu.Lock()
		w.heard = nil
		w.mu.Unlock()
	}
	var all []string
	for _, traffic := range []string{"BeforeNAT ingress", "Forwarded egress", "Forwarded ingress"} {
		all = append(all, "namegate node-audited "+traffic+" tcp "+pod.String(), "namegate node-audited "+traffic+" udp "+pod.String())
	}
	w.apply(s)
	logged(false, all...)
	logged(false)
	_, err := w.Node.Run("nft", "flush set inet namegate watched4")
	fatal.If(t, err)
	s.Node.ID = "accepted"
	s.Node.Traffic[policy.BeforeNAT].Ingress = []layout.NodeList{{Interfaces: []string{"*"}, Rules: []*layout.TierRule{{}}}}
	w.apply(s)
	logged(true, all[:2]...)
}
