package explain

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/console/suggest"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
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
	return destination{suggest.AddressPeer(a), in.networkPorts(), strings.ReplaceAll(a.String(), ":", "-"), true}, true
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
		return destination{suggest.PodPeer(s.Ref.Namespace, s.Selector), in.targetPorts(s), s.Ref.Name, false}, true
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
	return destination{suggest.PodPeer(p.Namespace, own), in.networkPorts(), own[key], false}, true
}

// targetPorts are those to which the asked ports of a Service lead.
func (in *inquiry) targetPorts(s *policy.Service) (out []networkingv1.NetworkPolicyPort) {
	for _, p := range s.Ports {
		if in.to.Protocol != policy.AnyProtocol && p.Protocol != in.to.Protocol || in.to.Port != 0 && p.Port != in.to.Port || !ruled(p.Protocol) {
			continue
		}
		port := networkPort(p.Protocol, p.Target)
		if p.TargetName != "" {
			named := intstr.FromString(p.TargetName)
			port.Port = &named
		}
		out = append(out, port)
	}
	return out
}

// networkPorts are what is asked for, else what was denied; none is every port.
func (in *inquiry) networkPorts() (out []networkingv1.NetworkPolicyPort) {
	switch {
	case in.to.portless():
		return nil
	case in.to.Port != 0:
		return []networkingv1.NetworkPolicyPort{networkPort(in.to.Protocol, in.to.Port)}
	}
	var set []policy.PortRange
	for i := range in.f.Flows {
		f := &in.f.Flows[i]
		if port := f.Dialled.Port(); in.concerns(f) && port != 0 && ruled(f.Protocol) && len(set) < fqdnnp.MaxPorts {
			set = append(set, policy.PortRange{Protocol: f.Protocol, First: port, Last: port})
		}
	}
	for _, r := range policy.NewPortSet(set...).Ranges() {
		port := networkPort(r.Protocol, r.First)
		if last := int32(r.Last); r.Last > r.First {
			port.EndPort = &last
		}
		out = append(out, port)
	}
	if len(out) == 0 {
		in.do("the NetworkPolicy opens every port since none was asked for; write the one that is meant")
	}
	return out
}

func networkPort(protocol policy.Protocol, number uint16) networkingv1.NetworkPolicyPort {
	p, port := corev1.Protocol(strings.ToUpper(protocol.String())), intstr.FromInt32(int32(number))
	return networkingv1.NetworkPolicyPort{Protocol: &p, Port: &port}
}

// writeNetworkPolicy writes the NetworkPolicy that allows a destination.
func (in *inquiry) writeNetworkPolicy(to destination) {
	selector, why := in.selector()
	if selector == nil {
		in.do("%s", why)
		return
	}
	p := suggest.NetworkPolicy(in.f.Pod.Namespace, in.freeNetworkName(to.name), *selector, to.peer, to.ports)
	text, err := suggest.NetworkYAML(&p)
	if err != nil {
		in.do("no NetworkPolicy could be written: %v", err)
		return
	}
	a := in.advice()
	switch a.NetworkPolicy = string(text); {
	case a.Manifest != "":
		in.do("or apply the NetworkPolicy below instead: it allows what is really reached, whatever name or Service leads there")
	case to.fixed:
		in.do("if the address itself is meant, whichever pod has it, apply the NetworkPolicy below: the pod may do what its policies allow, and what its NetworkPolicies allow")
	default:
		in.do("apply the NetworkPolicy below: the pod may do what its policies allow, and what its NetworkPolicies allow")
	}
	if why != "" {
		in.do("%s", why)
	}
	if len(in.f.View.NetworkPolicies) == 0 {
		in.do("no NetworkPolicy limits the pod's egress yet: with this one, a network plugin that enforces NetworkPolicy denies all else, names too; explain then prints the NetworkPolicy for that engine")
	}
	if in.audited() {
		in.do("a NetworkPolicy knows no Audit: a network plugin that enforces it does so at once")
	}
}

// freeNetworkName returns a name for the NetworkPolicy that none of the namespace has.
func (in *inquiry) freeNetworkName(to string) string {
	base := objectName(to)
	name := base
	taken := func(p *networkingv1.NetworkPolicy) bool { return p.Namespace == in.f.Pod.Namespace && p.Name == name }
	for i := 2; slices.ContainsFunc(in.f.NetworkPolicies, taken); i++ {
		name = fmt.Sprintf("%s-%d", base, i)
	}
	return name
}
