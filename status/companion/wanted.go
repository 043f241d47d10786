package companion

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/compile"
)

const (
	// PolicyAnnotation of a companion names its policy.
	PolicyAnnotation = "namegate.io/policy"
	// maxCompanions bounds the companions of a namespace. A hundred policies beside a
	// hundred NetworkPolicies of selectors of their own would make 10,000 of them.
	maxCompanions = 256
	dnsPort       = 53

	// ManagedByLabel is ManagedBy on everything that an agent writes, but for the Lease of the election.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of ManagedByLabel.
	ManagedBy = "namegate"
)

// isCompanion tells whether an agent wrote an object: by its name and its owner, so that a
// companion stays ours when it loses its label. A user's copy of a companion has another
// name, or no owner.
func isCompanion(n *networkingv1.NetworkPolicy) bool {
	return strings.HasPrefix(n.Name, netpol.CompanionPrefix) && ownedByPolicy(n)
}

// limiting tells whether companions are to stand beside a NetworkPolicy.
func limiting(n *networkingv1.NetworkPolicy) bool {
	return n.DeletionTimestamp == nil && !isCompanion(n) && limitsEgress(n)
}

// limitsEgress tells whether a NetworkPolicy denies some egress to its pods. Its list of
// types is never empty once an API server has seen it.
func limitsEgress(n *networkingv1.NetworkPolicy) bool {
	if !slices.Contains(n.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) && (len(n.Spec.PolicyTypes) > 0 || len(n.Spec.Egress) == 0) {
		return false
	}
	return !slices.ContainsFunc(n.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
		return len(rule.To) == 0 && len(rule.Ports) == 0 // everything is allowed
	})
}

// portsOf returns the ports that a companion of a policy opens beside the endpoint.
type portsOf func(*v1alpha1.FQDNNetworkPolicy, *networkingv1.NetworkPolicy) compile.PodPorts

// wanted returns the companions that there should be, in order: for each policy and each
// NetworkPolicy that limits egress in its namespace one for the pods that both select.
// Several pairs with one selector share one. crowded are the policies that go without
// some, since their namespace has too many.
func wanted(
	policies map[string]*v1alpha1.FQDNNetworkPolicy, others []*networkingv1.NetworkPolicy, endpoint []netip.Prefix, ports portsOf,
) (all []*networkingv1.NetworkPolicy, crowded []*v1alpha1.FQDNNetworkPolicy) {
	if len(endpoint) == 0 {
		return nil, nil // a rule without addresses would open all of them
	}
	limits := map[string][]*networkingv1.NetworkPolicy{}
	for _, n := range others {
		if limiting(n) {
			limits[n.Namespace] = append(limits[n.Namespace], n)
		}
	}
	count := map[string]int{}
	ids := sortedKeys(policies)
	slices.SortStableFunc(ids, func(a, b string) int { return strings.Compare(kindOf(policies[a]), kindOf(policies[b])) })
	for _, id := range ids { // cluster policies have room first
		p := policies[id]
		if p.UID == "" || p.DeletionTimestamp != nil || unwanted(p) {
			continue
		}
		mine := companionsOf(p, limits[p.Namespace], endpoint)
		if room := maxCompanions - count[p.Namespace]; len(mine) > room {
			mine = mine[:room]
			crowded = append(crowded, p)
		}
		count[p.Namespace] += len(mine)
		for _, n := range mine {
			n.Spec.Egress = append(n.Spec.Egress, portRules(ports(p, n))...)
		}
		all = append(all, mine...)
	}
	return all, crowded
}

// Companions returns the companions beside policies and all other NetworkPolicies of a cluster
// with these Services and no bypass.
func Companions(
	policies []v1alpha1.FQDNNetworkPolicy, others []*networkingv1.NetworkPolicy, services *compile.NamedServices, endpoint []netip.Prefix,
	open Ports,
) []*networkingv1.NetworkPolicy {
	byID := make(map[string]*v1alpha1.FQDNNetworkPolicy, len(policies))
	for i := range policies {
		byID[policies[i].Namespace+"/"+policies[i].Name] = &policies[i]
	}
	all, _ := wanted(byID, others, endpoint, func(p *v1alpha1.FQDNNetworkPolicy, _ *networkingv1.NetworkPolicy) (ports compile.PodPorts) {
		if accepted, _, _ := policy.Acceptance(fqdnnp.Validate(p)); accepted && openable(p) && open.requested(p) {
			ports, _ = compile.PodPortsOf(p, services)
		}
		return ports
	})
	return all
}

// companionsOf returns the companions of one policy, sorted by name.
func companionsOf(p *v1alpha1.FQDNNetworkPolicy, others []*networkingv1.NetworkPolicy, endpoint []netip.Prefix) (out []*networkingv1.NetworkPolicy) {
	for _, n := range others {
		both, possible, err := intersect(&p.Spec.PodSelector, &n.Spec.PodSelector)
		if err != nil || !possible {
			continue // a selector that cannot be read selects nothing; the condition says so
		}
		out = append(out, newCompanion(p, both, endpoint))
	}
	byName := func(a, b *networkingv1.NetworkPolicy) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(out, byName)
	return slices.CompactFunc(out, func(a, b *networkingv1.NetworkPolicy) bool { return a.Name == b.Name })
}

func newCompanion(p *v1alpha1.FQDNNetworkPolicy, selector *metav1.LabelSelector, endpoint []netip.Prefix) *networkingv1.NetworkPolicy {
	rule := networkingv1.NetworkPolicyEgressRule{}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
		port := intstr.FromInt32(dnsPort)
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port})
	}
	for _, prefix := range endpoint {
		rule.To = append(rule.To, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: prefix.Masked().String()}})
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: companionName(p, selector),
			Labels:      map[string]string{ManagedByLabel: ManagedBy},
			Annotations: map[string]string{PolicyAnnotation: p.Name},
			// It does not block the policy's deletion: that would need a right to the policy's
			// finalizers where the API server enforces rights for owners.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion().String(), Kind: kindOf(p), Name: p.Name, UID: p.UID, Controller: new(true),
			}},
		},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *selector, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{rule},
		},
	}
}

// companionName is the same for the same policy and selector.
func companionName(p *v1alpha1.FQDNNetworkPolicy, selector *metav1.LabelSelector) string {
	of := p.Name
	if p.Kind == v1alpha1.ClusterKind {
		of = idOf(p)
	}
	text, err := json.Marshal(selector)
	if err != nil { // strings alone
		panic(err)
	}
	sum := sha256.Sum256([]byte(of + "\x00" + string(text)))
	return netpol.CompanionPrefix + hex.EncodeToString(sum[:8])
}
