package cyclonus

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// maker makes clusters in which few different labels, ports and addresses meet often.
type maker struct{ *rand.Rand }

func (g *maker) one(of ...string) string { return of[g.IntN(len(of))] }

// in tells true in one of n cases.
func (g *maker) in(n int) bool { return g.IntN(n) == 0 }

func (g *maker) world() *world {
	w := &world{namespaces: map[string]map[string]string{}, remote: map[*policy.Pod]bool{}, selects: selects(g.IntN(2)), enforce: g.in(2)}
	if w.enforce {
		w.selects = selects(g.IntN(3))
	}
	for _, ns := range []string{"x", "y", "z"}[:1+g.IntN(3)] {
		w.addNamespace(ns, g.labels())
	}
	for i := range 2 + g.IntN(6) {
		w.pods = append(w.pods, g.pod(w, i))
	}
	for i := range g.IntN(5) {
		w.policies = append(w.policies, g.policy(w, i))
	}
	w.ours = g.ignored(w)
	return w
}

// change is one change of a cluster: some objects are added, removed or replaced; the
// others keep their pointers.
func (g *maker) change(w *world) {
	ways := []func(*world){g.relabel, g.podChanges, g.podComes, g.podGoes, g.policyComes, g.policyGoes, g.policyChanges, g.policyChanges, g.othersSelected, g.manyRemote}
	for range 1 + g.IntN(3) {
		ways[g.IntN(len(ways))](w)
	}
}

func (g *maker) relabel(w *world) {
	w.namespaces = maps.Clone(w.namespaces)
	w.addNamespace(g.namespace(), g.labels())
}

func (g *maker) podChanges(w *world) {
	i := g.IntN(len(w.pods))
	was := w.pods[i]
	p := *was
	if g.in(2) {
		p.Labels = g.labels()
	}
	if g.in(2) {
		p.Ports = g.ports()
	}
	if g.in(4) && !p.Local() {
		p.Phase = "Failed"
	}
	w.pods[i], w.remote[&p] = &p, w.remote[was]
}

func (g *maker) podComes(w *world) { w.pods = append(slices.Clone(w.pods), g.pod(w, 20+g.IntN(200))) }

func (g *maker) podGoes(w *world) {
	if len(w.pods) > 2 {
		i := g.IntN(len(w.pods))
		w.pods = slices.Delete(slices.Clone(w.pods), i, i+1)
	}
}

// policyComes may put the policy in the place of one of its name.
func (g *maker) policyComes(w *world) {
	np := g.policy(w, g.IntN(6))
	w.drop(np.Namespace, np.Name)
	w.policies = append(w.policies, np)
}

func (g *maker) policyGoes(w *world) {
	if len(w.policies) > 0 {
		i := g.IntN(len(w.policies))
		w.policies = slices.Delete(slices.Clone(w.policies), i, i+1)
	}
}

func (g *maker) policyChanges(w *world) {
	if len(w.policies) > 0 {
		i := g.IntN(len(w.policies))
		w.policies = slices.Clone(w.policies)
		w.policies[i] = g.edited(w.policies[i])
	}
}

// othersSelected changes the FQDNNetworkPolicies, and the NetworkPolicies stay.
func (g *maker) othersSelected(w *world) { w.selects = selects(g.IntN(3)) }

// manyRemote sometimes adds many pods of another node at once, or removes the existing
// ones.
func (g *maker) manyRemote(w *world) {
	if !g.in(4) {
		return
	}
	few := slices.DeleteFunc(slices.Clone(w.pods), func(p *policy.Pod) bool { return strings.HasPrefix(p.Name, "many-") })
	if len(few) < len(w.pods) {
		w.pods = few
		return
	}
	for i := range 150 {
		p := &policy.Pod{
			PodRef: policy.PodRef{Namespace: g.known(w), Name: fmt.Sprint("many-", i), UID: fmt.Sprint("many-", i, "-", g.Uint32())}, Labels: g.labels(), NodeName: "other",
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 2, 0, byte(i)})}, Ports: g.ports(), Phase: "Running",
		}
		w.pods, w.remote[p] = append(w.pods, p), true
	}
}

func (g *maker) namespace() string { return g.one("x", "y", "z") }

// known is a namespace that is there from now on.
func (g *maker) known(w *world) string {
	ns := g.namespace()
	if _, known := w.namespaces[ns]; !known {
		w.namespaces = maps.Clone(w.namespaces)
		w.addNamespace(ns, g.labels())
	}
	return ns
}

func (g *maker) labels() map[string]string {
	labels := map[string]string{}
	for _, k := range []string{"app", "tier", "example.org/team"} {
		if g.IntN(5) < 3 {
			labels[k] = g.one("", "a", "a", "b", "c")
		}
	}
	return labels
}

// pod makes a pod with addresses of its own, of this node or of another. A pod of
// another node may have ended, or claim an address that a second one claims too.
func (g *maker) pod(w *world, i int) *policy.Pod {
	p := &policy.Pod{PodRef: policy.PodRef{Namespace: g.known(w), Name: fmt.Sprint("pod-", i), UID: fmt.Sprint("uid-", i, "-", g.Uint32())}, Labels: g.labels(), Phase: "Running", Ports: g.ports()}
	// The name is its own: two pods of one name are no cluster.
	for w.find(p.Namespace, p.Name) >= 0 {
		p.Name += "x"
	}
	at := 1 + i
	for slices.ContainsFunc(w.pods, func(q *policy.Pod) bool {
		return slices.Contains(q.IPs, address4(at)) || slices.Contains(q.IPs, address6(at))
	}) {
		at++
	}
	p.IPs = [][]netip.Addr{{address4(at)}, {address6(at)}, {address4(at), address6(at)}, {address6(at), address4(at)}}[g.IntN(4)]
	if g.in(16) && len(w.pods) > 0 {
		p.IPs = w.pods[g.IntN(len(w.pods))].IPs // two of this node: an address conflict
	}
	if g.in(2) {
		p.NodeName = "other"
		w.remote[p] = g.in(2)
		p.HostNetwork = g.in(8)
		if g.in(8) {
			p.Phase = g.one("Succeeded", "Failed", "Pending", "Unknown")
		}
		if g.in(6) && len(w.pods) > 0 {
			p.IPs = w.pods[g.IntN(len(w.pods))].IPs
		}
	}
	return p
}

func address4(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(n / 16), byte(n)}) }
func address6(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00:1:0:%x::%x", n/16, n)) }

func (g *maker) ports() []policy.NamedPort {
	var out []policy.NamedPort
	for range g.IntN(4) {
		p := policy.NamedPort{
			Name: g.one("web", "dns", "db"), Protocol: []policy.Protocol{policy.TCP, policy.TCP, policy.UDP, policy.SCTP}[g.IntN(4)],
			Port: []uint16{53, 80, 81, 8080}[g.IntN(4)],
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}
