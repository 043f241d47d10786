package netpolicyfor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/peers"
)

// Refused is the text for viewers who may not get the cluster policies whose ports the object has.
const Refused = "a cluster policy (Admin) allows it, and another NetworkPolicy engine needs a NetworkPolicy beside that policy; " +
	"ask who administers the cluster's policies for it"

// Serving is where agents serve pods.
type Serving struct {
	Prefixes []netip.Prefix
	// RelayPort is the TCP port of connections whose server name is required.
	RelayPort uint16
}

// RelayPort is the default one.
const RelayPort = 9955

// Endpoint returns the prefixes of the addresses on which agents serve pods, with the default port: the default ones, and
// the addresses of a Corefile's bind.
func Endpoint(bind ...netip.Addr) Serving {
	out := []netip.Prefix{netip.MustParsePrefix("169.254.20.0/24"), netip.MustParsePrefix("fd5c:7a1e:93b4::/64")}
	for _, a := range bind {
		if !slices.ContainsFunc(out, func(p netip.Prefix) bool { return p.Contains(a) }) {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return Serving{out, RelayPort}
}

// Relay returns the same with another port.
func (s Serving) Relay(port int) Serving {
	s.RelayPort = uint16(port)
	return s
}

// Beside returns the NetworkPolicies that the other engine needs beside the policy, in a stable
// order: one for the pods that the policy and one of others that limits egress both select. It
// leaves out those that others have already.
func (p *Policy) Beside(others []*networkingv1.NetworkPolicy, endpoint Serving) (out []*networkingv1.NetworkPolicy) {
	if len(endpoint.Prefixes) == 0 || len(p.egress) == 0 && !p.serverNames {
		return nil // a rule without addresses would open all of them
	}
	for _, n := range others {
		if n.Namespace != p.Namespace || netpol.Ignored(n) || !limitsEgress(n) {
			continue
		}
		if both, possible := intersect(&p.pods, &n.Spec.PodSelector); possible {
			out = append(out, p.object(both, endpoint))
		}
	}
	slices.SortFunc(out, func(a, b *networkingv1.NetworkPolicy) int { return strings.Compare(a.Name, b.Name) })
	out = slices.CompactFunc(out, func(a, b *networkingv1.NetworkPolicy) bool { return a.Name == b.Name })
	return slices.DeleteFunc(out, func(n *networkingv1.NetworkPolicy) bool {
		return slices.ContainsFunc(others, func(o *networkingv1.NetworkPolicy) bool {
			return o.Namespace == n.Namespace && netpol.Ignored(o) && opens(&o.Spec, &n.Spec)
		})
	})
}

// opens tells whether a NetworkPolicy opens all that another opens for the same pods: one with the ports of
// Services serves where one without them is needed.
func opens(has, needs *networkingv1.NetworkPolicySpec) bool {
	return equality.Semantic.DeepEqual(has.PodSelector, needs.PodSelector) && slices.Contains(has.PolicyTypes, networkingv1.PolicyTypeEgress) &&
		!slices.ContainsFunc(needs.Egress, func(need networkingv1.NetworkPolicyEgressRule) bool {
			return !slices.ContainsFunc(has.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
				equal := func(one, other networkingv1.NetworkPolicyPeer) bool { return equality.Semantic.DeepEqual(one, other) }
				return within(need.To, rule.To, equal) && within(need.Ports, rule.Ports, portWithin)
			})
		})
}

// within tells whether each element of a list is in one of another, where no element means all.
func within[T any](few, many []T, in func(one, other T) bool) bool {
	return len(many) == 0 || len(few) > 0 && !slices.ContainsFunc(few, func(one T) bool {
		return !slices.ContainsFunc(many, func(other T) bool { return in(one, other) })
	})
}

// portWithin tells whether a port, or a range of ports, is in another.
func portWithin(one, other networkingv1.NetworkPolicyPort) bool {
	if equality.Semantic.DeepEqual(one, other) {
		return true
	}
	if one.Protocol == nil || other.Protocol == nil || *one.Protocol != *other.Protocol {
		return false
	}
	if other.Port == nil {
		return true
	}
	if one.Port == nil || one.Port.Type != intstr.Int || other.Port.Type != intstr.Int {
		return false
	}
	last := func(p networkingv1.NetworkPolicyPort) int32 {
		if p.EndPort != nil {
			return *p.EndPort
		}
		return p.Port.IntVal
	}
	return other.Port.IntVal <= one.Port.IntVal && last(one) <= last(other)
}

// limitsEgress tells whether a NetworkPolicy denies some egress to its pods. An API server fills
// its list of types.
func limitsEgress(n *networkingv1.NetworkPolicy) bool {
	if !slices.Contains(n.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) && (len(n.Spec.PolicyTypes) > 0 || len(n.Spec.Egress) == 0) {
		return false
	}
	return !slices.ContainsFunc(n.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
		return len(rule.To) == 0 && len(rule.Ports) == 0 // everything is allowed
	})
}

