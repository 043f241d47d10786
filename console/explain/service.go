package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/policy"
)

// behind says what NetworkPolicies make of a Service: they are judged on the pods that
// it leads to. Whether these are ready is not asked, as it changes.
func (in *inquiry) behind(a netip.Addr, s *policy.Service) (r reach) {
	asked := in.asked(s)
	if in.to.portless() || len(asked) == 0 { // nothing leads on from there
		in.note("%s has nothing%s: it leads TCP, UDP and SCTP on, of the ports that it lists", in.serviceText(s), in.to.onPort())
		return in.judge(in.direct(a, nil))
	}
	dialled, pods := in.flow(a), 0
	if dialled.ByName = !in.ledOn(a); !dialled.ByName {
		dialled.Open = nil
		dialled.Entries = slices.DeleteFunc(dialled.Entries, func(r *policy.Rule) bool { return r.Action == policy.Accept })
		in.note("%s leads %s elsewhere, where names do not count: its spec.externalIPs or its load balancer claims the address", in.serviceText(s), a)
	}
	for p := range in.podsOf(s) {
		pods++
		for _, own := range p.IPs {
			if own.Is4() != a.Is4() {
				continue
			}
			if ends := endsAt(dialled, asked, p, own); len(ends) > 0 {
				r.add(in.judge(ends...))
			}
		}
	}
	r.service = s
	in.describe(s, asked, pods, r.ends)
	kinds := []policy.PeerKind{policy.PeerAnywhere, policy.PeerNetworks}
	if in.reads(s.Ref.Namespace) || len(s.Selector) == 0 {
		kinds = append(kinds, policy.PeerPods, policy.PeerPorts)
	}
	switch {
	case !in.may(0, kinds...): // whatever is there
	case len(s.Selector) == 0:
		r.unknown = fmt.Sprintf("where %s leads is not known here: it has no selector, and its EndpointSlices say where connections arrive, which is what NetworkPolicies are judged on", in.serviceText(s))
	case in.f.OtherPods != "":
		r.unknown = fmt.Sprintf("the pods of other nodes behind %s are not known: %s", in.serviceText(s), in.f.OtherPods)
	case !in.reads(s.Ref.Namespace):
		r.unknown = fmt.Sprintf("the pods of other nodes behind %s are not known: no NetworkPolicy for pods of this node leads to the namespace's pods, so the agent does not read them", in.serviceText(s))
	}
	if rule, all := in.anywhere(dialled, asked); all && (r.unknown != "" || r.ends == 0 && rule == nil) {
		return reach{ends: 1, passed: 1, by: rule, service: s}
	}
	return r
}

// ledOn tells whether a Service leads what is asked for on from an address, to where names do not count.
func (in *inquiry) ledOn(a netip.Addr) bool {
	s := in.f.Services[a]
	return s != nil && in.f.CountsByName != nil && !in.f.CountsByName(a) && len(in.asked(s)) > 0
}

// asked returns the ports of a Service that are asked for.
func (in *inquiry) asked(s *policy.Service) []policy.ServicePort {
	return slices.DeleteFunc(slices.Clone(s.Ports), func(p policy.ServicePort) bool {
		return in.to.Protocol != policy.AnyProtocol && p.Protocol != in.to.Protocol || in.to.Port != 0 && p.Port != in.to.Port
	})
}

// endsAt returns where a flow to ports of a Service leads at an address of a pod: nowhere
// where the pod has no port of the name.
func endsAt(f policy.Flow, ports []policy.ServicePort, p *policy.Pod, a netip.Addr) (out []end) {
	pod := p
	if p.HostNetwork { // by its address that is the node
		pod = nil
	}
	for _, s := range ports {
		if to, ok := s.In(p.Ports); ok {
			out = append(out, end{through(f, s, netip.AddrPortFrom(a, to)), pod})
		}
	}
	return out
}

// through is a flow to a port of its Service, and where that leads.
func through(f policy.Flow, s policy.ServicePort, reached netip.AddrPort) policy.Flow {
	f.Protocol, f.Dialled, f.Reached = s.Protocol, netip.AddrPortFrom(f.Dialled.Addr(), s.Port), reached
	return f
}

// anywhere tells whether the policies allow a flow whatever is behind the ports of its
// Service, and by which rule.
func (in *inquiry) anywhere(f policy.Flow, ports []policy.ServicePort) (by *policy.Rule, all bool) {
	for _, s := range ports {
		f := through(f, s, netip.AddrPortFrom(netip.Addr{}, s.Target))
		if s.TargetName != "" { // any port
			f.Dialled, f.Reached = netip.AddrPortFrom(f.Dialled.Addr(), 0), netip.AddrPort{}
		}
		for g := range policy.Flows(in.f.View, in.f.Snapshot, f) {
			allowed, r := policy.EvaluateAny(in.f.View, in.f.Snapshot, *g)
			if !allowed {
				return nil, false
			}
			by = cmp.Or(by, r)
		}
	}
	return by, true
}

// reads tells whether the agent reads a namespace's pods of other nodes.
func (in *inquiry) reads(namespace string) bool {
	return in.f.OtherNamespaces == nil || slices.Contains(in.f.OtherNamespaces, namespace)
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

// describe tells of a Service what a connection to it becomes.
func (in *inquiry) describe(s *policy.Service, asked []policy.ServicePort, pods, ends int) {
	name := in.serviceText(s)
	switch {
	case !in.sees(s.Ref.Namespace):
		in.note("NetworkPolicies are judged on what is really reached: the pods behind %s", name)
	case len(s.Selector) > 0 && pods == 0 && in.f.OtherPods == "" && in.reads(s.Ref.Namespace):
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
