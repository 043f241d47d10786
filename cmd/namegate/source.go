package main

import (
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/denial"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy"
)

// knowledge is what the agent tells people: the console's Source.
type knowledge struct {
	agent *agent
	node  string
	// denials and memory may be nil: nothing is known of denied connections then.
	denials *denial.Denials
	memory  *denial.Memory
}

// console returns what answers callers of a kind: those of the socket, and those of
// the cluster.
func (a *agent) console(f agentFlags) answers {
	k := &knowledge{agent: a, node: f.nodeName, denials: a.denials, memory: a.memory}
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
func (k *knowledge) Node() string { return k.node }

// Status returns what the agent does and what is wrong.
func (k *knowledge) Status() console.Status {
	s := k.agent.snapshotStatus()
	s.Node = k.node
	if k.denials != nil {
		for _, t := range k.denials.Totals() {
			s.Flows = append(s.Flows, console.FlowTotal{Verdict: t.Verdict.String(), Reason: string(t.Reason), Count: t.Count})
		}
	}
	return s
}

// Snapshot returns the one in force.
func (k *knowledge) Snapshot() *policy.Snapshot {
	r := k.agent.rollout
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inForce
}

// Policies returns those of a namespace.
func (k *knowledge) Policies(namespace string) (out []v1alpha1.FQDNNetworkPolicy) {
	r := k.agent.rollout
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.state.input.Policies {
		if p.Namespace == namespace {
			out = append(out, p)
		}
	}
	return out
}

// NetworkPolicies returns the ordinary ones of a namespace.
func (k *knowledge) NetworkPolicies(namespace string) (out []*networkingv1.NetworkPolicy) {
	for _, p := range k.agent.rollout.latest().input.NetworkPolicies {
		if p.Namespace == namespace {
			out = append(out, p)
		}
	}
	return out
}

// Remote returns the pods of other nodes that are peers alone. A folder of manifests
// knows all pods as such; of a cluster they are read once a pod of this node needs them.
func (k *knowledge) Remote() (pods []*policy.Pod, unread string) {
	s := k.agent.rollout.latest()
	pods = s.input.Remote
	switch {
	case s.peersUnknown:
		return pods, "the agent does not have them yet; `namegate status` shows whether the API server is away"
	case k.agent.cluster == nil || len(pods) > 0 || needsPods(k.Snapshot()):
		return pods, ""
	}
	return nil, "no pod of this node needs them, so the agent does not read them"
}

// needsPods tells whether a view has peers that are pods.
func needsPods(s *policy.Snapshot) bool {
	return s != nil && slices.ContainsFunc(s.PeerSets, func(p *policy.PeerSet) bool { return p.Kind == policy.PeerPods || p.Kind == policy.PeerPorts })
}

// Services returns the cluster's by each of their addresses.
func (k *knowledge) Services() map[netip.Addr]*policy.Service {
	return k.agent.rollout.latest().cluster.ServicesAt
}

// Problems returns those of policies and pods.
func (k *knowledge) Problems() []policy.Problem {
	r := k.agent.rollout
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problems
}

// Failing returns why the latest policies are not in force.
func (k *knowledge) Failing() string {
	r := k.agent.rollout
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failing
}

// Trouble returns what keeps policies from holding for pods.
func (k *knowledge) Trouble() map[policy.PodRef][]string {
	out := map[policy.PodRef][]string{}
	for _, f := range k.agent.findings() {
		if !slices.Contains(out[f.Pod], f.Message) {
			out[f.Pod] = append(out[f.Pod], f.Message)
		}
	}
	return out
}

// Open returns a pod's grants.
func (k *knowledge) Open(p policy.PodRef) []enforcer.Open { return k.agent.enforce.Open(p) }

// Ended returns grants that have ended.
func (k *knowledge) Ended(p policy.PodRef, a netip.Addr) []enforcer.Open {
	return k.agent.enforce.History(p, a)
}

// Denied returns the flows that were denied to a pod lately.
func (k *knowledge) Denied(p policy.PodRef) []audit.Flow {
	if k.denials == nil {
		return nil
	}
	return k.denials.Recent(p)
}

// Seen returns a pod's answers that held an address.
func (k *knowledge) Seen(p policy.PodRef, a netip.Addr) []denial.Sighting {
	if k.memory == nil {
		return nil
	}
	return k.memory.Seen(p, a)
}

// SeenByAnybody returns all answers that held an address: those that were granted
// are the enforcer's to remember.
func (k *knowledge) SeenByAnybody(a netip.Addr) (out []denial.Sighting) {
	if k.memory != nil {
		out = k.memory.SeenByAnybody(a)
	}
	for _, o := range k.agent.enforce.NamesOfAnybody(a) {
		out = append(out, denial.Sighting{Pod: o.Pod, Name: o.Name, Address: a})
	}
	return out
}

// Asked returns what a pod's last question for a name came to.
func (k *knowledge) Asked(p policy.PodRef, n fqdn.Name) (denial.Decision, bool) {
	if k.memory == nil {
		return denial.Decision{}, false
	}
	return k.memory.Asked(p, n)
}

// Guard returns the guard against rebinding as it is now.
func (k *knowledge) Guard() func(fqdn.Name, netip.Addr) string {
	g, snap := proxy.NewGuard(k.agent.config.Load(), k.agent.nodes.cluster()), k.Snapshot()
	return func(n fqdn.Name, a netip.Addr) string { return g.Blocked(n, a, snap) }
}

// cluster returns what the proxy was told last.
func (n *nodeAddresses) cluster() proxy.Cluster {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.around
	c.Nodes = n.own
	return c
}

// Inside returns what an address is in the cluster.
func (k *knowledge) Inside(a netip.Addr) string {
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
func (k *knowledge) Domain() fqdn.Name { return k.agent.config.Load().ClusterDomain }

// Resolvers returns whom the agent answers in place of.
func (k *knowledge) Resolvers() []netip.Addr {
	return slices.Collect(maps.Keys(k.agent.enforce.Status().Serving))
}

// Recent returns the last lines of the audit log.
func (k *knowledge) Recent() []byte { return k.agent.audit.Recent() }

// Follow returns the coming lines of the audit log, nil where there is none.
func (k *knowledge) Follow() console.Follower {
	if k.agent.audit == nil {
		return nil
	}
	return k.agent.audit.Follow()
}
