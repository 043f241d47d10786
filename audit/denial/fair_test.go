package denial

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// manyPods is a world with additional enforced pods.
func manyPods(t *testing.T, n int) *world {
	var more []policy.Pod
	for i := range n {
		name := fmt.Sprint("noisy", i)
		at[name] = netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)})
		t.Cleanup(func() { delete(at, name) })
		more = append(more, policy.Pod{PodRef: policytest.Ref(name), IPs: []netip.Addr{at[name]}, Labels: map[string]string{"mode": "enforce"}})
	}
	return newWorld(t, more...)
}

// TestManyNoisyPodsDoNotSuppressOthers: together they fill their shares of the counted flows, and leave one to a pod
// that comes later; none of their counts is lost.
func TestManyNoisyPodsDoNotSuppressOthers(t *testing.T) {
	const pods = 16
	w := manyPods(t, pods)
	logged := map[string]uint64{}
	read := func() {
		for _, f := range w.lines {
			logged[f.Pod.Name] += f.Count
		}
		w.lines = nil
	}
	for port := range countedFlows.Each {
		for i := range pods {
			for range 2 {
				w.denied(fmt.Sprint("noisy", i), "tcp", fmt.Sprintf("198.51.100.1:%d", 1+port))
			}
			w.now = w.now.Add(time.Millisecond)
		}
	}
	fair := countedFlows.All / (pods + 1)
	for p, n := range w.denials.flows.ofPod {
		if n < fair || n > fair+1 {
			t.Errorf("%s has %d flows where %d are fair", p, n, fair)
		}
	}
	read()
	for port := range 1000 {
		w.denied("a", "udp", fmt.Sprintf("198.51.100.9:%d", 1+port))
	}
	if n := len(w.lines); n < fair/2 || n > fair {
		t.Errorf("the pod that came later got %d flows where %d are fair", n, fair)
	}
	read()
	w.pass(2 * period)
	w.pass(2 * period)
	read()
	if f := &w.denials.flows; len(f.counted)+len(f.ofPod) != 0 {
		t.Errorf("%d flows of %d pods are counted for ever", len(f.counted), len(f.ofPod))
	}
	all := w.denials.Over()
	for _, n := range logged {
		all += n
	}
	diff.Equal(t, uint64(pods*countedFlows.Each*2+1000), all, "connections in lines or over")
}

// TestAnAddressOfManyNames: of names without end some are looked at.
func TestAnAddressOfManyNames(t *testing.T) {
	w := newWorld(t)
	for i := range 5000 {
		w.opened("other", fmt.Sprintf("n%d.example.org", i), "198.51.100.1", time.Minute)
	}
	diff.Equal(t, maxConsidered, len(names(nil, w.denials.o.GrantedToAnybody(netip.MustParseAddr("198.51.100.1")))), "names looked at")
	w.denied("a", "tcp", "198.51.100.1:443")
	if len(w.lines) != 1 || len(w.lines[0].Names) != maxNames {
		t.Errorf("lines: %+v", w.lines)
	}
}

// onNode is a node with a policy for nodes that allows updates.test on TCP 443 alone.
func onNode(t *testing.T, enforcement string) *world {
	w := newWorld(t)
	p := policytest.NodePolicy(t, "nodes", "{nodeSelector: {}, priority: 1, enforcement: "+enforcement+", egress: ["+
		"{action: Accept, matches: [{name: updates.test}], ports: [{protocol: TCP, port: 443}]}, {name: rest, action: Deny}]}")
	w.snap = compile.New().Compile(compile.Input{
		Pods:         []policy.Pod{{PodRef: policytest.Ref("c"), IPs: []netip.Addr{at["c"]}}},
		NodePolicies: []*v1alpha1.NodeNetworkPolicy{p},
		Node: &policy.Node{Name: "n1", Interfaces: []string{"eth0"}, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.7")},
			Failsafes: []policy.Failsafe{{Out: true, Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/28")}, Ports: []policy.PortRange{{Protocol: policy.TCP, First: 10250, Last: 10250}}}}},
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
