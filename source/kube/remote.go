package kube

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// RemoteLinger is for how long pods of other nodes are watched at least after the need for them
// ended, so that a recreated policy finds them. At most it is twice as long.
const RemoteLinger = 10 * time.Minute

// MaxRemoteNamespaces is the number of namespaces up to which the pods of each are watched by
// themselves. A watch of all pods takes the place of more watches: a kubelet has about as many, of
// the Secrets and ConfigMaps of its pods.
const MaxRemoteNamespaces = 32

// remoteLists is the number of namespaces whose pods of other nodes are listed at a time. The API server has
// each list in memory, of the agents of all nodes.
const remoteLists = 2

// MaxSelectorRequirements is the number of different requirements of namespaceSelectors up to which
// the selected namespaces are looked for. More lead to every namespace: each is compared with the
// labels of each namespace.
const MaxSelectorRequirements = 256

// remotePage is how many pods of other nodes a list asks for at a time: whole ones take 10 KiB
// and more each.
const remotePage = 500

// ReasonPeersUnknown means: pods of other nodes are peers of policies, and the API server
// does not tell them.
const ReasonPeersUnknown = "PeersUnknown"

// remoteObject is the object of problems with pods of other nodes.
const remoteObject = "pods of other nodes"

// remoteName is the name, in logs and Health, of the list-watch of a namespace's pods of other nodes.
func remoteName(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return remoteObject
	}
	return remoteObject + " in " + namespace
}

// remote watches pods of other nodes while they are needed. But for the stores, it is for
// Run's goroutine alone.
type remote struct {
	// wanted are the namespaces whose pods are needed, NamespaceAll alone for every one.
	wanted map[string]bool
	most   int                    // wanted namespaces up to which each has a feed
	turns  chan struct{}          // of the feeds' lists
	feeds  map[string]*remoteFeed // by namespace
	moved  bool                   // wanted has changed since the last update
	idle   <-chan time.Time       // while a feed lingers
	// deadline is set while States wait for pods, of the namespaces awaited, and ends that.
	deadline <-chan time.Time
	awaited  []string
	// policySpaces are the namespaces with a policy; peerSpaces are the namespaces whose pods are peers
	// of the NetworkPolicies of a namespace.
	policySpaces map[string]bool
	peerSpaces   map[string]*spaces
	// from are the namespaces whose NetworkPolicies have peers in the namespaces in to. It is nil when to
	// has to be found again.
	from, to map[string]bool
	// everySpace: pods of every namespace may be selected, by cluster policies or by NetworkPolicies
	// alone. clusterPeers and nodes: peers of cluster policies are pods and nodes; hostPeers and hostNodes: those
	// of policies for nodes.
	everySpace, clusterPeers, nodes, hostPeers, hostNodes bool
}

// remoteFeed is the list-watch of a namespace's pods of other nodes.
type remoteFeed struct {
	*listWatch
	pods    *store[podEntry]
	stop    context.CancelFunc
	lingers bool // it ends with remote.idle
}

// needed tells whether pods of other nodes are needed.
func (r *remote) needed() bool { return len(r.wanted) > 0 }

// namespaces returns the namespaces whose pods are needed, sorted; nil for every one.
func (r *remote) namespaces() []string {
	if r.wanted[metav1.NamespaceAll] {
		return nil
	}
	return append([]string{}, slices.Sorted(maps.Keys(r.wanted))...)
}

// has tells whether the pods of a namespace are known, NamespaceAll for all.
func (r *remote) has(namespace string) bool {
	f := r.feeds[namespace]
	return f != nil && f.pods.synced()
}

// unknown yields the namespaces whose pods are needed and not known.
func (r *remote) unknown(yield func(namespace string) bool) {
	if r.has(metav1.NamespaceAll) {
		return
	}
	for namespace := range r.wanted {
		if !r.has(namespace) && !yield(namespace) {
			return
		}
	}
}

// known tells whether pods of other nodes are known, or not needed.
func (r *remote) known() bool {
	for range r.unknown {
		return false
	}
	return true
}

