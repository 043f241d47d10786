package denial

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestDeniedByTheNode: what rules of the node deny is the node's, with its direction and the rule of that traffic and
// direction that denies it.
func TestDeniedByTheNode(t *testing.T) {
	w := newWorld(t)
	rule := func(traffic policy.Traffic, ingress bool, name string, interfaces ...string) *policy.Rule {
		return &policy.Rule{Tier: policy.Admin, OfNode: policy.OfNode{Traffic: traffic, Interfaces: interfaces}, Ingress: ingress, Action: policy.Deny, Ports: policy.AnyPort, Policy: "edge", Path: name, Name: name}
	}
	v := policy.View{Pod: policy.Pod{PodRef: policy.NodeRef("n1"), IPs: policy.NodeSubjects}, Node: &policy.Node{Name: "n1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}, Traffic: &policy.TrafficRules{
		Local:     policy.Directions{Ingress: []*policy.Rule{rule(policy.Local, true, "elsewhere", "eth9"), rule(policy.Local, true, "in", "*")}},
		Forwarded: policy.Directions{Ingress: []*policy.Rule{rule(policy.Forwarded, true, "arriving", "*")}, Egress: []*policy.Rule{rule(policy.Forwarded, false, "leaving", "*")}},
		BeforeNAT: policy.Directions{Ingress: []*policy.Rule{rule(policy.BeforeNAT, true, "before", "*")}},
		Untracked: policy.Directions{Ingress: []*policy.Rule{rule(policy.Untracked, true, "untracked", "*")}},
	}}
	w.snap = policy.NewSnapshot(policy.Snapshot{Views: []*policy.View{&v}}, nil, nil)
	w.denials.o.Remote = func() []*policy.Pod { return []*policy.Pod{far} }
	const gone = 1 << 30                                    // the index of an interface
	owner := map[bool]*nflog.Owner{true: {UID: 42, GID: 7}} // of what a process of the node sends
	for _, p := range []struct {
		what, from, to string
		in, out        int
	}{
		{"Local ingress ", "203.0.113.7", "192.0.2.1:22", gone, 0},
		{"BeforeNAT ingress ", "203.0.113.7", "192.0.2.1:30080", gone, 0},
		{"Untracked ingress ", "203.0.113.7", "192.0.2.1:53", gone, 0},
		{"Forwarded ingress ", "203.0.113.7", "10.1.0.5:80", gone, gone},
		{"Forwarded ingress ", "10.2.0.9", "10.1.0.5:81", gone, gone},
		{"Forwarded egress ", "10.1.0.5", "203.0.113.7:80", gone, gone},
		{"Forwarded egress ", "10.2.0.9", "203.0.113.7:80", gone, gone},
		{"Untracked egress ", "192.0.2.1", "203.0.113.7:81", 0, gone}, // of rules that are gone since
		{"of another version", "192.0.2.1", "203.0.113.7:82", 0, gone},
	} {
		w.denials.take(nflog.Packet{Prefix: nflog.PrefixNode + p.what, Time: w.now, Source: netip.MustParseAddr(p.from), SourcePort: 40000, Destination: netip.MustParseAddrPort(p.to), Protocol: uint8(policy.TCP), In: p.in, Out: p.out, Owner: owner[p.in == 0]})
	}
	w.pass(settle)
	got := map[string]string{}
	for _, f := range w.denials.Recent(v.Pod.PodRef) {
		at, says := f.Dialled.String(), f.Direction()
		if f.Rule != nil {
			says += " " + f.Rule.Name
		}
		if f.SourcePod.Name != "" {
			says += " from " + f.SourcePod.Name
		}
		if f.Owner.Known {
			says += fmt.Sprint(" of ", f.Owner.UID)
		}
		if got[at] += says; f.Leaves {
			got[at] += " " + f.Source.String() + " "
		}
		if f.Reason != audit.ReasonRule {
			t.Errorf("%+v", f)
		}
	}
	diff.Error(t, map[string]string{
		"192.0.2.1:22": "ingress in", "192.0.2.1:30080": "ingress before", "192.0.2.1:53": "ingress untracked", "10.1.0.5:80": "ingress arriving", "10.1.0.5:81": "ingress arriving from far",
		"203.0.113.7:80": "egress leaving from far 10.2.0.9 egress leaving 10.1.0.5 ", "203.0.113.7:81": "egress of 42",
	}, got)
	counts := map[string]uint64{}
	for _, total := range w.denials.Totals() {
		counts[total.Direction] += total.Count
	}
	diff.Error(t, map[string]uint64{audit.Ingress: 5, audit.Egress: 3}, counts)
}

