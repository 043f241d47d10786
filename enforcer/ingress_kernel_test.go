package enforcer_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/testkit/fatal"
)

// lister is connection tracking of which a test notices each listing, before anything follows from it.
type lister struct {
	*conntrack.Kernel
	p *peering
}

func (l lister) Flows(q conntrack.Query) ([]conntrack.Flow, error) {
	out, err := l.Kernel.Flows(q)
	if l.p.looked != nil {
		l.p.looked(q)
	}
	return out, err
}

// ingressOf is a NetworkPolicy that lets pods with the label from reach those with the label to.
func ingressOf(to, from string) *networkingv1.NetworkPolicy {
	n := netpol(to)
	n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{from: "yes"}}}}}}
	return n
}

// TestReplyWhileIngressRulesBegin: a connection begins behind the look at those that are open, and before rules for
// ingress judge it. Its first reply is under way when these are in force, and arrives.
func TestReplyWhileIngressRulesBegin(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		p.labels["client"], p.ingress = "client", true
		web, stays := ingressOf("db", "client"), ingressOf("other", "client")
		for _, step := range []struct {
			when  string
			first []*networkingv1.NetworkPolicy // in force before
			next  []*networkingv1.NetworkPolicy
		}{
			{"at the start", nil, []*networkingv1.NetworkPolicy{web, stays}},
			{"beside another subject", []*networkingv1.NetworkPolicy{stays}, []*networkingv1.NetworkPolicy{web, stays}},
			{"alone", []*networkingv1.NetworkPolicy{}, []*networkingv1.NetworkPolicy{web}},
		} {
			if step.first != nil {
				p.apply(step.first...)
			}
			p.answersBetween(step.when, step.next)
		}
	})
}

// answersBetween brings NetworkPolicies into force. Behind the first look at connections to pods the client opens one of
// each family to db, which answers behind the next look, before anything follows from that.
func (p *peering) answersBetween(when string, netpols []*networkingv1.NetworkPolicy) {
	p.t.Helper()
	db := p.Pod("db")
	var servers []net.PacketConn
	var clients []net.Conn
	for _, a := range []netip.Addr{db.Addr4, db.Addr6} {
		at := netip.AddrPortFrom(a, 9000).String()
		server, err := db.ListenPacket("udp", at)
		fatal.If(p.t, err)
		defer server.Close()
		client, err := p.Pod("client").Dial("udp", at, lab.Limit)
		fatal.If(p.t, err)
		defer client.Close()
		fatal.If(p.t, errors.Join(server.SetDeadline(time.Now().Add(lab.Limit)), client.SetDeadline(time.Now().Add(lab.Limit))))
		servers, clients = append(servers, server), append(clients, client)
	}
	from, looks, b := make([]net.Addr, len(servers)), 0, make([]byte, 1)
	p.looked = func(q conntrack.Query) {
		if len(q.Peers) == 0 {
			return
		}
		looks++
		for i := range servers {
			var err error
			switch looks {
			case 1:
				if _, err = clients[i].Write(b); err == nil {
					_, from[i], err = servers[i].ReadFrom(b)
				}
			case 2:
				if _, err = servers[i].WriteTo(b, from[i]); err == nil {
					_, err = clients[i].Read(b)
				}
			}
			if err != nil {
				p.t.Errorf("%s, behind look %d: %v", when, looks, err)
			}
		}
	}
	p.apply(netpols...)
	if p.looked = nil; looks < 2 {
		p.t.Errorf("%s: %d looks at connections to pods", when, looks)
	}
}