// updateNeed finds out whose pods of other nodes are needed: of the namespaces in which the
// NetworkPolicies have peers of namespaces with pods of this node, where policies may make these
// default-deny; of all namespaces, if peers of cluster policies are pods. Their Deny rules deny every
// connection while pods are not known, which a new namespace must not cause. A pod counts from
// when it is bound to the node, mostly long before it has an address.
func (r *remote) updateNeed(near []*podEntry, namespaces map[string]map[string]string) {
	wanted := r.neededBy(near, namespaces)
	if wanted[metav1.NamespaceAll] || len(wanted) > r.most {
		wanted = map[string]bool{metav1.NamespaceAll: true}
	}
	r.moved = r.moved || !maps.Equal(wanted, r.wanted)
	r.wanted = wanted
}

func (r *remote) neededBy(near []*podEntry, namespaces map[string]map[string]string) map[string]bool {
	if r.hostPeers {
		return map[string]bool{metav1.NamespaceAll: true}
	}
	from := map[string]bool{}
	for _, e := range near {
		if e.pod.HostNetwork || e.pod.Finished() {
			continue
		}
		if r.clusterPeers {
			return map[string]bool{metav1.NamespaceAll: true}
		}
		if r.everySpace || r.policySpaces[e.pod.Namespace] {
			from[e.pod.Namespace] = true
		}
	}
	if r.from == nil || !maps.Equal(from, r.from) {
		r.from, r.to = from, r.spacesFrom(from, namespaces)
	}
	return r.to
}

// spacesFrom returns the namespaces in which the NetworkPolicies of some namespaces have peers,
// NamespaceAll for every one.
func (r *remote) spacesFrom(from map[string]bool, namespaces map[string]map[string]string) map[string]bool {
	to, all := map[string]bool{}, spaces{}
	for namespace := range from {
		if leads := r.peerSpaces[namespace]; leads != nil {
			all.add(*leads)
			if leads.own {
				to[namespace] = true
			}
		}
	}
	if all.every || len(to) > r.most || all.requirements() > MaxSelectorRequirements {
		return map[string]bool{metav1.NamespaceAll: true}
	}
	all.addTo(to, namespaces)
	return to
}

// policySpacesOf returns the namespaces of policies.
func policySpacesOf(policies []*v1alpha1.FQDNNetworkPolicy) map[string]bool {
	spaces := map[string]bool{}
	for _, p := range policies {
		spaces[p.Namespace] = true
	}
	return spaces
}

// peerSpacesOf returns the namespaces whose pods are peers of the NetworkPolicies of each namespace, for egress
// and, where they are enforced alone, for ingress. Beside ClusterNetworkPolicies for ingress all pods are known.
func peerSpacesOf(entries []*networkPolicyEntry, ingress bool) map[string]*spaces {
	all := map[string]*spaces{}
	add := func(namespace string, of spaces) {
		if of.none() {
			return
		}
		if all[namespace] == nil {
			all[namespace] = &spaces{}
		}
		all[namespace].add(of)
	}
	for _, e := range entries {
		add(e.policy.Namespace, e.to)
		if ingress {
			add(e.policy.Namespace, e.from)
		}
	}
	return all
}

// watchRemote begins to watch pods of other nodes when they are needed, and starts the
// timers: for how long States wait for them, and when watches end without need.
func (s *Source) watchRemote(ctx context.Context) {
	r := &s.remote
	before := slices.Collect(r.unknown)
	s.gather()
	for namespace := range r.wanted {
		if r.feeds[namespace] == nil {
			s.startRemote(ctx, namespace)
		}
		r.feeds[namespace].lingers = false
	}
	if r.deadline == nil {
		r.awaited = nil
	}
	for namespace := range r.unknown {
		if !slices.Contains(before, namespace) {
			r.awaited = append(r.awaited, namespace)
		}
	}
	if r.deadline == nil && len(r.awaited) > 0 {
		r.deadline = s.clock.After(PeersPatience)
	}
	r.linger(s.clock.After)
}

// linger starts the time after which the watches end that are not needed.
func (r *remote) linger(after func(time.Duration) <-chan time.Time) {
	lingers := false
	for _, f := range r.feeds {
		lingers = lingers || f.lingers
	}
	if lingers && r.idle != nil {
		return
	}
	r.idle = nil
	for namespace, f := range r.feeds {
		if f.lingers = !r.wanted[namespace]; f.lingers && r.idle == nil {
			r.idle = after(RemoteLinger)
		}
	}
}

