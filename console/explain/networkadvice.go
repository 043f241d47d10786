package explain

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/console/suggest"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/netpolicyfor"
)

// notPermitted completes an answer that is no with what NetworkPolicies say of the
// target, and with the one that would allow it.
func (in *inquiry) notPermitted(a netip.Addr, r reach) {
	switch v := in.said.Verdict; {
	case v != Denied && v != WouldDeny:
		return
	case r.unknown != "" && v == Denied:
		in.said.Verdict, in.said.Reason = Unknown, "no name opens it for the pod, and "+r.unknown
	case r.unknown != "":
		in.note("%s", r.unknown)
	case r.passed > 0 && r.denied != nil:
		what := "known addresses of the name"
		if r.service != nil {
			what = "addresses behind " + in.serviceText(r.service)
		}
		in.settle(Denied, "NetworkPolicies allow %d of the %d %s, and not %s", r.passed, r.ends, what, in.endText(r.denied))
	}
	if to, ok := in.peer(a, r); ok {
		in.writeNetworkPolicy(to)
	}
}

// destination is what an advised NetworkPolicy allows.
type destination struct {
	peer  networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
	name  string // for the manifest's own
	fixed bool   // an address, independent of its pod
}

// peer returns what a NetworkPolicy has to allow so that what is really reached is
// allowed, or says why there is none to write.
func (in *inquiry) peer(a netip.Addr, r reach) (to destination, ok bool) {
	if s := r.service; s != nil {
		return in.peerService(s, r)
	}
	if in.f.Services[a] != nil { // which has nothing there
		return to, false
	}
	if p := in.podAt(a); p != nil {
		return in.peerPod(p)
	}
	known := len(in.said.Names) > 0 || len(in.said.Open) > 0 || in.f.Hidden
	if !in.to.Addr.IsValid() || in.f.Inside != "node" && (known || in.f.Inside != "") {
		return to, false // by its name
	}
	if (in.f.OtherPods != "" || in.f.OtherNamespaces != nil) && in.f.Inside == "" {
		in.do("if %s is a pod's, allow that by its labels: pods of other nodes are not all known here", a)
	}
	block := &networkingv1.IPBlock{CIDR: netip.PrefixFrom(a, a.BitLen()).String()}
	return destination{networkingv1.NetworkPolicyPeer{IPBlock: block}, in.networkPorts(), strings.ReplaceAll(a.String(), ":", "-"), true}, true
}

func (in *inquiry) peerService(s *policy.Service, r reach) (to destination, ok bool) {
	name := in.serviceText(s)
	switch {
	case !in.sees(s.Ref.Namespace):
		in.do("a NetworkPolicy that allows the pods behind %s allows this too; ask who runs it for their labels and ports", name)
	case len(s.Selector) == 0:
		in.do("a NetworkPolicy with an ipBlock for where %s leads allows this too: `kubectl get endpointslices -n %s -l kubernetes.io/service-name=%s` shows the addresses and ports", name, s.Ref.Namespace, s.Ref.Name)
	case r.denied != nil && r.denied.pod == nil:
		in.do("pods behind %s are on the host network: a NetworkPolicy allows them by an ipBlock with the addresses of their nodes, such as %s, and their ports", name, r.denied.Reached.Addr())
	default:
		return destination{podPeer(s.Ref.Namespace, s.Selector), in.targetPorts(s), s.Ref.Name, false}, true
	}
	return to, false
}

func (in *inquiry) peerPod(p *policy.Pod) (to destination, ok bool) {
	own := workloadOf(p)
	switch {
	case !in.sees(p.Namespace):
		in.do("a NetworkPolicy that allows the pod at %s allows this; ask who runs it for its labels", p.IPs[0])
		return to, false
	case len(own) == 0:
		in.do("give the pod %s a label, and ask again: without one a NetworkPolicy can select it only together with all pods of its namespace", p)
		return to, false
	}
	key := slices.Sorted(maps.Keys(own))[0]
	return destination{podPeer(p.Namespace, own), in.networkPorts(), own[key], false}, true
}

// podPeer is the peer of the pods of a namespace that have labels.
func podPeer(namespace string, labels map[string]string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}, PodSelector: &metav1.LabelSelector{MatchLabels: labels},
	}
}

// targetPorts are those to which the asked ports of a Service lead.
func (in *inquiry) targetPorts(s *policy.Service) (out []networkingv1.NetworkPolicyPort) {
	for _, p := range in.asked(s) {
		to := intstr.FromInt32(int32(p.Target))
		if p.TargetName != "" {
			to = intstr.FromString(p.TargetName)
		}
		out = append(out, netpolicyfor.Port(p.Protocol, to))
	}
	return out
}

// networkPorts are what is asked for, else what was denied; none is every port.
func (in *inquiry) networkPorts() (out []networkingv1.NetworkPolicyPort) {
	if in.to.portless() {
		return nil
	}
	if out = netpolicyfor.Ports(policy.NewPortSet(in.wanted()...)); len(out) == 0 {
		in.do("the NetworkPolicy opens every port since none was asked for; write the one that is meant")
	}
	return out
}

// writeNetworkPolicy writes the NetworkPolicy that allows a destination.
func (in *inquiry) writeNetworkPolicy(to destination) {
	selector, why := in.selector()
	if selector == nil {
		in.do("%s", why)
		return
	}
	written := in.writeSpec(to.name, networkingv1.NetworkPolicySpec{
		PodSelector: *selector, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{to.peer}, Ports: to.ports}},
	})
	switch {
	case !written:
		return
	case in.advice().Manifest != "":
		in.do("or apply the NetworkPolicy below instead: it allows what is really reached, whatever name or Service leads there")
	case to.fixed:
		in.do("if the address itself is meant, whichever pod has it, apply the NetworkPolicy below: the pod may do what its policies allow, and what its NetworkPolicies allow")
	default:
		in.do("apply the NetworkPolicy below: the pod may do what its policies allow, and what its NetworkPolicies allow")
	}
	if why != "" {
		in.do("%s", why)
	}
	if len(in.f.View.NetworkPolicies) == 0 && !in.f.View.Standalone {
		in.do("no NetworkPolicy limits the pod's egress yet: with this one, a network plugin that enforces NetworkPolicy denies all else, names too; explain then prints the NetworkPolicy for that engine")
	}
	if in.audited() {
		in.do("a NetworkPolicy knows no Audit: a network plugin that enforces it does so at once")
	}
}

// writeSpec writes a NetworkPolicy of the pod's namespace, named after what it allows.
func (in *inquiry) writeSpec(allows string, spec networkingv1.NetworkPolicySpec) bool {
	name := free(allows, func(name string) bool {
		return slices.ContainsFunc(in.f.NetworkPolicies, func(p *networkingv1.NetworkPolicy) bool {
			return p.Namespace == in.f.Pod.Namespace && p.Name == name
		})
	})
	text, err := suggest.YAML(&networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: in.f.Pod.Namespace, Name: name},
		Spec:       spec,
	})
	if err != nil {
		in.do("no NetworkPolicy could be written: %v", err)
		return false
	}
	in.advice().NetworkPolicy = string(text)
	return true
}
