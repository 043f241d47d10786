package convert

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
)

// calicoHostEndpoint is a HostEndpoint of Calico. Source: https://github.com/projectcalico/calico, api/pkg/apis/projectcalico/v3.
type calicoHostEndpoint struct {
	head
	Spec struct {
		Node          string          `json:"node"`
		InterfaceName string          `json:"interfaceName"`
		ExpectedIPs   []string        `json:"expectedIPs"`
		Profiles      []string        `json:"profiles"`
		Ports         json.RawMessage `json:"ports"`
	} `json:"spec"`
}

const (
	// calicoHosts is the kind that policies for nodes depend on.
	calicoHosts = "HostEndpoint"
	// calicoCreatedBy is a label of the host endpoints that Calico makes of Nodes, with the labels of the Node.
	calicoCreatedBy = "projectcalico.org/created-by"
	// calicoAllowAll is the profile with which a host endpoint allows what no policy is about.
	calicoAllowAll = "projectcalico-default-allow"
	// calicoGlobalOnly selects what has no namespace.
	calicoGlobalOnly = "global()"
)

// calicoHost is a host endpoint that was read.
type calicoHost struct {
	*object
	node, name string // of the node and of its interface
	allows     bool   // what no policy is about
}

// calicoHost reads a HostEndpoint, which becomes a part of the policies that select it.
func (o *object) calicoHost() {
	var e calicoHostEndpoint
	if !o.read(&e) {
		return
	}
	h := calicoHost{o, e.Spec.Node, e.Spec.InterfaceName, slices.Contains(e.Spec.Profiles, calicoAllowAll)}
	o.r.hosts = append(o.r.hosts, h)
	if h.name == "" {
		o.note(Wider, "spec.interfaceName", "is missing: its policies are for the interfaces with the addresses of the Node's status or a default route; write it")
	}
	if slices.ContainsFunc(e.Spec.Profiles, func(p string) bool { return p != calicoAllowAll }) {
		o.note(Narrower, "spec.profiles", "profiles other than %s are left out; write their rules in a %s", calicoAllowAll, v1alpha1.NodeKind)
	}
}

// denyHosts denies what no policy accepts where a host endpoint has no profile that allows it.
func (r *Result) denyHosts() {
	hosts := slices.DeleteFunc(slices.Clone(r.hosts), func(h calicoHost) bool { return h.allows })
	for i, s := range hostSubjects(hosts, nil) {
		name, deny := numberedName(hosts[0].object.name, i)+"-default", []rule{{name: "default", action: v1alpha1.ActionDeny}}
		hosts[0].note(Changed, "spec.profiles", "without %s, Calico denies what no policy accepts: %s does", calicoAllowAll, name)
		hosts[0].write(hosts[0].ofNodes(name, s, v1alpha1.TrafficLocal, cfqdnnp.MaxPriority, deny, deny))
	}
}

// hostsOf returns the host endpoints that have labels.
func (r *Result) hostsOf(selector *metav1.LabelSelector) (hosts []calicoHost) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	for _, h := range r.hosts {
		if err == nil && s.Matches(labels.Set(h.metadata.Labels)) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// hostSubjects returns the nodes of host endpoints, once for each list of interfaces. The selector that selected
// them selects also nodes if all have the labels of their Nodes.
func hostSubjects(hosts []calicoHost, selector *metav1.LabelSelector) (subjects []nodeSubject) {
	if selector != nil && !slices.ContainsFunc(hosts, func(h calicoHost) bool { return h.metadata.Labels[calicoCreatedBy] == "" || h.name != "*" }) {
		return []nodeSubject{{nodeLabels(selector), []v1alpha1.Interface{"*"}}}
	}
	interfaces, nodes := map[string][]string{}, map[string][]string{}
	for _, h := range hosts {
		interfaces[h.node] = append(interfaces[h.node], h.name)
	}
	for _, node := range slices.Sorted(maps.Keys(interfaces)) {
		names := interfaces[node]
		slices.Sort(names)
		list := strings.Join(slices.Compact(names), " ")
		nodes[list] = append(nodes[list], node)
	}
	for _, list := range slices.Sorted(maps.Keys(nodes)) {
		s := nodeSubject{selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: nodes[list]}}}}
		for name := range strings.FieldsSeq(list) {
			s.interfaces = append(s.interfaces, v1alpha1.Interface(name))
		}
		subjects = append(subjects, s)
	}
	return subjects
}

