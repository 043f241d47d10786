package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/policy"
)

// servicePort is a port of a Service as it leads to one pod.
type servicePort struct {
	protocol policy.Protocol
	port     uint16
}

// behind says what NetworkPolicies make of a Service: they are judged on the pods that
// it leads to. Whether these are ready is not asked, as it changes.
func (in *inquiry) behind(a netip.Addr, s *policy.Service) (r reach) {
	asked := slices.DeleteFunc(slices.Clone(s.Ports), func(p policy.ServicePort) bool {
		return in.to.Protocol != policy.AnyProtocol && p.Protocol != in.to.Protocol || in.to.Port != 0 && p.Port != in.to.Port
	})
	if in.to.portless() || len(asked) == 0 { // nothing leads on from there
		in.note("%s has nothing%s: it leads TCP, UDP and SCTP on, of the ports that it lists", in.serviceText(s), in.to.onPort())
		return in.judge(end{addr: a, protocol: in.to.Protocol, port: in.to.Port})
	}
	pods := 0
	for p := range in.podsOf(s) {
		pods++
		for _, own := range p.IPs {
			if own.Is4() != a.Is4() {
				continue
			}
			if ends := endsAt(asked, p, own); len(ends) > 0 {
				r.add(in.judge(ends...))
			}
		}
	}
	r.service = s
	in.describe(s, asked, pods, r.ends)
	switch {
	case in.none(): // whatever is there
	case len(s.Selector) == 0:
		r.unknown = fmt.Sprintf("where %s leads is not known here: it has no selector, and its EndpointSlices say where connections arrive, which is what NetworkPolicies are judged on", in.serviceText(s))
	case in.f.OtherPods != "":
		r.unknown = fmt.Sprintf("the pods of other nodes behind %s are not known: %s", in.serviceText(s), in.f.OtherPods)
	}
	if rule := in.anywhere(asked); rule != nil && r.unknown != "" {
		return reach{ends: 1, passed: 1, by: rule, service: s}
	}
	return r
}

// endsAt returns where ports of a Service lead at an address of a pod.
func endsAt(ports []policy.ServicePort, p *policy.Pod, a netip.Addr) (out []end) {
	pod := p
	if p.HostNetwork { // by its address that is the node
		pod = nil
	}
	for _, to := range leads(ports, p) {
		out = append(out, end{addr: a, protocol: to.protocol, port: to.port, pod: pod})
	}
	return out
}

// none tells whether NetworkPolicies allow the pod nothing, whatever is there.
func (in *inquiry) none() bool {
	return in.peerRule(func(r *policy.Rule) bool { return r.Peer.Kind == policy.PeerPorts || r.Ports.Meets(in.to.Protocol, 0) }) == nil
}

// anywhere returns the rule for all destinations that allows whatever is behind a
// Service's ports, nil where there is none.
func (in *inquiry) anywhere(ports []policy.ServicePort) *policy.Rule {
	return in.peerRule(func(r *policy.Rule) bool {
		return r.Peer.Kind == policy.PeerAnywhere && !slices.ContainsFunc(ports, func(p policy.ServicePort) bool {
			return !allOf(r.Ports, p.Protocol) && (p.TargetName != "" || !r.Ports.Contains(p.Protocol, p.Target))
		})
	})
}

// allOf tells whether a port set holds every port of a protocol.
func allOf(set policy.PortSet, protocol policy.Protocol) bool {
	return slices.ContainsFunc(set.Ranges(), func(r policy.PortRange) bool {
		return r.Protocol == policy.AnyProtocol || r.Protocol == protocol && r.First == 0 && r.Last == 65535
	})
}

// podsOf yields the known pods that a Service selects.
func (in *inquiry) podsOf(s *policy.Service) func(yield func(*policy.Pod) bool) {
	return func(yield func(*policy.Pod) bool) {
		if len(s.Selector) == 0 || in.f.Pods == nil {
			return
		}
		selector := labels.SelectorFromSet(s.Selector)
		for p := range in.f.Pods {
			if p.Namespace == s.Ref.Namespace && !p.Finished() && selector.Matches(labels.Set(p.Labels)) && !yield(p) {
				return
			}
		}
	}
}

// leads returns where ports of a Service lead in a pod: nowhere where it has no port
// of the name.
func leads(ports []policy.ServicePort, p *policy.Pod) (out []servicePort) {
	for _, s := range ports {
		to := servicePort{s.Protocol, s.Target}
		if s.TargetName != "" {
			i := slices.IndexFunc(p.Ports, func(n policy.NamedPort) bool { return n.Name == s.TargetName && n.Protocol == s.Protocol })
			if i < 0 {
				continue
			}
			to.port = p.Ports[i].Port
		}
		if !slices.Contains(out, to) {
			out = append(out, to)
		}
	}
	return out
}

// describe tells of a Service what a connection to it becomes.
func (in *inquiry) describe(s *policy.Service, asked []policy.ServicePort, pods, ends int) {
	name := in.serviceText(s)
	switch {
	case len(s.Selector) > 0 && pods == 0 && in.f.OtherPods == "":
		in.note("%s selects no pod", name)
	case ends == 0 && pods > 0:
		in.note("no pod behind %s has the port to which it leads, or an address of its family", name)
	default:
		in.note("NetworkPolicies are judged on what is really reached: behind %s, %s", name, targets(asked))
	}
}

// targets writes where ports of a Service lead: the first of them.
func targets(ports []policy.ServicePort) string {
	p := ports[0]
	to := fmt.Sprintf("%s/%d", p.Protocol, p.Target)
	if p.TargetName != "" {
		to = "the port called " + p.TargetName
	}
	text := fmt.Sprintf("%s/%d leads to %s of its pods", p.Protocol, p.Port, to)
	if more := len(ports) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more lead on", more)
	}
	return text
}
