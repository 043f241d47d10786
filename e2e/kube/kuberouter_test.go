package kube

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

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
