package compile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	api "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/namegate/namegate/policy"
)

// standard makes a ClusterNetworkPolicy for ingress at random.
func (d netDice) standard(name string) *unstructured.Unstructured {
	var p api.ClusterNetworkPolicy
	p.Spec.Tier, p.Spec.Priority = roll(d, api.AdminTier, api.BaselineTier), int32(d.IntN(2))
	if p.Spec.Subject.Namespaces = d.spaces(); d.IntN(2) == 0 {
		p.Spec.Subject = api.ClusterNetworkPolicySubject{Pods: &api.NamespacedPod{NamespaceSelector: *d.spaces(), PodSelector: *d.selector()}}
	}
	for range d.IntN(4) {
		rule := api.ClusterNetworkPolicyIngressRule{Action: roll(d, api.ClusterNetworkPolicyRuleActionAccept, api.ClusterNetworkPolicyRuleActionDeny, api.ClusterNetworkPolicyRuleActionPass)}
		for range 1 + d.IntN(2) {
			rule.From = append(rule.From, roll(d,
				api.ClusterNetworkPolicyIngressPeer{Namespaces: d.spaces()},
				api.ClusterNetworkPolicyIngressPeer{Pods: &api.NamespacedPod{NamespaceSelector: *d.spaces(), PodSelector: *d.selector()}}))
		}
		if d.IntN(20) == 0 {
			rule.From = append(rule.From, api.ClusterNetworkPolicyIngressPeer{})
		}
		for range d.IntN(3) {
			rule.Protocols = append(rule.Protocols, roll(d,
				api.ClusterNetworkPolicyProtocol{TCP: &api.ClusterNetworkPolicyProtocolTCP{DestinationPort: &api.Port{Number: 443}}},
				api.ClusterNetworkPolicyProtocol{UDP: &api.ClusterNetworkPolicyProtocolUDP{DestinationPort: &api.Port{Range: &api.PortRange{Start: 80, End: 90}}}},
				api.ClusterNetworkPolicyProtocol{SCTP: &api.ClusterNetworkPolicyProtocolSCTP{DestinationPort: &api.Port{Number: 5432}}},
				api.ClusterNetworkPolicyProtocol{DestinationNamedPort: roll(d, "web", "sql")}))
		}
		p.Spec.Ingress = append(p.Spec.Ingress, rule)
	}
	text, err := json.Marshal(&p)
	if err != nil {
		panic(err)
	}
	out := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &out.Object); err != nil {
		panic(err)
	}
	out.SetName(name)
	return out
}

// withStandards adds ClusterNetworkPolicies to a world.
func (d netDice) withStandards(in Input) Input {
	in.EnforceNetworkPolicies = d.IntN(2) == 0
	for i := range roll(d, 0, 0, 1, 2, 3) {
		in.ClusterNetworkPolicies = append(in.ClusterNetworkPolicies, d.standard(fmt.Sprintf("cnp%d", i)))
	}
	return in
}

// changeIngress is change, of these too.
func (d netDice) changeIngress(in Input) Input {
	in.ClusterNetworkPolicies = slices.Clone(in.ClusterNetworkPolicies)
	switch n := len(in.ClusterNetworkPolicies); d.IntN(20) {
	case 0:
		in.EnforceNetworkPolicies = !in.EnforceNetworkPolicies
	case 1, 2:
		p := d.standard(fmt.Sprintf("cnp%d", d.IntN(4)))
		in.ClusterNetworkPolicies = append(slices.DeleteFunc(in.ClusterNetworkPolicies, func(o *unstructured.Unstructured) bool { return o.GetName() == p.GetName() }), p)
	case 3:
		in.ClusterNetworkPolicies = slices.Delete(in.ClusterNetworkPolicies, max(0, n-1), n)
	default:
		return d.change(in)
	}
	return in
}

