package denial

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

// TestDeniedByTheNode: what rules of the node deny is the node's, with its direction and the rule of that traffic and
// direction that denies it.
func TestDeniedByTheNode(t *testing.T) {
	w := newWorld(t)
	rule := func(traffic policy.Traffic, ingress bool, name string, interfaces ...string) *policy.Rule {
		return &policy.Rule{Tier: policy.Admin, Traffic: traffic, Ingress: ingress, Interfaces: interfaces, Action: policy.Deny, Ports: policy.AnyPort, Policy: "edge", Path: name, Name: name}
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
		{"Untracked egress ", "192.0.2.1", "203.0.113.7:81", 0, gone}, // of rules that are gone since
		{"of another version", "192.0.2.1", "203.0.113.7:82", 0, gone},
	} {
		w.denials.take(nflog.Packet{Prefix: nflog.PrefixNode + p.what, Time: w.now, Source: netip.MustParseAddr(p.from), SourcePort: 40000, Destination: netip.MustParseAddrPort(p.to), Protocol: uint8(policy.TCP), In: p.in, Out: p.out, Owner: owner[p.in == 0]})
	}
	got := map[string]string{}
	for _, f := range w.denials.Recent(v.Pod.PodRef) {
		got[f.Dialled.String()] = f.Direction()
		if f.Rule != nil {
			got[f.Dialled.String()] += " " + f.Rule.Name
		}
		if f.SourcePod.Name != "" {
			got[f.Dialled.String()] += " from " + f.SourcePod.Name
		}
		if f.Owner.Known {
			got[f.Dialled.String()] += fmt.Sprint(" of ", f.Owner.UID)
		}
		if f.Reason != audit.ReasonRule {
			t.Errorf("%+v", f)
		}
	}
	diff.Error(t, map[string]string{
		"192.0.2.1:22": "ingress in", "192.0.2.1:30080": "ingress before", "192.0.2.1:53": "ingress untracked", "10.1.0.5:80": "ingress arriving", "10.1.0.5:81": "ingress arriving from far",
		"203.0.113.7:80": "egress leaving", "203.0.113.7:81": "egress of 42",
	}, got)
	counts := map[string]uint64{}
	for _, total := range w.denials.Totals() {
		counts[total.Direction] += total.Count
	}
	diff.Error(t, map[string]uint64{audit.Ingress: 5, audit.Egress: 2}, counts)
}
