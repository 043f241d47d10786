package enforcer_test

import (
	"net"
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestDatagramsToAReusedAddress: a flow of UDP to a peer that is gone stops, for any
// new owner of its address and however long conntrack has the flow.
func TestDatagramsToAReusedAddress(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		db, other := p.Pod("db"), p.Pod("other")
		p.apply(egress("client", intstr.IntOrString{}, "db"))
		var cs []net.Conn
		for _, a := range []netip.Addr{db.Addr4, db.Addr6} {
			c, err := p.Pod("client").Dial("udp", netip.AddrPortFrom(a, 80).String(), lab.Limit)
			fatal.If(t, err)
			defer c.Close()
			for range 3 { // until it is assured
				p.goOn("to a peer", true, c)
			}
			cs = append(cs, c)
		}
		p.labels["db"], p.labels["other"] = "someone", "other db"
		p.apply()
		p.goOn("its peer is gone", false, cs...)
		p.expect("client", other.Addr4, 80, lab.Answered)
	})
}

// TestAuditedPodsPeersMarkNothing: what a NetworkPolicy allows a pod that is only audited
// leaves no admission behind that would outlast it.
func TestAuditedPodsPeersMarkNothing(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		p.audit = true
		p.apply(egress("client", port80, "db"))
		p.dial("client", p.Pod("db").Addr4, 80)
		p.dial("client", service6, 5432)
		client := p.Pod("client")
		flows, err := p.flows.Flows(conntrack.Query{Sources: []netip.Addr{client.Addr4, client.Addr6}, Mark: enforcer.DefaultMark, Mask: enforcer.DefaultMark})
		if err != nil || len(flows) != 0 {
			t.Errorf("connections %v are admitted, %v", flows, err)
		}
		if s := p.e.Status(); s.PeerSets != 0 {
			t.Errorf("%d sets for nobody", s.PeerSets)
		}
	})
}
