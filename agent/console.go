package agent

import (
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/netpolicyfor"
	"github.com/namegate/namegate/proxy"
)

// answers makes the handler of a console for callers of a kind.
type answers func(viewer func(*http.Request) (serve.Viewer, error)) http.Handler

// console returns the console of this agent.
func (a *agent) console() answers {
	node := a.o.Node
	if node == "" {
		node, _ = os.Hostname()
	}
	return func(viewer func(*http.Request) (serve.Viewer, error)) http.Handler {
		return serve.Handler(func() *serve.State { return a.stateOf(node, a.rollout.Status()) }, viewer, time.Now)
	}
}

// asRoot is the viewer of the socket, which only root can open.
func asRoot(*http.Request) (serve.Viewer, error) { return serve.Everything{}, nil }

// stateOf returns what the agent knows at one moment of the roll-outs: the state that the snapshot in force was
// compiled from, and before the first the one that comes.
func (a *agent) stateOf(node string, r rollout.Status) *serve.State {
	in, snap := r.Applied, r.InForce
	if snap == nil {
		in = r.State
	}
	network := a.enforce.Interception().Network()
	s := &serve.State{
		Node: node, Snapshot: snap, Failing: r.Failing, Policies: in.Input.Policies, NetworkPolicies: in.Input.NetworkPolicies,
		Services: in.Cluster.ServicesAt, Problems: in.Problems, Domain: a.config.Load().ClusterDomain,
		Resolvers: func() []netip.Addr { return slices.Collect(maps.Keys(a.enforce.Status().Serving)) },
		Own:       func(addr netip.Addr) bool { return slices.Contains(a.nodes.cluster().Nodes, addr) }, Nodes: in.Input.Nodes,
		Route:  func(addr netip.Addr) string { name, _ := a.kernel.Links.Route(addr); return name },
		Inside: a.inside, Blocked: a.blocked(snap), CountsByName: network.IsService,
		Status: func() console.Status { return a.statusOf(node, r) }, Trouble: func() map[policy.PodRef][]string { return a.troubleOf(r) },
		Live: live{a, a.proxy, a.memory}, Engine: func(p policy.PodRef) *explain.Engine { return a.engineOf(&in, p) },
	}
	if snap != nil {
		s.Problems = slices.Concat(in.Problems, snap.Problems)
	}
	s.Remote, s.RemoteNamespaces, s.Unread = a.remote(in, snap)
	if a.audit != nil {
		s.Log = auditLog{a}
	}
	return s
}

// engineOf returns what the NetworkPolicy for another engine is made of, and whether such an engine drops the pod's
// queries, as the self-test says.
func (a *agent) engineOf(in *rollout.State, p policy.PodRef) *explain.Engine {
	config := a.config.Load()
	return &explain.Engine{
		Drops: a.selfTest.failed()[p] == enforcer.PathBlocked, Endpoint: netpolicyfor.Endpoint(config.Bind...).Relay(config.ServerNames.Port),
		Services:        netpolicyfor.Services{Domain: config.ClusterDomain, List: in.Cluster.Dialled},
		ClusterPolicies: in.Input.ClusterPolicies, Labels: in.Input.Namespaces[p.Namespace],
	}
}

// statusOf returns the state of the agent and its problems.
func (a *agent) statusOf(node string, r rollout.Status) console.Status {
	s := console.Status{
		Node: node, Version: a.o.Version, Snapshot: r.Number(), Failing: r.Failing, Waiting: r.Waiting, Files: r.State.Files, Problems: r.Problems,
		Dataplane: a.kernel.dataplane, Enforce: a.o.enforce(),
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
		s.Failsafes = console.FailsafesOf(a.host.current())
	}
	if a.audit != nil {
		s.Audit = &console.AuditStatus{Written: a.audit.Written(), Dropped: a.audit.Dropped()}
	}
	for _, t := range a.denials.Totals() {
		s.Flows = append(s.Flows, console.FlowTotal{Direction: t.Direction, Verdict: t.Verdict.String(), Reason: string(t.Reason), Tier: t.Tier.String(), Count: t.Count})
	}
	return s
}