// intersect returns a selector of the pods that both select, and whether a pod can have such
// labels. A selector that cannot be read selects none.
func intersect(a, b *metav1.LabelSelector) (both metav1.LabelSelector, possible bool) {
	x, err := peers.NewSelector(a)
	if err != nil {
		return both, false
	}
	y, err := peers.NewSelector(b)
	if err != nil {
		return both, false
	}
	if _, possible = peers.Sample(x, y); !possible {
		return both, false
	}
	if len(a.MatchLabels)+len(b.MatchLabels) > 0 {
		both.MatchLabels = map[string]string{}
		maps.Copy(both.MatchLabels, a.MatchLabels)
		maps.Copy(both.MatchLabels, b.MatchLabels) // one pod has both
	}
	for _, r := range slices.Concat(a.MatchExpressions, b.MatchExpressions) {
		if !slices.ContainsFunc(both.MatchExpressions, func(known metav1.LabelSelectorRequirement) bool { return equality.Semantic.DeepEqual(known, r) }) {
			both.MatchExpressions = append(both.MatchExpressions, r)
		}
	}
	return both, true
}

// object returns the NetworkPolicy for a selector.
func (p *Policy) object(pods metav1.LabelSelector, endpoint Serving) *networkingv1.NetworkPolicy {
	dns := networkingv1.NetworkPolicyEgressRule{Ports: []networkingv1.NetworkPolicyPort{
		Port(policy.UDP, intstr.FromInt32(dnsPort)), Port(policy.TCP, intstr.FromInt32(dnsPort)),
	}}
	if p.serverNames {
		dns.Ports = append(dns.Ports, Port(policy.TCP, intstr.FromInt32(int32(endpoint.RelayPort))))
	}
	for _, prefix := range endpoint.Prefixes {
		dns.To = append(dns.To, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: prefix.Masked().String()}})
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.objectName(pods), Labels: map[string]string{netpol.IgnoreLabel: netpol.IgnoreValue}},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: pods, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: append([]networkingv1.NetworkPolicyEgressRule{dns}, p.egress...),
		},
	}
}

const dnsPort = 53

// objectName is the same for the same policy and selector, so that applying changed ports replaces
// the object. It does not name a cluster policy, which readers of the namespace may not see.
func (p *Policy) objectName(pods metav1.LabelSelector) string {
	text, err := json.Marshal(pods)
	if err != nil { // strings alone
		panic(err)
	}
	sum := sha256.Sum256([]byte(p.Name + "\x00" + string(text)))
	const most = 200 // of 253
	prefix := "cluster"
	if !p.OfCluster {
		prefix = strings.TrimRight(p.Name[:min(len(p.Name), most)], "-.")
	}
	return prefix + "-for-engine-" + hex.EncodeToString(sum[:4])
}

// Text returns the objects as one manifest that `kubectl apply -f -` takes: JSON without line ends.
func Text(all []*networkingv1.NetworkPolicy) string {
	var object any = all[0]
	if len(all) > 1 {
		object = map[string]any{"apiVersion": "v1", "kind": "List", "items": all}
	}
	text, err := json.Marshal(object)
	if err != nil { // strings and numbers alone
		panic(err)
	}
	return string(text)
}