// standards returns the ClusterNetworkPolicies with rules for ingress of a pod, in order.
func (w netTwin) standards(pod *policy.Pod) (out []*api.ClusterNetworkPolicy) {
	for _, u := range w.ClusterNetworkPolicies {
		text, err := json.Marshal(u)
		if err != nil {
			panic(err)
		}
		p := &api.ClusterNetworkPolicy{}
		if err := json.Unmarshal(text, p); err != nil {
			panic(err)
		}
		space, known := w.Namespaces[pod.Namespace]
		if !known {
			space = map[string]string{"kubernetes.io/metadata.name": pod.Namespace}
		}
		s := p.Spec.Subject
		selects := s.Namespaces != nil && twinSelects(s.Namespaces, space) || s.Pods != nil && twinSelects(&s.Pods.NamespaceSelector, space) && twinSelects(&s.Pods.PodSelector, pod.Labels)
		if selects && len(p.Spec.Ingress) > 0 {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *api.ClusterNetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), strings.Compare(a.Name, b.Name))
	})
	return out
}

// broken tells whether a rule has a part that cannot be read.
func twinBroken(rule *api.ClusterNetworkPolicyIngressRule) bool {
	bad := func(s *metav1.LabelSelector) bool {
		_, err := metav1.LabelSelectorAsSelector(s)
		return err != nil
	}
	return slices.ContainsFunc(rule.From, func(p api.ClusterNetworkPolicyIngressPeer) bool {
		return p.Namespaces == nil && p.Pods == nil || p.Namespaces != nil && bad(p.Namespaces) || p.Pods != nil && (bad(&p.Pods.NamespaceSelector) || bad(&p.Pods.PodSelector))
	})
}

// inboundTwin is what judges the connections to the pod of a view.
type inboundTwin struct {
	netTwin
	*policy.View
	standards []*api.ClusterNetworkPolicy
	isolated  bool
}

func (w netTwin) inbound(v *policy.View) inboundTwin {
	return inboundTwin{w, v, w.standards(&v.Pod), w.isolates(v, true)}
}

// ordered returns the action of a tier for a connection, Pass for none, and the rule.
func (w inboundTwin) ordered(tier api.Tier, from netip.Addr, proto policy.Protocol, port uint16) (api.ClusterNetworkPolicyRuleAction, string) {
	const pass, deny = api.ClusterNetworkPolicyRuleActionPass, api.ClusterNetworkPolicyRuleActionDeny
	for _, p := range w.standards {
		for i := range p.Spec.Ingress {
			rule, id := &p.Spec.Ingress[i], fmt.Sprintf("clusternetworkpolicy:%s spec.ingress[%d]", p.Name, i)
			if p.Spec.Tier != tier {
				continue
			}
			if twinBroken(rule) {
				if rule.Action != api.ClusterNetworkPolicyRuleActionAccept {
					return deny, id
				}
				continue
			}
			var peers networkingv1.NetworkPolicyEgressRule
			for _, f := range rule.From {
				peer := networkingv1.NetworkPolicyPeer{NamespaceSelector: f.Namespaces}
				if f.Pods != nil {
					peer = networkingv1.NetworkPolicyPeer{NamespaceSelector: &f.Pods.NamespaceSelector, PodSelector: &f.Pods.PodSelector}
				}
				peers.To = append(peers.To, peer)
			}
			if w.leads(&networkingv1.NetworkPolicy{}, &peers, from, nil) && twinProtocols(rule.Protocols, &w.Pod, proto, port) {
				return rule.Action, id
			}
		}
	}
	return pass, ""
}

func twinProtocols(list []api.ClusterNetworkPolicyProtocol, pod *policy.Pod, proto policy.Protocol, port uint16) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(p api.ClusterNetworkPolicyProtocol) bool {
		switch {
		case p.TCP != nil:
			return proto == policy.TCP && port == 443
		case p.UDP != nil:
			return proto == policy.UDP && 80 <= port && port <= 90
		case p.SCTP != nil:
			return proto == policy.SCTP && port == 5432
		}
		return slices.Contains(pod.Ports, policy.NamedPort{Name: p.DestinationNamedPort, Protocol: proto, Port: port})
	})
}

