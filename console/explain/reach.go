package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// end is where a connection may really arrive, behind Services.
type end struct {
	addr     netip.Addr
	protocol policy.Protocol // policy.AnyProtocol where none is asked for
	port     uint16          // 0: every port
	pod      *policy.Pod     // nil where no known pod is there
}

// String writes the end as a target.
func (e end) String() string {
	return Target{Addr: e.addr, Protocol: e.protocol, Port: e.port}.String()
}

// reach is what NetworkPolicies say of the ends of one address or name.
type reach struct {
	ends   int
	passed int          // of ends
	by     *policy.Rule // that allows the first that passes; nil for the pod itself
	denied *end         // the first that no rule allows
	// service is what the address is of, nil for none.
	service *policy.Service
	// unknown is why more ends may be there, or more may be allowed; "" where all is known.
	unknown string
}

// all tells whether every end is known and allowed.
func (r *reach) all() bool { return r.unknown == "" && r.ends > 0 && r.passed == r.ends }

// add takes in what is said of another address.
func (r *reach) add(o reach) {
	if r.passed == 0 {
		r.by = o.by
	}
	if r.denied == nil {
		r.denied = o.denied
	}
	if r.service == nil {
		r.service = o.service
	}
	if r.unknown == "" {
		r.unknown = o.unknown
	}
	r.ends, r.passed = r.ends+o.ends, r.passed+o.passed
}

// rules returns the rules of NetworkPolicies that lead to an end: on is those for its
// port, off those for other ports alone.
func (in *inquiry) rules(e end) (on, off []Peer) {
	for _, r := range in.f.View.PeerRules() {
		ports := in.f.Snapshot.PortsAt(r, e.addr)
		if ports == "" {
			continue
		}
		p := Peer{Policy: r.Policy, Path: r.Path, Peer: peerText(r.Peer), Address: e.addr.String(), Ports: string(ports), OnPort: ports.Meets(e.protocol, e.port), rule: r}
		if e.pod != nil && in.sees(e.pod.Namespace) {
			p.Pod = e.pod.String()
		}
		if p.OnPort {
			on = append(on, p)
		} else {
			off = append(off, p)
		}
	}
	return on, off
}

// peerText writes what a rule leads to.
func peerText(p policy.Peer) string {
	if p.Kind == policy.PeerAnywhere {
		return "everywhere"
	}
	return p.Key
}

// maxPeers bounds the rules that are listed of one question.
const maxPeers = 16

// judge says what NetworkPolicies make of the ends at one address, of which one that
// is allowed is enough, and lists the rules that lead there.
func (in *inquiry) judge(ends ...end) (r reach) {
	r.ends = 1
	first := ends[0]
	if slices.Contains(in.f.Pod.IPs, first.addr) {
		r.passed = 1
		return r
	}
	for _, e := range ends {
		on, off := in.rules(e)
		for _, p := range slices.Concat(on, off) {
			in.list(p)
		}
		if len(on) > 0 && r.passed == 0 {
			r.passed, r.by = 1, on[0].rule
		}
	}
	if r.passed == 0 {
		if r.denied = &first; first.pod == nil {
			in.unread(&r, first.addr)
		}
	}
	return r
}

// list lists a rule that leads to an address, once.
func (in *inquiry) list(p Peer) {
	i := slices.IndexFunc(in.said.Peers, func(o Peer) bool { return o.rule == p.rule && o.Address == p.Address && o.Ports == p.Ports })
	switch {
	case i >= 0:
		in.said.Peers[i].OnPort = in.said.Peers[i].OnPort || p.OnPort
	case len(in.said.Peers) < maxPeers:
		in.said.Peers = append(in.said.Peers, p)
	}
}

// unread notes of an address that no rule leads to that it may be a pod's that is not
// known yet.
func (in *inquiry) unread(r *reach, a netip.Addr) {
	if in.f.OtherPods == "" || in.f.Inside == "node" || r.unknown != "" {
		return
	}
	if in.peerRule(func(r *policy.Rule) bool {
		return (r.Peer.Kind == policy.PeerPods || r.Peer.Kind == policy.PeerPorts) && in.to.within(r.Ports)
	}) != nil {
		r.unknown = fmt.Sprintf("whether %s is a pod that NetworkPolicies allow cannot be told: %s", a, in.f.OtherPods)
	}
}

// reached says what NetworkPolicies make of an address as it is dialled.
func (in *inquiry) reached(a netip.Addr) reach {
	if s := in.f.Services[a]; s != nil {
		return in.behind(a, s)
	}
	return in.judge(end{addr: a, protocol: in.to.Protocol, port: in.to.Port, pod: in.podAt(a)})
}

// podAt returns the pod at an address, nil where none is known.
func (in *inquiry) podAt(a netip.Addr) *policy.Pod {
	if in.f.Pods == nil {
		return nil
	}
	for p := range in.f.Pods {
		if !p.Finished() && !p.HostNetwork && slices.Contains(p.IPs, a) {
			return p
		}
	}
	return nil
}

// sees tells whether whoever asks may see what is of a namespace.
func (in *inquiry) sees(namespace string) bool { return in.f.Sees == nil || in.f.Sees(namespace) }

// permitted answers where NetworkPolicies allow all that is there.
func (in *inquiry) permitted(what string, r reach) {
	where := ""
	if r.service != nil {
		where = ", behind " + in.serviceText(r.service)
	}
	if r.by == nil {
		in.settle(Allowed, "%s is the pod itself%s, which it may always reach", what, where)
		return
	}
	in.settle(Allowed, "NetworkPolicy %s (%s) allows %s%s", r.by.Policy, r.by.Path, what, where)
}

// networkPolicies lists those that select the pod for egress.
func (in *inquiry) networkPolicies() {
	if in.f.View != nil {
		in.said.NetworkPolicies = in.f.View.NetworkPolicies
	}
}

// serviceText names a Service to who may see it.
func (in *inquiry) serviceText(s *policy.Service) string {
	if !in.sees(s.Ref.Namespace) {
		return "a Service"
	}
	return "the Service " + s.Ref.Namespace + "/" + s.Ref.Name
}

// everywhere returns a rule for all destinations that holds what is asked for, nil
// without one.
func (in *inquiry) everywhere() *policy.Rule {
	return in.peerRule(func(r *policy.Rule) bool { return r.Peer.Kind == policy.PeerAnywhere && in.to.within(r.Ports) })
}

// peerRule returns the first rule of NetworkPolicies of which something holds, nil without one.
func (in *inquiry) peerRule(holds func(*policy.Rule) bool) *policy.Rule {
	for _, r := range in.f.View.PeerRules() {
		if holds(r) {
			return r
		}
	}
	return nil
}

// serviceName reads NAME.NAMESPACE.svc.DOMAIN.
func (in *inquiry) serviceName(n fqdn.Name) (ref policy.ServiceRef, ok bool) {
	if in.f.Domain == "" {
		return ref, false
	}
	rest, ok := n.TrimSuffix(in.f.Domain)
	if !ok || rest == "" {
		return ref, false
	}
	labels := strings.Split(rest.String(), ".")
	if len(labels) != 3 || labels[2] != "svc" {
		return ref, false
	}
	return policy.ServiceRef{Namespace: labels[1], Name: labels[0]}, true
}
