package kube

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/console/explain"
)

// unionManifests are a shop on both nodes, its database of two pods with different
// numbers behind one port's name, and a cache that no policy allows.
func unionManifests() (out []string) {
	service := func(name string, ports string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %[1]s}\nspec: {selector: {app: %[1]s}, ipFamilyPolicy: RequireDualStack, ports: [%[2]s]}\n", name, ports)
	}
	for _, n := range nodes {
		out = append(out, pod("shop-"+n, n, map[string]string{"app": "shop"}), pod("plain-"+n, n, nil))
	}
	return append(out,
		named("pg", 5432, pod("db-a", "node-a", map[string]string{"app": "db"}, "serve", "db-a", "5432", "5433", "9187")),
		named("pg", 5433, pod("db-b", "node-b", map[string]string{"app": "db"}, "serve", "db-b", "5432", "5433", "9187")),
		pod("cache", "node-b", map[string]string{"app": "cache"}, "serve", "cache", "6379"),
		service("db", "{name: pg, port: 5432, targetPort: pg}, {name: metrics, port: 9187}"), service("cache", "{port: 6379}"))
}

// named gives a port of a pod's container a name.
func named(name string, port int, manifest string) string {
	return strings.Replace(manifest, "containers: [{name: main,", fmt.Sprintf("containers: [{name: main, ports: [{name: %s, containerPort: %d}],", name, port), 1)
}

const databaseOut = `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db-out}
spec:
  podSelector: {matchLabels: {app: shop}}
  policyTypes: [Egress]
  egress:
  - to: [{podSelector: {matchLabels: {app: db}}}]
    ports: [{port: pg}]
`

// unionStage runs the manifests and waits until all of it works for pods that no policy
// selects. It returns the names of database and cache.
func (s *scenario) unionStage() (db, cache string) {
	s.Helper()
	s.run(unionManifests()...)
	db, cache = "db."+s.ns+".svc.cluster.local", "cache."+s.ns+".svc.cluster.local"
	// The cluster needs its time until a Service works for anyone.
	for _, n := range nodes {
		for name, ports := range map[string][]int{db: {5432, 9187}, cache: {6379}} {
			for _, port := range ports {
				for _, network := range []string{"tcp", "tcp6"} {
					s.eventually(patient, fmt.Sprintf("%s:%d over %s on %s", name, port, network, n), func() error { return s.got("plain-"+n, network, name, port, works) })
				}
			}
		}
	}
	return db, cache
}

// bank allows the bank by name.
func bank() string {
	return policy("bank", `{podSelector: {matchLabels: {app: shop}}, egress: [{matches: [{name: bank.test}], ports: [{protocol: TCP, port: 443}]}]}`)
}

// testUnion: a shop reaches its database by an ordinary NetworkPolicy and its bank by
// name; all else is rejected, and explain tells which is which.
func testUnion(t *testing.T) {
	s := begin(t, "union")
	db, cache := s.unionStage()
	s.apply(databaseOut, bank())
	for _, n := range nodes {
		s.enforced(soon, "shop-"+n)
		// The pods of the other node are read once a NetworkPolicy needs them.
		s.eventually(soon, "the peers on "+n, func() error { return s.got("shop-"+n, "tcp", db, 5432, works) })
		t.Run(n, func(t *testing.T) { s.on(t).union("shop-"+n, db, cache, 0) })
	}
	for _, n := range nodes {
		t.Run("explained on "+n, func(t *testing.T) { s.on(t).unionExplained("shop-"+n, db) })
	}
	t.Run("advised", func(t *testing.T) { s.on(t).unionAdvised("shop-node-a", cache) })
	t.Run("changes", func(t *testing.T) { s.on(t).unionChanges(db) })
}

// on is the scenario as a part of it tells of itself.
func (s *scenario) on(t *testing.T) *scenario { return &scenario{T: t, ctx: s.ctx, ns: s.ns} }

// got looks a name up, connects, and returns the error of the outcome.
func (s *scenario) got(from, network, name string, port int, w want) error {
	g, err := the.Get(s.ctx, s.ref(from), network, name, port)
	if err == nil && !w.has(g.Class) {
		err = fmt.Errorf("%s to %s:%d over %s: %s, want %v: %+v", from, name, port, network, g.Class, w, g)
	}
	return err
}

// union tries connections that one kind allows, the other, and none. An allowed
// connection has within to work.
func (s *scenario) union(shop, db, cache string, within time.Duration) {
	allowed := func(network, name string, port int) {
		s.eventually(within, "an allowed connection", func() error { return s.got(shop, network, name, port, works) })
	}
	for _, network := range []string{"tcp", "tcp6"} {
		for range 4 { // whichever pod of the database it is
			allowed(network, db, 5432)
		}
		allowed(network, "bank.test", 443)
		s.gets(shop, network, "bank.test", 80, denied)
		s.gets(shop, network, db, 9187, denied)
		s.gets(shop, network, cache, 6379, denied)
		s.gets(shop, network, "other.test", 443, denied)
	}
	s.dials(shop, "tcp", raw, denied)
	for pod, ports := range map[string][2]string{"db-a": {"5432", "5433"}, "db-b": {"5433", "5432"}} {
		for _, a := range s.addresses(pod) {
			s.eventually(within, "an allowed connection", func() error { return s.expect(shop, "tcp", net.JoinHostPort(a, ports[0]), works) })
			s.dials(shop, "tcp", net.JoinHostPort(a, ports[1]), denied) // the other pod's number
			s.dials(shop, "tcp", net.JoinHostPort(a, "9187"), denied)
		}
	}
}

