package console

import (
	"cmp"
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// explain answers why.
func (c *console) explain(r *request) error {
	to, err := explain.ParseTarget(r.URL.Query().Get("to"))
	if err != nil {
		return Refuse(http.StatusBadRequest, "%v", err)
	}
	if node, err := c.node(r); node != nil || err != nil {
		if err != nil {
			return err
		}
		return c.explainTo(r, node, to)
	}
	namespace, name, err := r.scope()
	if err != nil {
		return err
	}
	if name == "" {
		return Refuse(http.StatusBadRequest, "no pod is asked about; write explain POD NAME|IP[:PORT]")
	}
	p, err := c.find(namespace, name)
	if err != nil {
		return err
	}
	if p.Local() && p.Finished() {
		return Refuse(http.StatusNotFound, "the pod %s has ended (%s) and connects nowhere; `namegate audit --pod %s` may still show what it did", p, p.Phase, p)
	}
	return c.explainTo(r, p, to)
}

// facts gathers the facts about a pod and a target, and leaves out the facts about other
// namespaces that the caller may not see.
func (c *console) facts(r *request, p *policy.Pod, to explain.Target) explain.Facts {
	s, snap := c.source, c.source.Snapshot()
	f := explain.Facts{
		Now: c.now(), Pod: *p, View: snap.ViewOf(p.PodRef), Policies: s.Policies(p.Namespace), Failing: s.Failing(),
		Trouble: s.Trouble()[p.PodRef], Open: s.Grants(p.PodRef), Blocked: s.Guard(), Domain: s.Domain(), Resolvers: s.Resolvers(),
		Flows: c.flows(r, p.PodRef), Free: free(snap, p, s.Policies(p.Namespace)),
	}
	if f.Failing != "" && !r.sees("") {
		f.Failing = "who may see all namespaces can see why" // it may name anybody's pods
	}
	f.Problems, f.Contested = c.problems(r, p, f.View), contested(snap, p)
	remote, namespaces, unread := s.Remote()
	f.Snapshot, f.NetworkPolicies, f.Services, f.Sees = snap, s.NetworkPolicies(p.Namespace), s.Services(), r.sees
	f.SeesCluster, f.CountsByName = r.seesCluster, s.CountsByName
	f.Pods, f.OtherNamespaces, f.OtherPods = allPods(snap, remote), namespaces, unread
	if !to.Addr.IsValid() {
		name := to.Name
		if d, ok := s.Asked(p.PodRef, to.Name); ok {
			f.Asked, name = &d, cmp.Or(d.Left, name)
		}
		f.DeniesResolver = func(a netip.Addr) (bool, *policy.Rule) { return s.DeniesResolver(p.PodRef, a) }
		f.Via, f.Aliases = s.LedBy(p.PodRef, name)
		return f
	}
	f.Ended, f.Seen = s.Ended(p.PodRef, to.Addr), s.Seen(p.PodRef, to.Addr)
	f.Others, f.Hidden = others(r, p.PodRef, s.SeenByAnybody(to.Addr))
	f.Inside = c.inside(r, snap, to.Addr)
	return f
}

// allPods yields the pods of a snapshot, and the pods of other nodes that are only peers
// of NetworkPolicies.
func allPods(snap *policy.Snapshot, remote []*policy.Pod) iter.Seq[*policy.Pod] {
	return func(yield func(*policy.Pod) bool) {
		pods := snap.Pods()
		for i := range pods {
			if !yield(&pods[i]) {
				return
			}
		}
		for _, p := range remote {
			if !yield(p) {
				return
			}
		}
	}
}

// others adds the answers to pods of namespaces that the caller may see.
func others(r *request, self policy.PodRef, seen []recent.Sighting) (out []recent.Sighting, hidden bool) {
	for _, s := range seen {
		switch {
		case s.Pod == self:
		case seesPod(s.Pod, r.sees):
			out = append(out, s)
		default:
			hidden = true
		}
	}
	return out, hidden
}

// flows returns the pod's denied flows without names that only other pods asked for and
// that the caller may not see.
func (c *console) flows(r *request, ref policy.PodRef) []audit.Flow {
	flows := slices.Clone(c.source.Denied(ref))
	for i := range flows {
		flows[i].Names = slices.DeleteFunc(slices.Clone(flows[i].Names), func(n audit.FlowName) bool {
			return n.Pod.Name != "" && !seesPod(n.Pod, r.sees)
		})
	}
	return flows
}

// problems are the problems of the pod, of the policies of all kinds that select it, and
// of policies of its namespace that select no pod until they are corrected. The
// pods that claim an address of the pod are shown to callers who may see all that could.
func (c *console) problems(r *request, p *policy.Pod, v *policy.View) (out []policy.Problem) {
	for _, problem := range c.source.Problems() {
		id, of := strings.CutPrefix(problem.Object, "policy ")
		network, ordinary := strings.CutPrefix(problem.Object, "networkpolicy ")
		ruled, standard, ofCluster := clusterPolicy(problem.Object)
		switch {
		case ofCluster && v != nil && slices.Contains(v.ClusterPolicies(), ruled):
			if !r.seesCluster(standard) {
				continue
			}
		case ordinary && v != nil && slices.Contains(v.NetworkPolicies, network):
		case problem.Pod == p.PodRef || problem.Object == "pod "+p.String():
		case !of:
			continue
		case v != nil && slices.Contains(v.Policies, id):
		case problem.Reason == policy.ReasonInvalid && strings.HasPrefix(id, p.Namespace+"/"):
		default:
			continue
		}
		if problem.Reason == policy.ReasonAddressConflict && !r.sees("") {
			problem.Message = "several pods claim one of its addresses; nothing is allowed for that until one of them is gone"
		}
		out = append(out, problem)
	}
	return out
}

// contested lists the addresses of a pod that others claim too, and for which nothing
// is allowed.
func contested(snap *policy.Snapshot, p *policy.Pod) (out []netip.Addr) {
	for _, a := range p.IPs {
		if v := snap.View(a); v != nil && v.InForce() && v.Pod.PodRef != p.PodRef {
			out = append(out, a)
		}
	}
	return out
}

// inside describes an address in the cluster.
func (c *console) inside(r *request, snap *policy.Snapshot, a netip.Addr) string {
	if ref, ok := snap.Pod(a); ok {
		if seesPod(ref, r.sees) {
			return "pod, " + ref.String()
		}
		return "pod"
	}
	if s := c.source.Services()[a]; s != nil && r.sees(s.Ref.Namespace) {
		return "Service, " + s.Ref.Namespace + "/" + s.Ref.Name
	}
	remote, _, _ := c.source.Remote()
	for _, p := range remote {
		if p.HostNetwork || p.Finished() || !slices.Contains(p.IPs, a) {
			continue
		}
		if r.sees(p.Namespace) {
			return "pod, " + p.String()
		}
		return "pod"
	}
	return c.source.Inside(a)
}

// free lists pods of the pod's namespace that a policy for its workload would select
// too, and that no enforcing policy selects. Of pods of other nodes the policies of the
// namespace tell.
func free(snap *policy.Snapshot, p *policy.Pod, policies []v1alpha1.FQDNNetworkPolicy) (out []string) {
	own, err := labels.ConvertSelectorToLabelsMap(p.Workload())
	if err != nil || len(own) == 0 {
		return nil
	}
	selector := labels.SelectorFromSet(own)
	pods := snap.Pods()
	for i := range pods {
		q := &pods[i]
		if q.Namespace != p.Namespace || q.PodRef == p.PodRef || q.Finished() || q.HostNetwork || !selector.Matches(labels.Set(q.Labels)) {
			continue
		}
		enforced := enforces(policies, q)
		if q.Local() {
			v := snap.ViewOf(q.PodRef)
			enforced = v != nil && isolated(v)
		}
		if !enforced {
			out = append(out, q.String())
		}
	}
	return out
}

// isolated tells whether policies of the pod's namespace make it default-deny.
func isolated(v *policy.View) bool {
	_, _, namespace, _ := v.OrderedRules()
	return namespace
}

// enforces tells whether one of the policies of a pod's namespace makes it default-deny.
func enforces(policies []v1alpha1.FQDNNetworkPolicy, p *policy.Pod) bool {
	return slices.ContainsFunc(policies, func(f v1alpha1.FQDNNetworkPolicy) bool {
		selector, err := metav1.LabelSelectorAsSelector(&f.Spec.PodSelector)
		return err == nil && f.Spec.Enforcement != v1alpha1.EnforcementAudit && selector.Matches(labels.Set(p.Labels))
	})
}
