package denial

import (
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

var (
	probes = netip.MustParsePrefix("203.0.113.0/24") // which an Admin rule denies
	far    = &policy.Pod{PodRef: policy.PodRef{Namespace: "lab", Name: "far"}, NodeName: "n2", IPs: []netip.Addr{netip.MustParseAddr("10.2.0.9")}}
)

// toPods is a world in which NetworkPolicies isolate a for ingress, and an Admin rule denies a network to a and c.
func toPods(t *testing.T) *world {
	w := newWorld(t)
	peer := policy.Peer{Kind: policy.PeerNetworks, Key: probes.String()}
	deny := &policy.Rule{Tier: policy.Admin, Standard: true, Ingress: true, Action: policy.Deny, Peer: peer, Ports: policy.AnyPort, Policy: "cnp:no-probes", Path: "spec.ingress[0]", Name: "probes"}
	admin := policy.Rules{Admin: []*policy.Rule{deny}}
	a, c := *w.snap.ViewOf(policytest.Ref("a")), policy.View{Pod: policy.Pod{PodRef: policytest.Ref("c"), IPs: []netip.Addr{at["c"]}}, Workload: "app=c"}
	a.Ingress, c.Ingress = &policy.Ingress{Rules: admin, NetworkPolicies: []string{"shop/closed", "shop/front"}}, &policy.Ingress{Rules: admin}
	owners := map[netip.Addr]policy.PodRef{}
	for name, addr := range at {
		owners[addr] = policytest.Ref(name)
	}
	w.snap = policy.NewSnapshot(policy.Snapshot{Views: []*policy.View{&a, &c}, PeerSets: []*policy.PeerSet{{Peer: peer, Networks: []netip.Prefix{probes}}}}, w.snap.Pods(), owners)
	w.denials.o.Remote = func() []*policy.Pod { return []*policy.Pod{far} }
	return w
}

// arrives is a packet that the rules for ingress of its destination deny.
func (w *world) arrives(from, to string) {
	p := netip.MustParseAddrPort(to)
	w.denials.take(nflog.Packet{Prefix: nflog.PrefixIngress, Time: w.now, Source: netip.MustParseAddr(from), SourcePort: 40000, Destination: p, Protocol: uint8(policy.TCP)})
}

// TestDeniedIngress: a denied connection to a pod is the pod's, with its source and with the rule or the
// NetworkPolicies that deny it.
func TestDeniedIngress(t *testing.T) {
	w := toPods(t)
	w.arrives("203.0.113.7", "10.1.0.5:80")
	w.arrives("10.1.0.6", "10.1.0.5:80")
	w.arrives("10.2.0.9", "10.1.0.5:80")
	w.arrives("::ffff:203.0.113.7", "10.1.0.7:443")
	w.arrives("198.51.100.9", "10.1.0.7:443") // by rules that are gone since
	w.arrives("203.0.113.7", "10.9.9.9:80")   // to no pod
	w.arrives("10.1.0.6", "10.1.0.5:80")
	w.expect(
		"denied a from 203.0.113.7 tcp 10.1.0.5:80 rule Admin cnp:no-probes probes x1 []", "denied a from b tcp 10.1.0.5:80 isolated x1 []", "denied a from far tcp 10.1.0.5:80 isolated x1 []",
		"denied c from 203.0.113.7 tcp 10.1.0.7:443 rule Admin cnp:no-probes probes x1 []", "denied c from 198.51.100.9 tcp 10.1.0.7:443 isolated x1 []",
	)
	lines := w.denials.Recent(policytest.Ref("a"))
	if len(lines) != 3 || lines[0].Address != at["a"] || lines[0].Direction() != audit.Ingress {
		t.Fatalf("%+v", lines)
	}
	diff.Error(t, []string{"shop/closed", "shop/front"}, lines[0].Policies)
	w.pass(period)
	w.expect("denied a from b tcp 10.1.0.5:80 isolated x1 []")
	for _, total := range w.denials.Totals() {
		want := map[audit.FlowReason]uint64{audit.ReasonRule: 2, audit.ReasonIsolated: 4}[total.Reason]
		if total.Direction != audit.Ingress || total.Tier == policy.Baseline || total.Verdict != audit.Denied {
			want = 0
		}
		diff.Equal(t, want, total.Count, total)
	}
}

// TestOneDestinationIsFlooded: denied connections to one pod, from one source or from many, take the share of that
// pod alone, and as many as are counted.
func TestOneDestinationIsFlooded(t *testing.T) {
	w := toPods(t)
	for i := range 3 * countedFlows.Each {
		w.arrives(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}).String(), "10.1.0.5:80")
		w.arrives("198.51.100.9", netip.AddrPortFrom(at["a"], uint16(i+1)).String())
	}
	diff.Equal(t, countedFlows.Each, len(w.lines), "lines of the pod that is flooded")
	w.lines = nil
	w.arrives("198.51.100.9", "10.1.0.7:443")
	w.denied("c", "tcp", "198.51.100.1:80")
	w.denied("other", "tcp", "198.51.100.1:80")
	w.expect("denied c from 198.51.100.9 tcp 10.1.0.7:443 isolated x1 []", "denied c tcp 198.51.100.1:80 address x1 []", "denied other tcp 198.51.100.1:80 address x1 []")
	w.pass(2 * period)
	w.pass(2 * time.Minute)
	diff.Equal(t, 0, len(w.denials.flows.counted), "flows that are counted for ever")
}
