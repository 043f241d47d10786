package proxy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// orderNames are asked by the random worlds. Some are aliases of others.
var orderNames = []string{"a.test", "b.test", "c.b.test", "d.test", "e.test", "x.shop.svc.cluster.local", "y.shop.svc.cluster.local"}

func ofCluster(n string) bool { return strings.HasSuffix(n, ".cluster.local") }

// orderWorld is random policies of both kinds of ours for one pod, and an upstream.
type orderWorld struct {
	*rand.Rand
	table map[string][]string
	chain map[string][]string             // of a name
	addrs map[string][]string             // at its end
	hosts map[string][]string             // that the SRV records of a name point at
	asked map[string]time.Time            // when the kept answer to an SRV question is of
	led   map[string]map[string]orderLead // of the followed names: the names that led there, until when
}

func oneOf[T any](r *orderWorld, of ...T) T { return of[r.IntN(len(of))] }

func newOrderWorld(r *rand.Rand) *orderWorld {
	w := &orderWorld{r, map[string][]string{}, map[string][]string{}, map[string][]string{}, map[string][]string{}, map[string]time.Time{}, map[string]map[string]orderLead{}}
	for i, n := range orderNames {
		var records []string
		at := n
		for j := range w.IntN(3) { // to names that are not asked, and to others of the list
			next := oneOf(w, fmt.Sprintf("edge%d%d.test", i, j), orderNames[w.IntN(len(orderNames))])
			if next == at || next == n || slices.Contains(w.chain[n], next) {
				continue
			}
			records = append(records, at+". 600 IN CNAME "+next+".")
			at = next
			w.chain[n] = append(w.chain[n], next)
		}
		for range w.IntN(4) {
			a := oneOf(w, "192.0.2.", "198.51.100.", "10.96.0.") + fmt.Sprint(1+w.IntN(9))
			if !slices.Contains(w.addrs[n], a) {
				w.addrs[n] = append(w.addrs[n], a)
				records = append(records, fmt.Sprintf("%s. %d IN A %s", at, oneOf(w, 600, 600, 20), a))
			}
		}
		w.table[n+" A"] = records
		for range w.IntN(6) {
			to := orderNames[w.IntN(len(orderNames))]
			w.hosts[n] = append(w.hosts[n], to)
			w.table[n+" SRV"] = append(w.table[n+" SRV"], fmt.Sprintf("%s. %d IN SRV 0 0 1 %s.", n, srvTTL/time.Second, to))
		}
	}
	return w
}

func (w *orderWorld) matches() string {
	var all []string
	for range 1 + w.IntN(2) {
		all = append(all, oneOf(w, "{name: "+orderNames[w.IntN(len(orderNames))]+"}", "{name: "+orderNames[w.IntN(len(orderNames))]+"}",
			"{pattern: '**.test'}", "{pattern: '**.cluster.local'}", "{pattern: '*.b.test'}", "{name: edge01.test}", "{pattern: 'edge*.test'}"))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func (w *orderWorld) rules(action func() string) string {
	var all []string
	for range 1 + w.IntN(3) {
		all = append(all, "{"+action()+"matches: "+w.matches()+oneOf(w, "", "", ", ports: [{protocol: TCP, port: 443}]")+"}")
	}
	return "egress: [" + strings.Join(all, ", ") + "]"
}

func (w *orderWorld) snapshot(t *testing.T) *policy.Snapshot {
	enforcement := func() string { return "enforcement: " + oneOf(w, "Enforce", "Enforce", "Enforce", "Audit") }
	unmatched := func() string { return oneOf(w, "Resolve", "Resolve", "NXDomain", "Refuse") }
	var cluster []*v1alpha1.ClusterFQDNNetworkPolicy
	for i := range 1 + w.IntN(3) {
		rules := w.rules(func() string { return "action: " + oneOf(w, "Accept", "Deny", "Deny", "Pass") + ", " })
		cluster = append(cluster, clusterPolicy(t, fmt.Sprintf("c%d", i), fmt.Sprintf("tier: %s, priority: %d, %s, %s, dns: {denied: %s, unmatched: %s}",
			oneOf(w, "Admin", "Baseline"), w.IntN(2), rules, enforcement(), oneOf(w, "NXDomain", "Refuse", "Resolve"), unmatched())))
	}
	var own []*v1alpha1.FQDNNetworkPolicy
	if w.IntN(2) == 0 {
		own = policiesOf(t, fmt.Sprintf("{metadata: {name: own, namespace: shop}, spec: {podSelector: {}, %s, %s, dns: {unmatched: %s}}}",
			w.rules(func() string { return "" }), enforcement(), unmatched()))
	}
	return inOrder(t, own, cluster...)
}
