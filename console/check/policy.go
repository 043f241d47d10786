package check

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/fields"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/source/manifest"
)

// Policy is a policy of any kind as it was read, and its position.
type Policy struct {
	// Policy of a namespace has Pods, and no Namespaces and no place in the order of evaluation.
	*ordered.Policy
	namespace string // "" of the whole cluster
	place     place
	matches   []written
	// One of these is what it was read from.
	own      *v1alpha1.FQDNNetworkPolicy
	ours     *v1alpha1.ClusterFQDNNetworkPolicy
	ofNodes  *v1alpha1.NodeNetworkPolicy
	standard *unstructured.Unstructured
	network  *networkingv1.NetworkPolicy
}

// written is one match that can be read.
type written struct {
	path    string // of findings about where the name leads
	field   string // where the name is written
	raw     string
	pattern fqdn.Pattern
	action  v1alpha1.Action
	ports   policy.PortSet // of its rule; "" if that cannot work
	// serverName: the rule requires it.
	serverName bool
}

// newPolicy reads the policy of an object, nil if it is none.
func newPolicy(at place, o *manifest.Object) *Policy {
	switch {
	case o.Policy != nil:
		p := &Policy{Policy: &fqdnnp.Read(o.Policy).Policy, namespace: o.Policy.Namespace, place: at, own: o.Policy}
		for i, r := range o.Policy.Spec.Egress {
			p.written(i, v1alpha1.ActionAccept, r.Matches)
		}
		return p
	case o.ClusterPolicy != nil:
		p := &Policy{Policy: &cfqdnnp.Read(o.ClusterPolicy).Policy, place: at, ours: o.ClusterPolicy}
		for i, r := range o.ClusterPolicy.Spec.Egress {
			p.written(i, r.Action, r.Matches)
		}
		return p
	case o.NodePolicy != nil:
		p := &Policy{Policy: nnp.Read(o.NodePolicy), place: at, ofNodes: o.NodePolicy}
		for i, r := range o.NodePolicy.Spec.Egress {
			p.written(i, v1alpha1.Action(r.Action), r.Matches)
		}
		return p
	case o.ClusterNetworkPolicy != nil:
		p := &Policy{Policy: cnp.Read(o.ClusterNetworkPolicy), place: at, standard: o.ClusterNetworkPolicy}
		for _, r := range p.Rules {
			for _, match := range r.Matches {
				p.matches = append(p.matches, written{match.Path, match.Path, match.Pattern.String(), match.Pattern, v1alpha1.Action(r.Action.String()), r.Ports, false})
			}
		}
		return p
	case o.NetworkPolicy != nil:
		return &Policy{Policy: netpol.Read(o.NetworkPolicy), namespace: o.NetworkPolicy.Namespace, place: at, network: o.NetworkPolicy}
	}
	return nil
}

// written adds the matches of a rule.
func (p *Policy) written(rule int, action v1alpha1.Action, matches []v1alpha1.Match) {
	at := fmt.Sprintf("spec.egress[%d]", rule)
	ports, serverName := policy.PortSet(""), false
	if i := slices.IndexFunc(p.Rules, func(r ordered.Rule) bool { return r.Path == at && len(r.Matches) > 0 }); i >= 0 {
		ports, serverName = p.Rules[i].Ports, p.Rules[i].ServerName
	}
	for i, from := range matches {
		pattern, ok := said.Match("", &from)
		if !ok {
			continue
		}
		w := written{path: fmt.Sprintf("%s.matches[%d]", at, i), pattern: pattern, action: action, ports: ports, serverName: serverName}
		if from.Name != nil {
			w.field, w.raw = w.path+".name", *from.Name
		} else {
			w.field, w.raw = w.path+".pattern", *from.Pattern
		}
		if p.own != nil {
			w.path = w.field
		}
		p.matches = append(p.matches, w)
	}
}

// said takes problems that are findings already.
var said fields.Report = func(string, string, ...any) {}

// take adds a policy, the first of its name.
func (m *Manifests) take(p *Policy) {
	key, kind := p.ID, "policy"
	if p.network != nil {
		key, kind = p.Object, "NetworkPolicy"
	}
	if first, taken := m.known[key]; taken {
		if p.place.file != "" { // else the file is to replace it
			m.find(p.finding(Error, Duplicate, "metadata.name", fmt.Sprintf("a %s of that name is in %s; remove or rename one of them", kind, first.ref("metadata.name"))))
		}
		return
	}
	m.known[key] = p.place
	m.Policies = append(m.Policies, p)
}

// ruleAt says where a field of a rule's policy is written, " at file:line"; "" for a rule of the cluster.
func (m *Manifests) ruleAt(r *policy.Rule, path string) string {
	key := r.Policy
	if r.Tier == policy.Namespace && r.Action != policy.Deny && r.Peer.Kind != policy.PeerNames {
		key = "networkpolicy " + key
	}
	return m.known[key].where(path)
}

// ofCluster tells whether the policy is one of the whole cluster.
func (p *Policy) ofCluster() bool { return p.namespace == "" }

// selects tells whether the policy selects a pod.
func (m *Manifests) selects(p *Policy, pod *Pod) bool {
	if p.ofCluster() {
		return p.Selects(m.namespaceLabels(pod.Namespace), pod.Labels)
	}
	return p.Pods != nil && p.namespace == pod.Namespace && p.Pods.Matches(pod.Labels)
}

// subject is the field that selects.
func (p *Policy) subject() string {
	switch {
	case p.ofNodes != nil:
		return "spec.nodeSelector"
	case p.ofCluster():
		return "spec.subject"
	}
	return "spec.podSelector"
}

// finding returns a finding at a field of the policy.
func (p *Policy) finding(severity Severity, reason, path, message string) Finding {
	return Finding{File: p.place.file, Line: p.place.at(path), Severity: severity, Reason: reason, Object: p.Object, Path: path, Message: message}
}