// nodeLabels returns a selector without the label that host endpoints have and Nodes have not.
func nodeLabels(s *metav1.LabelSelector) *metav1.LabelSelector {
	s = s.DeepCopy()
	delete(s.MatchLabels, calicoCreatedBy)
	s.MatchExpressions = slices.DeleteFunc(s.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool { return e.Key == calicoCreatedBy })
	return s
}

// onHosts tells whether a selector requires a label that no pod has by the names of Kubernetes and the documents
// of Calico.
func onHosts(s *metav1.LabelSelector) bool {
	known := []string{"host-endpoint", "kubernetes-host", calicoCreatedBy, corev1.LabelHostname}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return false
	}
	requirements, _ := selector.Requirements()
	return slices.ContainsFunc(requirements, func(q labels.Requirement) bool {
		required := slices.Contains([]selection.Operator{selection.In, selection.Equals, selection.Exists}, q.Operator())
		return required && (slices.Contains(known, q.Key()) || strings.HasPrefix(q.Key(), "node-role.kubernetes.io/"))
	})
}

// calicoNodes converts a policy for the host endpoints that it selects, and tells whether the part for pods is to
// be converted.
func (o *object) calicoNodes(p *calicoPolicy) (pods bool) {
	before := p.Spec.PreDNAT || p.Spec.DoNotTrack // the other policies
	global, s := p.Spec.NamespaceSelector == calicoGlobalOnly, calicoSelector{ofHosts: true}
	err := s.read(p.Spec.Selector)
	ofNamespaces := p.Spec.NamespaceSelector != "" && !global || err == nil && !empty(&s.namespaces)
	hosts, hostsOnly := o.r.hostsOf(&s.pods), before || global || onHosts(&s.pods)
	ingress, egress := p.directions()
	switch {
	case ofNamespaces && before:
		o.note(Failed, "spec", "it selects by namespace, and preDNAT and doNotTrack are for host endpoints alone")
		return false
	case ofNamespaces, !hostsOnly && !p.Spec.ApplyOnForward && (err != nil || len(hosts) == 0):
		return true
	case err != nil:
		o.note(Failed, "spec.selector", "%v", err)
		return false
	case p.Spec.PreDNAT && (p.Spec.DoNotTrack || egress):
		o.note(Failed, "spec.preDNAT", "Calico refuses it beside doNotTrack, and beside rules for egress")
		return false
	}
	o.writeNodes(p, hosts, &s.pods, ingress, egress)
	if !hostsOnly && !p.named() {
		o.note(Wider, "spec.selector", "nothing is written for pods; if it selects some, write a NetworkPolicy for them")
	}
	return !hostsOnly && p.named()
}

// directions returns the directions that a policy is about.
func (p *calicoPolicy) directions() (ingress, egress bool) {
	if len(p.Spec.Types) > 0 {
		return slices.Contains(p.Spec.Types, "Ingress"), slices.Contains(p.Spec.Types, "Egress")
	}
	return len(p.Spec.Ingress) > 0 || len(p.Spec.Egress) == 0, len(p.Spec.Egress) > 0
}

// writeNodes writes a policy for each kind of traffic that a policy of Calico is about, and what Calico denies
// behind the last one.
func (o *object) writeNodes(p *calicoPolicy, hosts []calicoHost, selector *metav1.LabelSelector, ingress, egress bool) {
	o.calicoTier(p.Spec.Tier, v1alpha1.NodeKind)
	priority := o.calicoOrder(p.Spec.Order, cfqdnnp.MaxPriority-1)
	traffic := []v1alpha1.Traffic{v1alpha1.TrafficLocal}
	switch {
	case p.Spec.PreDNAT:
		traffic[0] = v1alpha1.TrafficBeforeNAT
	case p.Spec.DoNotTrack:
		traffic[0] = v1alpha1.TrafficUntracked
	case p.Spec.ApplyOnForward:
		traffic = append(traffic, v1alpha1.TrafficForwarded)
	}
	rules := func(typed, ingress bool, list []calicoRule, path string) (rules, rest []rule) {
		if typed {
			rules = rulesOf(list, path, func(e *calicoRule, path string) (rule, bool) { return o.calicoHostRule(e, path, p, traffic, ingress) })
		}
		// Behind preDNAT and doNotTrack, the other policies decide.
		if typed && traffic[0] == v1alpha1.TrafficLocal && !decided(rules, v1alpha1.ActionAccept, v1alpha1.ActionDeny) {
			rest = []rule{{name: "default", action: v1alpha1.ActionDeny}}
		}
		return rules, rest
	}
	in, restIn := rules(ingress, true, p.Spec.Ingress, "spec.ingress")
	out, restOut := rules(egress, false, p.Spec.Egress, "spec.egress")
	subjects := hostSubjects(hosts, selector)
	if len(hosts) == 0 {
		subjects[0].interfaces = nil
		o.note(Wider, "spec.selector", "selects no %s of the manifests: its labels are taken for labels of Nodes, and the policy is for the interfaces with the addresses of the Node's status or a default route; convert it together with the %ss", calicoHosts, calicoHosts)
	}
	for i, s := range subjects {
		if slices.Contains(s.interfaces, "*") && p.Spec.DoNotTrack {
			o.note(Failed, "spec.doNotTrack", "Calico has no doNotTrack for host endpoints of every interface (*); write the interface")
			continue
		}
		for _, of := range traffic {
			name, out := o.name, out
			if of == v1alpha1.TrafficForwarded {
				name, out = name+"-forwarded", slices.DeleteFunc(slices.Clone(out), func(r rule) bool { return len(r.matches) > 0 })
			}
			name = numberedName(name, i)
			if len(in)+len(out) > 0 {
				o.write(o.ofNodes(name, s, of, priority, in, out))
			}
			if len(restIn)+len(restOut) > 0 {
				o.write(o.ofNodes(name+"-default", s, of, cfqdnnp.MaxPriority, restIn, restOut))
			}
		}
	}
}

