package enforcer_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
)

// eachComing runs a test with a client that gets its first address. appear prepares the
// snapshot in which it has that address.
func eachComing(t *testing.T, f func(t *testing.T, p *peering, appear func())) {
	for what, before := range map[string]func(p *peering){
		"a pod that nobody knew":        func(p *peering) { delete(p.labels, "client") },
		"a pod that had no address yet": func(p *peering) { p.addrs["client"] = nil },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			eachPeering(t, func(t *testing.T, p *peering) {
				labels := p.labels["client"]
				p.allowed, p.addrs = []string{"tcp/80 one.test"}, map[string][]netip.Addr{}
				f(t, p, func() {
					before(p)
					p.apply()
					p.labels["client"] = labels
					delete(p.addrs, "client")
					p.prepare()
				})
			})
		})
	}
}

// TestOpenedOnTheWayOnTheKernel: a connection that a pod opens between Prepare and Commit by a
// granted address is admitted from its first packet, so that no reply of it is cut when the pod
// becomes isolated; and nothing else that it opens is.
func TestOpenedOnTheWayOnTheKernel(t *testing.T) {
	t.Parallel()
	eachComing(t, func(t *testing.T, p *peering, appear func()) {
		appear()
		granted, other := outsides(1)[0], outsides(2)[0]
		p.answer("client", "one.test", granted)
		stays, cut := p.dial("client", granted, 80), p.dial("client", other, 80)
		p.admitted("before the pod is default-deny", stays)
		p.commit()
		p.admitted("when the pod is default-deny", stays)
		p.goOn("what is granted", true, stays)
		p.goOn("what is not granted", false, cut)
		p.probes("at last", "tcp", lab.Refused, 80, other)
	})
}

// TestOrderedRulesOfAComingPod: between Prepare and Commit the Namespace tier alone admits.
// What a rule of the Admin tier denies is cut when that comes into force.
func TestOrderedRulesOfAComingPod(t *testing.T) {
	t.Parallel()
	eachComing(t, func(t *testing.T, p *peering, appear func()) {
		p.ordered = map[string][]*policy.Rule{"client": {byName(policy.Admin, policy.Deny, policy.AnyPort, "deny", "deny.test")}}
		appear()
		shared, granted := outsides(1)[0], outsides(2)[0]
		p.answer("client", "deny.test", shared)
		p.answer("client", "one.test", shared, granted)
		cut, stays := p.dial("client", shared, 80), p.dial("client", granted, 80)
		p.commit()
		p.admitted("when the pod is default-deny", stays)
		p.goOn("what is granted", true, stays)
		p.goOn("what the Admin tier denies", false, cut)
	})
}

// admitted asserts which connections of the client over IPv4 are admitted.
func (p *peering) admitted(when string, want ...net.Conn) {
	p.t.Helper()
	flows, err := p.flows.Flows(conntrack.Query{Sources: []netip.Addr{p.Pod("client").Addr4}, Mark: enforcer.DefaultMark, Mask: enforcer.DefaultMark})
	if err != nil || len(flows) != len(want) {
		p.t.Errorf("%s: %d connections are admitted, want %d; %v", when, len(flows), len(want), err)
	}
	for i, c := range want {
		if i < len(flows) && flows[i].Src.String() != c.LocalAddr().String() {
			p.t.Errorf("%s: the connection from %s is admitted, want %s", when, flows[i].Src, c.LocalAddr())
		}
	}
}