// awaitsRemote tells whether States wait for pods of other nodes. It is over for good
// when each awaited namespace is known or needed no more, or the API server does not tell its pods.
func (s *Source) awaitsRemote() bool {
	r := &s.remote
	for namespace := range r.unknown {
		if slices.Contains(r.awaited, namespace) && !s.failsRemote(namespace) {
			return r.deadline != nil
		}
	}
	r.deadline = nil
	return false
}

// failsRemote tells whether the API server does not tell the pods of a namespace.
func (s *Source) failsRemote(namespace string) bool {
	f := s.remote.feeds[namespace]
	return f != nil && s.link.fails(f.listWatch)
}

func (s *Source) startRemote(ctx context.Context, namespace string) {
	ctx, stop := context.WithCancel(ctx)
	f := &listWatch{name: remoteName(namespace), requests: remoteRequests(s.client, s.node, namespace), link: s.link, after: s.clock.After, page: remotePage, turns: s.remote.turns}
	feed := &remoteFeed{listWatch: f, pods: remoteStore(s.noteRemote, s.node), stop: stop}
	s.remote.feeds[namespace] = feed
	s.run(ctx, f, &corev1.Pod{}, feed.pods)
}

// update takes over the pods of the watches, and tells whether that is news. The watch of a
// namespace counts more than one of all, which lingers and may be behind. While pods of a wanted
// namespace are not known, pods of namespaces that were wanted before stay: they may be the same.
func (r *remote) update(a *assembly) (far []*podEntry, news bool) {
	news, r.moved = r.moved, false
	for _, f := range r.feeds {
		news = update(a, f.pods, nil) || news
	}
	if !news {
		return nil, false
	}
	// A watch that was filled after its turn above is not known here.
	known := func(namespace string) bool { return r.feeds[namespace] != nil && r.feeds[namespace].pods.taken != nil }
	namespaces := slices.Sorted(maps.Keys(r.wanted))
	switch {
	case !slices.ContainsFunc(namespaces, func(namespace string) bool { return !known(namespace) }):
	case known(metav1.NamespaceAll):
		for _, e := range r.feeds[metav1.NamespaceAll].pods.taken {
			if r.wanted[e.pod.Namespace] {
				far = append(far, e)
			}
		}
		return far, true
	default:
		namespaces = slices.Sorted(maps.Keys(r.feeds))
	}
	for _, namespace := range namespaces {
		far = append(far, r.feeds[namespace].pods.taken...)
	}
	return far, true
}

func remoteStore(changed func(), node string) *store[podEntry] {
	pods := newStore(changed, readRemote(node))
	pods.trim = trim
	return pods
}

// remoteRequests returns requests for a namespace's pods of all nodes but one. A list is trimmed
// page by page, as the store trims a stream.
func remoteRequests(client kubernetes.Interface, node, namespace string) requests {
	others := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", node).String()
	}
	pods := client.CoreV1().Pods(namespace)
	list := func(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
		if namespace != metav1.NamespaceAll {
			o.ResourceVersion = "" // a list of version 0 comes in one page, and one of another version not from the cache
		}
		page, err := pods.List(ctx, o)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			trimPod(&page.Items[i])
		}
		return page, nil
	}
	r := newRequests(client, others, list, pods.Watch)
	if namespace != metav1.NamespaceAll {
		r.client = justLists{}
	}
	return r
}

// endRemote ends the watches that have lingered. They linger on while the watches of the wanted
// namespaces are not filled: a watch of all has the pods of these, and they have some of its pods.
func (s *Source) endRemote() {
	r := &s.remote
	filled := true
	for namespace := range r.wanted {
		filled = filled && r.has(namespace)
	}
	for namespace, f := range r.feeds {
		if f.lingers && filled {
			f.stop()
			delete(r.feeds, namespace)
		}
	}
	r.idle = nil
	r.linger(s.clock.After)
}

// unknownPeers returns the problem that pods of other nodes are needed and cannot be
// read; nil if they are known, or on their way.
func (s *Source) unknownPeers() []policy.Problem {
	failing := false
	for namespace := range s.remote.unknown {
		failing = failing || s.failsRemote(namespace)
	}
	if !failing {
		return nil
	}
	return []policy.Problem{{
		Object: remoteObject, Reason: ReasonPeersUnknown,
		Message: "some of them are peers of policies, but the API server does not list them, so that connections to and from these stay closed, and rules of cluster " +
			"policies that deny pods or pass them on deny every connection; the agent's log has its answer: it must let the agent list and watch pods",
	}}
}
