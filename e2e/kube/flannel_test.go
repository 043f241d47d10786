package kube

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/testkit/fatal"
)

// testFlannel: where flannel leads the packets of pods between nodes by VXLAN, nightly also over
// their network, policies and NetworkPolicies hold on both nodes, and nodes that are denied
// everything still carry the packets of pods.
func testFlannel(t *testing.T) {
	backends := []cluster.FlannelBackend{cluster.VXLAN}
	if nightly {
		backends = append(backends, cluster.HostGateway)
	}
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			// The pods of the scenario go before flannel does.
			t.Cleanup(func() {
				for _, n := range the.Nodes {
					if err := n.StopFlannel(); err != nil {
						t.Error(err)
					}
				}
			})
			for _, n := range the.Nodes {
				fatal.If(t, n.StartFlannel(t.Context(), backend))
			}
			s := begin(t, "flannel-"+string(backend))
			s.flannel(backend)
		})
	}
}

// flannel runs the scenario over a backend.
func (s *scenario) flannel(backend cluster.FlannelBackend) {
	db, cache := s.unionStage()
	s.carries(backend)
	s.apply(databaseOut, bank())
	for _, n := range nodes {
		s.enforced(soon, "shop-"+n)
		s.eventually(soon, "the peers on "+n, func() error { return s.got("shop-"+n, "tcp", db, 5432, works) })
		s.Run(n, func(t *testing.T) { s.on(t).union("shop-"+n, db, cache, 0) })
	}
	for _, n := range nodes {
		s.administrate(closed(n), `{tier: Admin, priority: 1, subject: {nodes: {matchLabels: {kubernetes.io/hostname: `+n+`}}}, egress: [{name: everything, action: Deny}], safeguard: {confirmWithin: 1m}}`)
		s.confirm(n)
	}
	for _, n := range nodes {
		s.clusterCondition(soon, closed(n), "True", "NoBlindSpot", "")
	}
	for _, n := range nodes {
		s.hostDials(n, raw, denied)
		s.Run("closed "+n, func(t *testing.T) {
			s := s.on(t)
			s.union("shop-"+n, db, cache, 0)
			fatal.If(t, s.reachesPods("plain-"+n))
		})
	}
}

// carries asserts that pods of the other node are reached as the backend leads there, and that
// the pods are on flannel's bridge.
func (s *scenario) carries(backend cluster.FlannelBackend) {
	s.Helper()
	for i, n := range nodes {
		from, to := the.Node(n), s.addresses("plain-"+nodes[1-i])
		for _, a := range to {
			link := "eth0"
			if backend == cluster.VXLAN {
				if link = "flannel.1"; netip.MustParseAddr(a).Is6() {
					link = "flannel-v6.1"
				}
			}
			if route, err := from.Run("ip", "route", "get", a); err != nil || !strings.Contains(route, " dev "+link+" ") {
				s.Errorf("%s reaches %s by %q, %v, not by %s", n, a, route, err, link)
			}
		}
		if ports, err := from.Run("ip", "-br", "link", "show", "master", "cni0"); err != nil || !strings.Contains(ports, "veth") {
			s.Errorf("cni0 of %s has the ports %q, %v", n, ports, err)
		}
	}
	for i, n := range nodes {
		s.eventually(patient, "pods of "+nodes[1-i]+" from "+n, func() error { return s.reachesPods("plain-" + n) })
	}
}

// reachesPods returns an error unless a pod that no policy selects reaches the databases on both
// nodes, in each family, by new connections.
func (s *scenario) reachesPods(from string) error {
	var errs []error
	for pod, port := range map[string]string{"db-a": "5432", "db-b": "5433"} {
		for _, a := range s.addresses(pod) {
			for range 4 { // each has a source port of its own of VXLAN
				if err := s.expect(from, "tcp", net.JoinHostPort(a, port), works); err != nil {
					errs = append(errs, fmt.Errorf("%s to %s: %w", from, pod, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}
