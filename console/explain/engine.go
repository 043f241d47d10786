package explain

import (
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/console/suggest"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/netpolicyfor"
)

// engine advises the NetworkPolicies that another engine needs, so that it does not deny what the
// policies of the pod allow. Where Namegate is the engine there is no other one, unless one drops queries.
func (in *inquiry) engine() {
	e, v := in.f.Engine, in.f.View
	if e == nil || v == nil || !v.InForce() || v.Standalone && !e.Drops || in.said.Verdict != Allowed && in.said.Verdict != OnceAsked && in.said.Verdict != Checked {
		return
	}
	if in.to.Addr.IsValid() && len(in.said.Open) == 0 {
		return // rules for the address allow it, and no query comes before
	}
	services := e.Services
	services.List = slices.DeleteFunc(slices.Clone(services.List), func(s *policy.Service) bool { return !in.sees(s.Ref.Namespace) })
	var needed []*networkingv1.NetworkPolicy
	var ids []string
	hidden := false
	add := func(id string, p *netpolicyfor.Policy) {
		of := slices.DeleteFunc(p.Beside(in.f.NetworkPolicies, e.Endpoint), func(n *networkingv1.NetworkPolicy) bool {
			selector, err := metav1.LabelSelectorAsSelector(&n.Spec.PodSelector)
			return err != nil || !selector.Matches(labels.Set(in.f.Pod.Labels))
		})
		switch {
		case len(of) == 0:
		case p.OfCluster && !in.seesCluster(id):
			hidden = true
		default:
			needed, ids = append(needed, of...), append(ids, id)
		}
	}
	for _, id := range v.Policies {
		if p := in.policy(id); p != nil {
			add(id, netpolicyfor.Of(p, services))
		}
	}
	for _, p := range e.ClusterPolicies {
		add(p.Name, netpolicyfor.OfCluster(p, in.f.Pod.Namespace, e.Labels, services))
	}
	if len(needed) > 0 {
		text, err := suggest.YAML(needed...)
		if err != nil {
			in.do("no NetworkPolicy could be written: %v", err)
			return
		}
		in.advice().NetworkPolicy = string(text)
		when := "if another engine enforces NetworkPolicies"
		if e.Drops {
			when = "another NetworkPolicy engine drops the pod's queries"
		}
		in.do("%s: apply the NetworkPolicy below, which opens DNS and the ports of %s in that engine; Namegate decides the destinations, and ignores the NetworkPolicy", when, strings.Join(ids, ", "))
	}
	if hidden {
		in.do("%s", netpolicyfor.Refused)
	}
}