// calicoHostRule converts a rule of a policy for host endpoints, for kinds of traffic in a direction.
func (o *object) calicoHostRule(e *calicoRule, path string, p *calicoPolicy, traffic []v1alpha1.Traffic, ingress bool) (rule, bool) {
	near, far, at := &e.Source, &e.Destination, path+".destination"
	source, destination := []string{}, []string{"nets", "ports", "domains", "selector", "namespaceSelector"}
	if ingress {
		near, far, at = &e.Destination, &e.Source, path+".source"
		source, destination = []string{"nets", "selector", "namespaceSelector"}, []string{"ports"}
	}
	own := near.Selector != "" && near.Selector == p.Spec.Selector // the host endpoint itself
	if own {
		source, destination = append(source, "selector"), append(destination, "selector")
	}
	r, ok := o.calicoEnds(e, path, far, source, destination, false)
	if !ok {
		return r, false
	}
	local := traffic[0] == v1alpha1.TrafficLocal
	through := !local || len(traffic) > 1
	if through && own {
		grade := Wider
		if r.action == v1alpha1.ActionDeny {
			grade = Narrower
		}
		o.note(grade, path, "%s is left out: the rule is also for what passes through the node", near.Selector)
	}
	if through && len(r.matches) > 0 {
		o.without(r.action, at+".domains", "is left out for traffic other than %s, for which names do not count", v1alpha1.TrafficLocal)
	}
	if !local {
		r.matches = nil
	}
	o.calicoPeers(&r, far, at, traffic[0])
	o.noPass(&r, path)
	return r, !r.everywhere() || len(far.Domains)+len(far.Nets)+len(far.Selector)+len(far.NamespaceSelector) == 0
}

// calicoPeers adds the nodes and pods that an end of a rule selects.
func (o *object) calicoPeers(r *rule, far *calicoEntity, path string, traffic v1alpha1.Traffic) {
	if far.Selector == "" && far.NamespaceSelector == "" {
		return
	}
	s, global := calicoSelector{ofHosts: true}, far.NamespaceSelector == calicoGlobalOnly
	err := s.read(far.Selector)
	if s.ofNamespaces = true; err == nil && !global {
		err = s.read(far.NamespaceSelector)
	}
	if err != nil || len(far.Nets)+len(far.Domains) > 0 {
		o.without(r.action, path, "is left out: a selector beside nets or domains, or one that is not read, has no equal")
		r.matches, r.networks = nil, nil
		return
	}
	hosts, hostsOnly := o.r.hostsOf(&s.pods), global || onHosts(&s.pods)
	if hostsOnly || far.NamespaceSelector == "" && empty(&s.namespaces) && (empty(&s.pods) || len(hosts) > 0) {
		for _, of := range hostSubjects(hosts, &s.pods) {
			r.nodes = append(r.nodes, of.selector)
		}
	}
	switch {
	case hostsOnly:
		return
	case far.NamespaceSelector == "":
		o.without(r.action, path+".selector", "selects network sets too, which are left out; write networks")
	}
	if traffic == v1alpha1.TrafficUntracked {
		o.without(r.action, path, "pods are left out: traffic %s is not for them", traffic)
		return
	}
	r.pods = append(r.pods, &v1alpha1.PodSubject{NamespaceSelector: &s.namespaces, PodSelector: &s.pods})
}