// claimants returns the pods that a view stands for.
func (w netTwin) claimants(v *policy.View) (pods []*policy.Pod) {
	for i := range w.Pods {
		p := &w.Pods[i]
		if p.Local() && !p.HostNetwork && !p.Finished() && (p.PodRef == v.Pod.PodRef || strings.Contains(v.Pod.UID, "+") && slices.ContainsFunc(v.Pod.IPs, func(a netip.Addr) bool { return slices.Contains(p.IPs, a) })) {
			pods = append(pods, p)
		}
	}
	return pods
}

// isolates tells whether a pod of the view is default-deny in a direction.
func (w netTwin) isolates(v *policy.View, ingress bool) bool {
	return slices.ContainsFunc(w.claimants(v), func(p *policy.Pod) bool {
		for _, own := range w.Policies {
			if !ingress && own.Namespace == p.Namespace {
				return true
			}
		}
		counts := w.EnforceNetworkPolicies || ingress && len(w.standards(p)) > 0
		return counts && slices.ContainsFunc(w.NetworkPolicies, func(n *networkingv1.NetworkPolicy) bool { return w.selectsFor(n, p, ingress) })
	})
}

// admits tells whether a connection may come to the pod, and by which rules.
func (w inboundTwin) admits(from netip.Addr, proto policy.Protocol, port uint16) (allowed bool, by []string) {
	const accept, pass = api.ClusterNetworkPolicyRuleActionAccept, api.ClusterNetworkPolicyRuleActionPass
	if strings.Contains(w.Pod.UID, "+") { // an address in conflict is closed, if a pod that claims it is judged
		return w.Ingress == nil && !w.isolated || w.isolated && slices.Contains(w.Pod.IPs, from), nil
	}
	if a, r := w.ordered(api.AdminTier, from, proto, port); a != pass {
		return a == accept, []string{r}
	}
	if w.isolated {
		for _, n := range w.netTwin.NetworkPolicies {
			for i, rule := range n.Spec.Ingress {
				as := &networkingv1.NetworkPolicyEgressRule{To: rule.From, Ports: rule.Ports}
				if w.selectsFor(n, &w.Pod, true) && w.rule(n, as, &w.Pod, from, proto, port) {
					by = append(by, fmt.Sprintf("%s/%s spec.ingress[%d]", n.Namespace, n.Name, i))
				}
			}
		}
		return by != nil || slices.Contains(w.Pod.IPs, from), by
	}
	if a, r := w.ordered(api.BaselineTier, from, proto, port); a != pass {
		return a == accept, []string{r}
	}
	return true, nil
}

// compare asks view and twin whether a connection may come to the pod.
func (w inboundTwin) compare(t *testing.T, s *policy.Snapshot, from netip.Addr, proto policy.Protocol, port uint16) (open int) {
	t.Helper()
	if len(w.Pod.IPs) == 0 {
		return 0
	}
	f := policy.Flow{Protocol: proto, Source: from, Reached: netip.AddrPortFrom(w.Pod.IPs[0], port)}
	got, rule := policy.EvaluateIngress(w.View, s, &f)
	want, by := w.admits(from, proto, port)
	id := ""
	if rule != nil {
		id = rule.Policy + " " + rule.Path
	}
	if got != want || !(rule == nil && by == nil || slices.Contains(by, id) || rule != nil && rule.Closed) {
		t.Fatalf("%v from %v %v %d: allowed %v by %s, the twin %v by %v\n%s", w.Pod, from, proto, port, got, id, want, by, strings.Join(append(ingressTexts(w.View), setTexts(s)...), "\n"))
	}
	if want {
		return 1
	}
	return 0
}
