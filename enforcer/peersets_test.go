package enforcer

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// A pod that is known only once it is selected may have had connections before.
func TestNewPodsPeerConnectionsAreAdmitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.remote = append(w.remote, far("db", "10.2.0.1", "db"))
	w.netpols = append(w.netpols, netpol("np", "tcp/80 db"))
	w.apply(nil, pol("allow"))
	to, service := flow("10.1.0.5:1", "10.2.0.1:80"), flow("10.1.0.5:2", "10.96.0.1:443")
	service.Peer = addrPort("10.2.0.1:80")
	other, elsewhere := flow("10.1.0.5:3", "10.2.0.1:81"), flow("10.1.0.5:4", "10.2.0.2:80")
	for _, f := range []conntrack.Flow{to, service, other, elsewhere} {
		f.Mark = 0x2000
		w.flows.Track(f)
	}
	w.apply([]policy.Pod{pod("client", "10.1.0.5", "allow", "np")}, pol("allow"))
	if !w.admitted(to) || !w.admitted(service) || w.admitted(other) || w.admitted(elsewhere) {
		t.Errorf("admitted: to a peer %v, by its Service %v, to another port %v, to a stranger %v", w.admitted(to), w.admitted(service), w.admitted(other), w.admitted(elsewhere))
	}
}

// The peers of coming pods are there before the chains ask, and those of going ones
// until no chain asks any more. What both snapshots
// have is never away.
func TestPeersBetweenPrepareAndCommit(t *testing.T) {
	t.Parallel()
	w, client := asksPeers(t)
	closed := ""
	w.seams.before = func(step string) {
		if closed == "" && !w.reaches("10.1.0.5", "10.2.0.2:5432", policy.TCP) {
			closed = step
		}
	}
	w.remote = append(slices.Clone(w.remote[1:]), far("db9", "10.2.0.9", "db"))
	w.netpols = []*networkingv1.NetworkPolicy{netpol("np", "tcp/5432 db", "any db", "udp 10.9.0.0/16")}
	s := w.compile([]policy.Pod{client}, pol("allow", "tcp/443 www.example.org"))
	w.prepare(s)
	for _, to := range []string{"10.2.0.1:5432", "10.2.0.9:5432", "10.2.0.9:1", "10.2.0.4:80"} {
		if !w.reaches("10.1.0.5", to, policy.TCP) {
			t.Errorf("between two snapshots %s is closed", to)
		}
	}
	w.commit()
	if closed != "" {
		t.Errorf("what both allow is closed before: %s", closed)
	}
	for _, to := range []string{"10.2.0.1:5432", "10.2.0.4:80"} {
		if w.reaches("10.1.0.5", to, policy.TCP) {
			t.Errorf("%s is open", to)
		}
	}
}

// Who is behind the resolvers is known to the rule that notes who asks there, whether
// or not queries are led there while no agent is alive.
func TestBypassingPodsAreReported(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		w := newNode(t)
		w.cfg.FailClosed = closed
		w.restart()
		w.apply([]policy.Pod{pod("client", "10.1.0.5", "allow")}, pol("allow"))
		if got := w.e.Status().Bypassing; len(got) != 0 {
			t.Errorf("bypassing %v", got)
		}
		w.learns(intercept.Network{Backends: []netip.AddrPort{addrPort("10.2.0.9:53")}})
		if !strings.Contains(w.inet.Dump(), "add element inet namegate answering4 { 10.2.0.9 . 53 }") {
			t.Errorf("fail closed %v: nobody is behind the resolver:\n%s", closed, w.inet.Dump())
		}
		tx := w.inet.NewTransaction()
		tx.Add(&knftables.Element{Set: "bypassing4", Key: []string{"10.1.0.5"}})
		tx.Add(&knftables.Element{Set: "dnsrefused4", Key: []string{"10.1.0.6"}})
		fatal.If(t, w.inet.Run(context.Background(), tx))
		if got := w.e.Status().Bypassing; len(got) != 1 || got[0] != addr("10.1.0.5") {
			t.Errorf("bypassing %v", got)
		}
		if got := w.e.Status().DroppedTCP; len(got) != 1 || got[0] != addr("10.1.0.6") {
			t.Errorf("dropped connections of %v", got)
		}
	}
}
