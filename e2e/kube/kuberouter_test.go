package kube

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/testkit/fatal"
)

// swaps is how long kube-router may refuse an allowed connection: five of its periods. It
// numbers the sets of a port's name in a random order, again in each period, and writes
// the sets before the rules. Between the two, db-a is in the set of db-b's number.
const swaps = 10 * time.Second

// testKubeRouter: beside kube-router, which enforces NetworkPolicies from the top of the
// filter table and rewrites it every two seconds, connections that either allows work on both
// nodes, with the NetworkPolicies that check prints, applied unchanged. Nightly: without it only connections that both allow work, and a
// restart of kube-router loses no query.
func testKubeRouter(t *testing.T) {
	s := begin(t, "kuberouter")
	db, cache := s.unionStage()
	s.run(webManifests()...)
	web := "web." + s.ns + ".svc.cluster.local"
	for _, n := range the.Nodes {
		fatal.If(t, n.StartKubeRouter(s.ctx))
		defer func() {
			if err := n.StopKubeRouter(); err != nil {
				t.Error(err)
			}
		}()
	}
	s.apply(dnsOnly, databaseOut)
	for _, n := range nodes {
		s.enforced(patient, "shop-"+n) // by kube-router: no policy of ours is there yet
		s.eventually(patient, "kube-router lets the database through", func() error { return s.got("shop-"+n, "tcp", db, 5432, works) })
	}
	s.apply(bank(), policy("web", `{podSelector: {matchLabels: {app: shop}}, egress: [{matches: [{name: `+web+`}], ports: [{protocol: TCP, port: 80}]}]}`))
	if nightly {
		for _, n := range nodes {
			s.eventually(soon, "kube-router drops intercepted queries", func() error {
				if err := s.got("shop-"+n, "tcp", "bank.test", 443, works); err == nil {
					return fmt.Errorf("the bank of shop-%s answers without a NetworkPolicy for kube-router", n)
				}
				return nil
			})
		}
	}
	s.apply(s.forEngine("shop-node-a", "bank.test:443"))
	for _, n := range nodes {
		s.eventually(patient, "kube-router obeys it on "+n, func() error {
			return errors.Join(s.got("shop-"+n, "tcp", "bank.test", 443, works), s.got("shop-"+n, "tcp", web, 80, works), s.got("shop-"+n, "tcp6", web, 80, works))
		})
	}
	for _, n := range nodes {
		t.Run(n, func(t *testing.T) {
			s := s.on(t)
			s.union("shop-"+n, db, cache, swaps)
			for _, network := range []string{"tcp", "tcp6"} {
				s.gets("shop-"+n, network, web, 80, works)
			}
			for _, a := range s.addresses("web") { // denied by Namegate
				s.dials("shop-"+n, "tcp", net.JoinHostPort(a, "8081"), denied)
			}
		})
	}
	if !nightly {
		return
	}
	shops := []string{"shop-node-a", "shop-node-b"}
	lost := s.during("kube-router starts again", shops, []string{"bank.test"}, settles, func() {
		for _, n := range the.Nodes {
			if err := n.StopKubeRouter(); err != nil {
				t.Error(err)
			}
			if err := n.StartKubeRouter(s.ctx); err != nil {
				t.Error(err)
			}
		}
	})
	if lost > 0 {
		t.Errorf("%d queries lost", lost)
	}
	for _, n := range nodes {
		t.Run("again on "+n, func(t *testing.T) { s.on(t).union("shop-"+n, db, cache, swaps) })
	}
}

// helm upgrades the release to the tests' settings and more.
func (s *scenario) helm(more ...string) {
	s.Helper()
	if _, err := the.Helm(s.ctx, helmArgs("upgrade", more...)...); err != nil {
		s.Fatal(err)
	}
}

// webManifests are a web server and its Service, whose port is another than the pod's.
func webManifests() []string {
	return []string{named("http", 8080, pod("web", "node-b", map[string]string{"app": "web"}, "serve", "web", "8080", "8081")), `---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ipFamilyPolicy: RequireDualStack, ports: [{port: 80, targetPort: http}]}
`}
}

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
		s.administrate(closed(n), closes(n))
		s.confirm(n)
	}
	for _, n := range nodes {
		s.clusterCondition(soon, closed(n), "True", "NoBlindSpot", "")
	}
	if backend == cluster.VXLAN { // else the packets of pods arrive by eth0
		s.shut("{}", "[eth0]", "BeforeNAT", "Untracked")
	}
	for _, n := range nodes {
		s.hostDials(n, raw, closedTo)
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
