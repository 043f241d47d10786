package serve

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
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// explain answers why.
func (r *request) explain() error {
	if r.URL.Query().Has("from") {
		return r.explainFrom()
	}
	to, err := explain.ParseTarget(r.URL.Query().Get("to"))
	if err != nil {
		return console.Refuse(http.StatusBadRequest, "%v", err)
	}
	if node, err := r.node(); node != nil || err != nil {
		if err != nil {
			return err
		}
		return r.explainTo(node, to)
	}
	p, err := r.subject()
	if err != nil {
		return err
	}
	return r.explainTo(p, to)
}

// subject returns the pod that is asked about.
func (r *request) subject() (*policy.Pod, error) {
	namespace, name, err := r.scope()
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, console.Refuse(http.StatusBadRequest, "no pod is asked about; write explain POD NAME|IP[:PORT]")
	}
	p, err := r.find(namespace, name)
	if err != nil {
		return nil, err
	}
	if p.Local() && p.Finished() {
		return nil, console.Refuse(http.StatusNotFound, "the pod %s has ended (%s) and connects nowhere; `namegate audit --pod %s` may still show what it did", p, p.Phase, p)
	}
	return p, nil
}

// explainTo answers why a pod or a node can or cannot reach a target.
func (r *request) explainTo(p *policy.Pod, to explain.Target) error {
	return r.explained(explain.Question{Node: r.Node, To: to}, r.facts(p, to))
}

// explained answers a question from facts.
func (r *request) explained(q explain.Question, f explain.Facts) error {
	var answer explain.Explanation
	r.decide(func(has func(Right) bool) {
		f.Sees = func(namespace string) bool { return has(RowsOf(namespace)) }
		f.SeesCluster = func(id string) bool { return has(ClusterPolicies(id)) }
		answer = explain.Explain(q, f)
	})
	return r.answer(answer)
}

// facts gathers the facts about a pod and a target, and leaves out the facts about other
// namespaces that the caller may not see.
func (r *request) facts(p *policy.Pod, to explain.Target) explain.Facts {
	f, ref := r.factsOf(p), p.PodRef
	if !to.Addr.IsValid() {
		name := to.Name
		if d, ok := r.Live.Asked(ref, to.Name); ok {
			f.Asked, name = &d, cmp.Or(d.Left, name)
		}
		f.DeniesResolver = func(a netip.Addr) (bool, *policy.Rule) { return r.Live.DeniesResolver(ref, a) }
		f.Via, f.Aliases = r.Live.LedBy(ref, name)
		return f
	}
	f.Ended, f.Inside = r.Live.Ended(ref, to.Addr), r.inside(to.Addr)
	for _, s := range r.Live.Seen(to.Addr) {
		switch {
		case s.Pod == ref:
			f.Seen = append(f.Seen, s)
		case seesPod(s.Pod, r.sees):
			f.Others = append(f.Others, s)
		default:
			f.Hidden = true
		}
	}
	return f
}

// factsOf gathers the facts about a pod.
func (r *request) factsOf(p *policy.Pod) explain.Facts {
	ref, policies := p.PodRef, r.policiesOf(p.Namespace)
	f := explain.Facts{
		Now: r.handler.now(), Pod: *p, View: r.Snapshot.ViewOf(ref), Policies: policies, Failing: r.Failing,
		Trouble: r.Trouble()[ref], Open: r.Live.Grants(ref), Blocked: r.Blocked, Domain: r.Domain, Resolvers: r.Resolvers(),
		Flows: r.flows(ref), Free: free(r.Snapshot, p, policies), Contested: contested(r.Snapshot, p, (*policy.View).InForce),
		Snapshot: r.Snapshot, Services: r.Services, CountsByName: r.CountsByName, Route: r.Route,
		Pods: r.allPods(), OtherNamespaces: r.RemoteNamespaces, OtherPods: r.Unread, Engine: r.Engine(ref),
	}
	if f.Failing != "" && !r.sees("") {
		f.Failing = "who may see all namespaces can see why" // it may name anybody's pods
	}
	f.Problems = r.problems(p, f.View)
	for _, n := range r.NetworkPolicies {
		if n.Namespace == p.Namespace {
			f.NetworkPolicies = append(f.NetworkPolicies, n)
		}
	}
	return f
}

