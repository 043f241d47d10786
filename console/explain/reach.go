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
	passed int              // of ends
	by     *policy.PeerRule // that allows the first that passes; nil for the pod itself
	denied *end             // the first that no rule allows
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
	at := Target{Addr: e.addr, Protocol: e.protocol, Port: e.port}
	for i := range in.f.View.Peers {
		r := &in.f.View.Peers[i]
		set := in.f.Snapshot.PeerSet(r.Peer)
		p := Peer{Policy: r.Policy, Path: r.Path, Peer: peerText(r.Peer), Address: e.addr.String(), Ports: string(r.Ports), rule: r}
		if e.pod != nil && in.sees(e.pod.Namespace) {
			p.Pod = e.pod.String()
		}
		switch r.Peer.Kind {
		case policy.PeerAnywhere:
			p.OnPort = at.within(r.Ports)
		case policy.PeerPorts:
			numbers := portsAt(set, e.addr)
			if numbers == "" {
				continue
			}
			p.Ports, p.OnPort = string(numbers), at.within(numbers)
		default:
			if !set.Contains(e.addr, e.protocol, e.port) {
				continue
			}
			p.OnPort = at.within(r.Ports)
		}
		if p.OnPort {
			on = append(on, p)
		} else {
			off = append(off, p)
		}
	}
	return on, off
}

// portsAt returns where a port's name leads at an address.
func portsAt(set *policy.PeerSet, a netip.Addr) policy.PortSet {
	if set == nil {
		return ""
	}
	var out []policy.PortRange
	for _, p := range set.Ports {
		if p.Addr == a {
			out = append(out, policy.PortRange{Protocol: p.Protocol, First: p.Port, Last: p.Port})
		}
	}
	return policy.NewPortSet(out...)
}

// peerText writes what a rule leads to.
func peerText(p policy.Peer) string {
	if p.Kind == policy.PeerAnywhere {
		return "everywhere"
	}
	return p.Key
}

// peersMost bounds the rules that are listed of one question.
const peersMost = 16

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
	case len(in.said.Peers) < peersMost:
		in.said.Peers = append(in.said.Peers, p)
	}
}

// unread notes of an address that no rule leads to that it may be a pod's that is not
// known yet.
func (in *inquiry) unread(r *reach, a netip.Addr) {
	if in.f.OtherPods == "" || in.f.Inside == "node" || r.unknown != "" {
		return
	}
	at := Target{Addr: a, Protocol: in.to.Protocol, Port: in.to.Port}
	if slices.ContainsFunc(in.f.View.Peers, func(p policy.PeerRule) bool {
		return (p.Peer.Kind == policy.PeerPods || p.Peer.Kind == policy.PeerPorts) && at.within(p.Ports)
	}) {
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
func (in *inquiry) everywhere() *policy.PeerRule {
	i := slices.IndexFunc(in.f.View.Peers, func(r policy.PeerRule) bool {
		return r.Peer.Kind == policy.PeerAnywhere && in.to.within(r.Ports)
	})
	if i < 0 {
		return nil
	}
	return &in.f.View.Peers[i]
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