// TestWouldDenyByTheNode: what Audit policies of the node would deny, and what they would allow, has lines of each traffic
// and direction, and what a policy denies that enforces has none beside its denial.
func TestWouldDenyByTheNode(t *testing.T) {
	w := newWorld(t)
	rule := func(traffic policy.Traffic, ingress, audited bool, action policy.Action, ports policy.PortSet, name string) *policy.Rule {
		return &policy.Rule{Tier: policy.Admin, OfNode: policy.OfNode{Traffic: traffic, Interfaces: []string{"*"}}, Ingress: ingress, Audit: audited, Action: action, Ports: ports, Policy: "edge", Path: name, Name: name}
	}
	directions := func(t policy.Traffic) (d policy.Directions) {
		for _, in := range []bool{true, false} {
			rules := []*policy.Rule{rule(t, in, true, policy.Accept, "tcp/80", "soon"), rule(t, in, false, policy.Deny, "tcp/80-81", "now"), rule(t, in, true, policy.Deny, policy.AnyPort, "later")}
			if in {
				d.Ingress = rules
			} else {
				d.Egress = rules
			}
		}
		return d
	}
	v := policy.View{
		Pod: policy.Pod{PodRef: policy.NodeRef("n1"), IPs: policy.NodeSubjects}, Node: &policy.Node{Name: "n1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		Traffic: &policy.TrafficRules{Local: directions(policy.Local), Forwarded: directions(policy.Forwarded), BeforeNAT: directions(policy.BeforeNAT), Untracked: directions(policy.Untracked)},
	}
	v.Rules.Admin = v.Traffic.Local.Egress
	w.snap = policy.NewSnapshot(policy.Snapshot{Views: []*policy.View{&v}}, nil, nil)
	for kind, verdict := range map[string]string{nflog.PrefixNode: "denied", nflog.PrefixNodeAudited: "would-deny"} {
		for _, traffic := range traffics {
			for _, direction := range []string{audit.Ingress, audit.Egress} {
				from, to := "203.0.113.7", "192.0.2.1"
				if direction == audit.Egress {
					from, to = to, from
				}
				if traffic == policy.Local && direction == audit.Egress {
					continue
				}
				for port, want := range map[uint16][]string{
					80: {"denied now", "would-allow soon"}, 81: {"denied now"}, 82: {"would-deny later"},
				} {
					w.denials = New(w.denials.o)
					w.denials.take(nflog.Packet{
						Prefix: fmt.Sprintf("%s%s %s ", kind, traffic, direction), Time: w.now, Source: netip.MustParseAddr(from), SourcePort: 40000,
						Destination: netip.AddrPortFrom(netip.MustParseAddr(to), port), Protocol: uint8(policy.TCP),
					})
					var got []string
					for _, f := range w.denials.Recent(v.Pod.PodRef) {
						got = append(got, f.Verdict.String()+" "+f.Rule.Name)
						diff.Error(t, direction, f.Direction(), traffic, port)
					}
					if slices.Sort(got); !strings.HasPrefix(want[0], verdict) {
						want = nil
					}
					diff.Error(t, want, got, kind, traffic, direction, port)
				}
			}
		}
	}
}

// TestARuleThatComes: what the kernel denied by a rule that the snapshot does not have yet is counted for the rule, and what
// it denied by one that is gone for none, but for no other reason.
func TestARuleThatComes(t *testing.T) {
	w := newWorld(t)
	node := func(rules ...*policy.Rule) {
		v := &policy.View{
			Pod: policy.Pod{PodRef: policy.NodeRef("n1"), IPs: policy.NodeSubjects}, Node: &policy.Node{Name: "n1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
			Traffic: &policy.TrafficRules{}, Rules: policytest.Rules(rules...), Index: policy.NewIndex(nil, 0), Cluster: []*policy.Index{policy.NewIndex(rules, 0)},
		}
		v.Traffic.Local = policy.Directions{Ingress: rules, Egress: rules}
		w.snap = policy.NewSnapshot(policy.Snapshot{Views: []*policy.View{v}}, nil, nil)
	}
	denied := func() {
		for _, prefix := range []string{nflog.PrefixDenied, nflog.PrefixNode + "Local ingress "} {
			from, to := "192.0.2.1", "203.0.113.7:80"
			if prefix != nflog.PrefixDenied {
				from, to = "203.0.113.7", "192.0.2.1:80"
			}
			w.denials.take(nflog.Packet{Prefix: prefix, Time: w.now, Source: netip.MustParseAddr(from), SourcePort: 40000, Destination: netip.MustParseAddrPort(to), Protocol: uint8(policy.TCP)})
		}
	}
	node()
	denied()
	node(&policy.Rule{Tier: policy.Admin, OfNode: policy.OfNode{Interfaces: []string{"*"}}, Action: policy.Deny, Ports: policy.AnyPort, Policy: "edge", Name: "new"})
	w.pass(settle)
	w.expect("denied n1 tcp 203.0.113.7:80 rule Admin edge new x1 []", "denied n1 from 203.0.113.7 tcp 192.0.2.1:80 rule Admin edge new x1 []")
	w.pass(2 * period)
	node()
	denied()
	w.pass(settle)
	w.expect("denied n1 tcp 203.0.113.7:80 rule x1 []", "denied n1 from 203.0.113.7 tcp 192.0.2.1:80 rule x1 []")
}
