package agent

import (
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// consoleSource is the console's Source: the agent's state as people ask for it.
type consoleSource struct {
	agent   *agent
	rollout func() rollout.Status
	node    string
}

// answers makes the handler of a console for callers of a kind.
type answers func(viewer func(*http.Request) (console.Viewer, error)) http.Handler

// console returns the console of this agent.
func (a *agent) console() answers {
	k := &consoleSource{agent: a, rollout: a.rollout.Status, node: a.o.Node}
	if k.node == "" {
		k.node, _ = os.Hostname()
	}
	return func(viewer func(*http.Request) (console.Viewer, error)) http.Handler {
		return console.Handler(k, viewer, time.Now)
	}
}

// asRoot is the viewer of the socket, which only root can open.
func asRoot(*http.Request) (console.Viewer, error) { return console.Everything{}, nil }

// Node returns the node's name.
func (k *consoleSource) Node() string { return k.node }

// Status returns the state of the agent and its problems.
func (k *consoleSource) Status() console.Status {
	a, r := k.agent, k.rollout()
	s := console.Status{
		Node: k.node, Version: a.o.Version, Snapshot: r.Number(), Failing: r.Failing, Waiting: r.Waiting, Files: r.State.Files, Problems: r.Problems,
		Dataplane:       a.kernel.dataplane,
		NetworkPolicies: len(r.State.Input.NetworkPolicies), RemotePods: len(r.State.Input.Remote), Enforcer: a.enforce.Status(), Proxy: a.proxy.Stats().Proxy,
	}
	s.InSync = r.InSync() && len(s.Enforcer.Deviations) == 0
	if a.cluster != nil {
		if h := a.cluster.source.Health(); !h.Disconnected.IsZero() {
			s.Away = &console.Away{Since: h.Disconnected, Error: h.LastError}
		}
	}
	for pod, path := range a.selfTest.failed() {
		s.Paths = append(s.Paths, console.FailedPath{Pod: pod.String(), Path: path.String()})
	}
	slices.SortFunc(s.Paths, func(a, b console.FailedPath) int { return strings.Compare(a.Pod, b.Pod) })
	if a.host != nil {
		s.Failsafes = console.FailsafesOf(a.host.failsafes())
	}
	if a.audit != nil {
		s.Audit = &console.AuditStatus{Written: a.audit.Written(), Dropped: a.audit.Dropped()}
	}
	for _, t := range a.denials.Totals() {
		s.Flows = append(s.Flows, console.FlowTotal{Verdict: t.Verdict.String(), Reason: string(t.Reason), Tier: t.Tier.String(), Count: t.Count})
	}
	return s
}

// Snapshot returns the snapshot in force.
func (k *consoleSource) Snapshot() *policy.Snapshot { return k.rollout().InForce }

// Policies returns the policies of a namespace, "" for all.
func (k *consoleSource) Policies(namespace string) (out []v1alpha1.FQDNNetworkPolicy) {
	for _, p := range k.rollout().State.Input.Policies {
		if namespace == "" || p.Namespace == namespace {
			out = append(out, p)
		}
	}
	return out
}

// NetworkPolicies returns the ordinary ones of a namespace.
func (k *consoleSource) NetworkPolicies(namespace string) (out []*networkingv1.NetworkPolicy) {
	for _, p := range k.rollout().State.Input.NetworkPolicies {
		if p.Namespace == namespace {
			out = append(out, p)
		}
	}
	return out
}

// Remote returns the pods of other nodes that are peers alone. A folder of manifests
// knows all pods as such; of a cluster they are read once a pod of this node needs them, and
// only those of the namespaces that are not nil.
func (k *consoleSource) Remote() (pods []*policy.Pod, namespaces []string, unread string) {
	s := k.rollout().State
	pods, namespaces = s.Input.Remote, s.Input.RemoteNamespaces
	switch {
	case s.Input.PeersUnknown:
		return pods, namespaces, "the agent does not have them yet; `namegate status` shows whether the API server is away"
	case k.agent.cluster == nil || len(pods) > 0 || needsPods(k.Snapshot()):
		return pods, namespaces, ""
	}
	return nil, nil, "no pod of this node needs them, so the agent does not read them"
}

// needsPods tells whether a view has peers that are pods.
func needsPods(s *policy.Snapshot) bool {
	return s != nil && slices.ContainsFunc(s.PeerSets, func(p *policy.PeerSet) bool { return p.Kind == policy.PeerPods || p.Kind == policy.PeerPorts })
}

// Services returns the cluster's by each of their addresses.
func (k *consoleSource) Services() map[netip.Addr]*policy.Service {
	return k.rollout().State.Cluster.ServicesAt
}

// CountsByName tells whether names count for what a Service leads on from an address.
func (k *consoleSource) CountsByName(a netip.Addr) bool {
	network := k.agent.enforce.Interception().Network()
	return network.IsService(a)
}

// Problems returns the problems of policies and pods.
func (k *consoleSource) Problems() []policy.Problem { return k.rollout().Problems }

// Failing returns why the latest policies are not in force.
func (k *consoleSource) Failing() string { return k.rollout().Failing }

// Trouble returns what keeps policies from holding for pods.
func (k *consoleSource) Trouble() map[policy.PodRef][]string {
	out := map[policy.PodRef][]string{}
	for _, f := range k.agent.findings() {
		if !slices.Contains(out[f.Pod], f.Message) {
			out[f.Pod] = append(out[f.Pod], f.Message)
		}
	}
	return out
}

// Grants returns a pod's grants.
func (k *consoleSource) Grants(p policy.PodRef) []policy.GrantInfo {
	return k.agent.enforce.Grants().ListGrants(p)
}

// Ended returns grants that have ended.
func (k *consoleSource) Ended(p policy.PodRef, a netip.Addr) []policy.GrantInfo {
	return k.agent.enforce.Grants().History(p, a)
}

// Denied returns the flows that were denied to a pod lately.
func (k *consoleSource) Denied(p policy.PodRef) []audit.Flow { return k.agent.denials.Recent(p) }

// Seen returns a pod's answers that held an address.
func (k *consoleSource) Seen(p policy.PodRef, a netip.Addr) []recent.Sighting {
	return k.agent.memory.Seen(p, a)
}

// SeenByAnybody returns all answers with an address that opened nothing. The enforcer
// keeps the granted ones.
func (k *consoleSource) SeenByAnybody(a netip.Addr) (out []recent.Sighting) {
	out = k.agent.memory.SeenByAnybody(a)
	for _, o := range k.agent.enforce.Grants().NamesOfAnybody(a) {
		out = append(out, recent.Sighting{Pod: o.Pod, Name: o.Name, Address: a})
	}
	return out
}

// Asked returns the result of a pod's last query for a name.
func (k *consoleSource) Asked(p policy.PodRef, n fqdn.Name) (recent.Decision, bool) {
	return k.agent.memory.Asked(p, n)
}

// LedBy returns the names whose answers lead a pod to a name.
func (k *consoleSource) LedBy(p policy.PodRef, n fqdn.Name) (via, aliases []fqdn.Name) {
	return k.agent.proxy.LedBy(p, n)
}

// DeniesResolver tells whether the policies deny a pod the queries to a resolver.
func (k *consoleSource) DeniesResolver(p policy.PodRef, resolver netip.Addr) (bool, *policy.Rule) {
	return k.agent.proxy.DeniesResolver(p, resolver)
}

// Guard returns the guard against rebinding as it is now.
func (k *consoleSource) Guard() func(fqdn.Name, netip.Addr) string {
	g, snap := k.agent.nodes.cluster().Guard(k.agent.config.Load()), k.Snapshot()
	return func(n fqdn.Name, a netip.Addr) string { return g.Blocked(n, a, snap) }
}

// Inside describes an address in the cluster.
func (k *consoleSource) Inside(a netip.Addr) string {
	c := k.agent.nodes.cluster()
	switch {
	case slices.Contains(c.Services, a):
		return "Service"
	case slices.Contains(c.Nodes, a), slices.Contains(c.Peers, a):
		return "node"
	}
	return ""
}

// Domain returns the cluster's.
func (k *consoleSource) Domain() fqdn.Name { return k.agent.config.Load().ClusterDomain }

// Resolvers returns the resolvers in whose place the agent answers.
func (k *consoleSource) Resolvers() []netip.Addr {
	return slices.Collect(maps.Keys(k.agent.enforce.Status().Serving))
}

// Recent returns the last lines of the audit log.
func (k *consoleSource) Recent() []byte { return k.agent.audit.Recent() }

// Complete returns for how long Recent is complete; false while the resolver answers pods.
func (k *consoleSource) Complete(namespace string) (time.Duration, bool) {
	if !k.agent.enforce.Interception().On() {
		return 0, false
	}
	return k.agent.audit.Complete(namespace)
}

// Follow returns the coming lines of the audit log, nil where there is none.
func (k *consoleSource) Follow() console.Follower {
	if k.agent.audit == nil {
		return nil
	}
	return k.agent.audit.Follow()
}