// remote returns the pods of other nodes that are peers alone, and why they are not known. A folder of manifests
// knows all pods as such; of a cluster they are read once a pod of this node needs them, and
// only those of the namespaces that are not nil.
func (a *agent) remote(s rollout.State, snap *policy.Snapshot) (pods []*policy.Pod, namespaces []string, unread string) {
	pods, namespaces = s.Input.Remote, s.Input.RemoteNamespaces
	switch {
	case s.Input.PeersUnknown:
		return pods, namespaces, "the agent does not have them yet; `namegate status` shows whether the API server is away"
	case a.cluster == nil || len(pods) > 0 || needsPods(snap):
		return pods, namespaces, ""
	}
	return nil, nil, "no pod of this node needs them, so the agent does not read them"
}

// needsPods tells whether a view has peers that are pods.
func needsPods(s *policy.Snapshot) bool {
	return s != nil && slices.ContainsFunc(s.PeerSets, func(p *policy.PeerSet) bool { return p.Kind == policy.PeerPods || p.Kind == policy.PeerPorts })
}

// troubleOf returns what keeps policies from holding for pods.
func (a *agent) troubleOf(r rollout.Status) map[policy.PodRef][]string {
	out := map[policy.PodRef][]string{}
	for _, f := range a.findingsOf(r) {
		if !slices.Contains(out[f.Pod], f.Message) {
			out[f.Pod] = append(out[f.Pod], f.Message)
		}
	}
	return out
}

// blocked returns the guard against rebinding as it is now.
func (a *agent) blocked(snap *policy.Snapshot) func(fqdn.Name, netip.Addr) string {
	g := a.nodes.cluster().Guard(a.config.Load())
	return func(n fqdn.Name, addr netip.Addr) string { return g.Blocked(n, addr, snap) }
}

// inside describes an address in the cluster.
func (a *agent) inside(addr netip.Addr) string {
	c := a.nodes.cluster()
	switch {
	case slices.Contains(c.Services, addr):
		return "Service"
	case slices.Contains(c.Nodes, addr), slices.Contains(c.Peers, addr):
		return "node"
	}
	return ""
}

// ofCluster tells whether an address is in the cluster, or in its ranges.
func (a *agent) ofCluster(addr netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	return a.inside(addr) != "" || slices.ContainsFunc(a.nodes.cluster().Ranges, in) || slices.ContainsFunc(a.config.Load().ClusterRanges, in)
}

// live is the serve.Live of an agent.
type live struct {
	agent         *agent
	*proxy.Server // LedBy, DeniesResolver
	*recent.Memory
}

// Grants returns a pod's grants.
func (l live) Grants(p policy.PodRef) []policy.GrantInfo {
	return l.agent.enforce.Grants().ListGrants(p)
}

// Ended returns grants that have ended.
func (l live) Ended(p policy.PodRef, a netip.Addr) []policy.GrantInfo {
	return slices.DeleteFunc(l.agent.enforce.Grants().NamesOf(p, a), func(o policy.GrantInfo) bool { return o.Until.After(time.Now()) })
}

// Denied returns the flows that were denied to a pod lately.
func (l live) Denied(p policy.PodRef) []audit.Flow { return l.agent.denials.Recent(p) }

// Seen returns everybody's answers with an address: those that opened nothing, and the names that the enforcer keeps.
func (l live) Seen(a netip.Addr) (out []recent.Sighting) {
	out = l.Memory.SeenByAnybody(a)
	for _, o := range l.agent.enforce.Grants().NamesOfAnybody(a) {
		out = append(out, recent.Sighting{Pod: o.Pod, Name: o.Name, Address: a})
	}
	return out
}

// auditLog is the serve.Log of an agent.
type auditLog struct{ agent *agent }

// Complete returns for how long the last lines are complete; false while the resolver answers pods.
func (l auditLog) Complete(namespace string) (time.Duration, bool) {
	if !l.agent.enforce.Interception().On() {
		return 0, false
	}
	return l.agent.audit.Complete(namespace)
}

// Follow returns the last lines of the audit log, and the coming ones.
func (l auditLog) Follow() ([]byte, serve.Follower) { return l.agent.audit.Follow() }