// policiesOf returns the policies of a namespace, "" for all.
func (r *request) policiesOf(namespace string) (out []*v1alpha1.FQDNNetworkPolicy) {
	for _, p := range r.Policies {
		if namespace == "" || p.Namespace == namespace {
			out = append(out, p)
		}
	}
	return out
}

// allPods yields the pods of the snapshot, and the pods of other nodes that are only peers
// of NetworkPolicies.
func (r *request) allPods() iter.Seq[*policy.Pod] {
	return func(yield func(*policy.Pod) bool) {
		pods := r.Snapshot.Pods()
		for i := range pods {
			if !yield(&pods[i]) {
				return
			}
		}
		for _, p := range r.Remote {
			if !yield(p) {
				return
			}
		}
	}
}

// flows returns the pod's denied flows without sources and names that only other pods asked for
// that the caller may not see.
func (r *request) flows(ref policy.PodRef) []audit.Flow {
	flows := slices.Clone(r.Live.Denied(ref))
	for i := range flows {
		if !seesPod(flows[i].SourcePod, r.sees) {
			flows[i].SourcePod = policy.PodRef{}
		}
		flows[i].Names = slices.DeleteFunc(slices.Clone(flows[i].Names), func(n audit.FlowName) bool {
			return n.Pod.Name != "" && !seesPod(n.Pod, r.sees)
		})
	}
	return flows
}

// problems are the problems of the pod, of the policies of all kinds that select it, and
// of policies of its namespace that select no pod until they are corrected. The
// pods that claim an address of the pod are shown to callers who may see all that could.
func (r *request) problems(p *policy.Pod, v *policy.View) (out []policy.Problem) {
	for _, problem := range r.Problems {
		id, of := strings.CutPrefix(problem.Object, "policy ")
		network, ordinary := strings.CutPrefix(problem.Object, "networkpolicy ")
		ruled, ofCluster := clusterPolicy(problem.Object)
		switch {
		case ofCluster && v != nil && slices.Contains(v.ClusterPolicies(), ruled):
			if !r.seesCluster(ruled) {
				continue
			}
		case ordinary && v != nil && (slices.Contains(v.NetworkPolicies, network) || v.Ingress != nil && slices.Contains(v.Ingress.NetworkPolicies, network)):
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
// is allowed in a direction: policies are in force for it there.
func contested(snap *policy.Snapshot, p *policy.Pod, inForce func(*policy.View) bool) (out []netip.Addr) {
	for _, a := range p.IPs {
		if v := snap.View(a); v != nil && inForce(v) && v.Pod.PodRef != p.PodRef {
			out = append(out, a)
		}
	}
	return out
}

// inside describes an address in the cluster.
func (r *request) inside(a netip.Addr) string {
	if ref, ok := r.Snapshot.Pod(a); ok {
		if seesPod(ref, r.sees) {
			return "pod, " + ref.String()
		}
		return "pod"
	}
	if s := r.Services[a]; s != nil && r.sees(s.Ref.Namespace) {
		return "Service, " + s.Ref.Namespace + "/" + s.Ref.Name
	}
	for _, p := range r.Remote {
		if p.HostNetwork || p.Finished() || !slices.Contains(p.IPs, a) {
			continue
		}
		if r.sees(p.Namespace) {
			return "pod, " + p.String()
		}
		return "pod"
	}
	return r.Inside(a)
}

// free lists pods of the pod's namespace that a policy for its workload would select
// too, and that no enforcing policy selects. Of pods of other nodes the policies of the
// namespace tell.
func free(snap *policy.Snapshot, p *policy.Pod, policies []*v1alpha1.FQDNNetworkPolicy) (out []string) {
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
func enforces(policies []*v1alpha1.FQDNNetworkPolicy, p *policy.Pod) bool {
	return slices.ContainsFunc(policies, func(f *v1alpha1.FQDNNetworkPolicy) bool {
		selector, err := metav1.LabelSelectorAsSelector(&f.Spec.PodSelector)
		return err == nil && f.Spec.Enforcement != v1alpha1.EnforcementAudit && selector.Matches(labels.Set(p.Labels))
	})
}