// unionExplained asks why for each.
func (s *scenario) unionExplained(shop, db string) {
	ask := func(exit int, to string) explain.Explanation {
		e := told[explain.Explanation](s, exit, "explain", shop, to, "-n", s.ns)
		s.Logf("%s to %s: %s: %s", shop, to, e.Verdict, e.Reason)
		return e
	}
	byNetworkPolicy := func(to string, e explain.Explanation) {
		leads := slices.ContainsFunc(e.Peers, func(p explain.Peer) bool {
			return p.Policy == "union/db-out" && p.Path == "spec.egress[0]" && p.OnPort
		})
		if e.Verdict != explain.Allowed || !strings.HasPrefix(e.Reason, "NetworkPolicy union/db-out (spec.egress[0]) allows") || !leads || !slices.Equal(e.NetworkPolicies, []string{"union/db-out"}) {
			s.Errorf("%s is explained as %+v", to, e)
		}
	}
	clusterIP := strings.TrimSpace(s.kubectl("get", "service", "-n", s.ns, "db", "-o", "jsonpath={.spec.clusterIP}"))
	for _, to := range []string{db + ":5432", clusterIP + ":5432", s.addresses("db-a")[0] + ":5432", s.addresses("db-b")[0] + ":5433"} {
		byNetworkPolicy(to, ask(0, to))
	}
	if e := ask(0, "bank.test:443"); e.Verdict != explain.Allowed || !strings.HasPrefix(e.Reason, "the pod asked for the name") || len(e.Matches) == 0 || e.Matches[0].Policy != "union/bank" {
		s.Errorf("the bank is explained as %+v", e)
	}
	for _, to := range []string{"bank.test:80", "other.test:443", db + ":9187", "203.0.113.99:80"} {
		if e := ask(1, to); e.Verdict != explain.Denied || e.Advice == nil {
			s.Errorf("%s is explained as %+v", to, e)
		}
	}
}

// unionAdvised applies the NetworkPolicy that explain writes.
func (s *scenario) unionAdvised(shop, cache string) {
	e := told[explain.Explanation](s, 1, "explain", shop, cache+":6379", "-n", s.ns)
	if e.Verdict != explain.Denied || e.Advice == nil || e.Advice.NetworkPolicy == "" || e.Advice.Manifest == "" {
		s.Fatalf("explained as %+v", e)
	}
	s.apply(e.Advice.NetworkPolicy)
	s.eventually(soon, "what explain advised", func() error { return s.got(shop, "tcp", cache, 6379, works) })
	after := told[explain.Explanation](s, 0, "explain", shop, cache+":6379", "-n", s.ns)
	if after.Verdict != explain.Allowed || !strings.Contains(after.Reason, "NetworkPolicy union/allow-cache ") {
		s.Errorf("afterwards it is explained as %+v", after)
	}
	s.gets(shop, "tcp", "other.test", 443, denied) // no more than advised
	s.kubectl("delete", "networkpolicy", "-n", s.ns, "allow-cache")
	s.eventually(soon, "the end of what explain advised", func() error { return s.got(shop, "tcp", cache, 6379, denied) })
}

// unionChanges: a pod of another node is a peer as long as its labels say so, and the
// NetworkPolicy's end leaves the names alone.
func (s *scenario) unionChanges(db string) {
	far := net.JoinHostPort(s.addresses("db-b")[0], "5433")
	s.dials("shop-node-a", "tcp", far, works)
	s.kubectl("label", "pod", "-n", s.ns, "db-b", "app=other", "--overwrite")
	s.eventually(soon, "a pod that is no peer any more", func() error { return s.expect("shop-node-a", "tcp", far, denied) })
	s.gets("shop-node-a", "tcp", "bank.test", 443, works)
	s.kubectl("label", "pod", "-n", s.ns, "db-b", "app=db", "--overwrite")
	s.eventually(soon, "a pod that is a peer again", func() error { return s.expect("shop-node-a", "tcp", far, works) })
	s.kubectl("delete", "networkpolicy", "-n", s.ns, "db-out")
	for _, n := range nodes {
		s.eventually(soon, "the NetworkPolicy's end on "+n, func() error { return s.got("shop-"+n, "tcp", db, 5432, denied) })
		s.gets("shop-"+n, "tcp", "bank.test", 443, works)
	}
}
