package denial

import (
	"net/netip"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// onNode is a node with a policy for nodes that allows updates.test on TCP 443 alone.
func onNode(t *testing.T, enforcement string) *world {
	w := newWorld(t)
	p := &v1alpha1.ClusterFQDNNetworkPolicy{}
	p.Name = "nodes"
	fatal.If(t, yaml.UnmarshalStrict([]byte("{tier: Admin, priority: 1, subject: {nodes: {}}, enforcement: "+enforcement+", egress: ["+
		"{action: Accept, matches: [{name: updates.test}], ports: [{protocol: TCP, port: 443}]}, {name: rest, action: Deny}]}"), &p.Spec))
	w.snap = compile.New().Compile(compile.Input{
		Pods:            []policy.Pod{{PodRef: policytest.Ref("c"), IPs: []netip.Addr{at["c"]}}},
		ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{p},
		Node: &policy.Node{Name: "n1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.7")},
			Failsafes: []policy.Failsafe{{Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/28")}, Ports: []policy.PortRange{{Protocol: policy.TCP, First: 10250, Last: 10250}}}}},
	})
	return w
}

// ofNode takes a packet of a socket of the node.
func (w *world) ofNode(prefix, from, to string, owner *nflog.Owner) {
	w.denials.take(nflog.Packet{Prefix: prefix, Time: w.now, Source: netip.MustParseAddr(from), SourcePort: 40000, Destination: netip.MustParseAddrPort(to), Protocol: uint8(policy.TCP), Owner: owner})
	w.pass(settle)
}

// TestTheNodesFlows: flows of the node name the node and the owner of the socket, one flow for each
// owner. Failsafes and allowed names are no flows; neither are the packets of pods that are free.
func TestTheNodesFlows(t *testing.T) {
	root, proxy := &nflog.Owner{}, &nflog.Owner{UID: 13, GID: 14}
	for enforcement, want := range map[string]struct {
		prefix  string
		verdict audit.FlowVerdict
	}{"Enforce": {nflog.PrefixDenied, audit.Denied}, "Audit": {nflog.PrefixAudited, audit.WouldDeny}} {
		w := onNode(t, enforcement)
		w.memory.Note(&audit.Record{Time: w.now, Pod: policy.NodeRef("n1"), Name: policytest.Name("other.test"), Verdict: audit.Unmatched,
			Answers: []audit.Answer{{Addr: netip.MustParseAddr("198.51.100.1"), TTL: 60}}})
		w.granted = append(w.granted, policy.GrantInfo{Pod: policy.NodeRef("n1"), Name: policytest.Name("updates.test"), Addr: netip.MustParseAddr("198.51.100.2"), Until: w.now.Add(time.Hour)})
		w.ofNode(want.prefix, "192.0.2.7", "198.51.100.1:443", root)
		w.ofNode(want.prefix, "192.0.2.7", "198.51.100.1:443", root)
		w.ofNode(want.prefix, "192.0.2.7", "198.51.100.1:443", proxy)
		w.ofNode(want.prefix, "192.0.2.7", "198.51.100.1:443", nil)
		w.ofNode(want.prefix, "192.0.2.8", "198.51.100.1:443", root) // an address that it has only just got
		w.ofNode(want.prefix, "192.0.2.9", "198.51.100.1:443", nil)
		if enforcement == "Audit" {
			w.ofNode(want.prefix, "192.0.2.7", "192.0.2.3:10250", root)
			w.ofNode(want.prefix, "192.0.2.7", "198.51.100.2:443", root)
			w.ofNode(want.prefix, at["c"].String(), "198.51.100.1:443", nil)
		}
		type flow struct {
			Pod     policy.PodRef
			Address string
			Owner   audit.Owner
		}
		n1 := policy.NodeRef("n1")
		wanted := []flow{
			{n1, "192.0.2.7", audit.Owner{Known: true}}, {n1, "192.0.2.7", audit.Owner{Known: true, UID: 13, GID: 14}}, {n1, "192.0.2.7", audit.Owner{}},
		}
		var got []flow
		for _, f := range w.lines {
			got = append(got, flow{f.Pod, f.Address.String(), f.Owner})
			if f.Verdict != want.verdict || f.Reason != audit.ReasonRule || f.Rule.Name != "rest" || f.Dialled.String() != "198.51.100.1:443" || len(f.Names) != 1 || f.Names[0].Name != policytest.Name("other.test") {
				t.Errorf("%s: %+v", enforcement, f)
			}
		}
		diff.Error(t, wanted, got, enforcement)
		if recent := w.denials.Recent(n1); len(recent) != 3 {
			t.Errorf("%s: %d recent flows of the node", enforcement, len(recent))
		}
	}
}
