package kube

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/namegate/namegate/policy"
)

// sliceEntry has the used fields of an EndpointSlice.
type sliceEntry struct {
	udp      []slicePort
	tcp      []uint16
	addrs    [ranks][]netip.Addr
	problems []policy.Problem
}

// rank says how well an endpoint answers by the API's word; the best there are are
// asked.
type rank int

const (
	rankReady  rank = iota
	rankEnding      // still serves
	// These may answer as well: all endpoints are unready while the cluster has no
	// reports from their nodes, as after an outage of the API server.
	rankUnready
	rankEnded // does not serve any more
	ranks
)

type slicePort struct {
	name string
	port uint16
}

// readSlice returns a reader of the slices of one Service.
func readSlice(of policy.ServiceRef) func(any, *sliceEntry) *sliceEntry {
	return func(object any, _ *sliceEntry) *sliceEntry {
		s, ok := object.(*discoveryv1.EndpointSlice)
		if !ok || s.Namespace != of.Namespace || s.Labels[discoveryv1.LabelServiceName] != of.Name || s.AddressType == discoveryv1.AddressTypeFQDN {
			return nil
		}
		return sliceOf(s)
	}
}

func sliceOf(s *discoveryv1.EndpointSlice) *sliceEntry {
	e := &sliceEntry{}
	for _, p := range s.Ports {
		switch protocol := ptr.Deref(p.Protocol, corev1.ProtocolTCP); {
		case p.Port == nil || !policy.IsPort(*p.Port):
		case protocol == corev1.ProtocolUDP:
			e.udp = append(e.udp, slicePort{ptr.Deref(p.Name, ""), uint16(*p.Port)})
		case protocol == corev1.ProtocolTCP:
			e.tcp = append(e.tcp, uint16(*p.Port))
		}
	}
	for i := range s.Endpoints {
		e.endpoint(s, i)
	}
	return e
}

// endpoint adds an endpoint. Unset conditions have the API's meaning: unknown is ready,
// and a ready endpoint serves.
func (e *sliceEntry) endpoint(s *discoveryv1.EndpointSlice, i int) {
	c := s.Endpoints[i].Conditions
	ready := ptr.Deref(c.Ready, true)
	rank := rankReady
	switch {
	case ready:
	case !ptr.Deref(c.Terminating, false):
		rank = rankUnready
	case ptr.Deref(c.Serving, false):
		rank = rankEnding
	default:
		rank = rankEnded
	}
	for j, text := range s.Endpoints[i].Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			e.problems = append(e.problems, unreadable("endpointslice "+s.Namespace+"/"+s.Name, fmt.Sprintf("endpoints[%d].addresses[%d]", i, j), text))
			continue
		}
		e.addrs[rank] = append(e.addrs[rank], cleanAddr(a))
	}
}

// port returns where the endpoints of the slice answer DNS: at the port that has
// the name of the Service's port 53, else at one with a name of old, else at the only one.
func (e *sliceEntry) port(s *serviceEntry) (uint16, bool) {
	names := []string{"dns-udp", "dns"}
	if s.hasDNS {
		names = append([]string{s.dns}, names...)
	}
	for _, name := range names {
		for _, p := range e.udp {
			if p.name == name {
				return p.port, true
			}
		}
	}
	if len(e.udp) == 1 {
		return e.udp[0].port, true
	}
	return 0, false
}

// resolver returns the addresses at which a Service answers DNS, and a problem with its port. Without the
// Service its remaining slices do not count.
func resolver(s *serviceEntry, entries []*sliceEntry) (r policy.Resolver, problems []policy.Problem) {
	if s == nil {
		return r, nil
	}
	r.ClusterIPs = sortedOnce(append([]netip.Addr(nil), s.clusterIPs...), netip.Addr.Compare)
	var endpoints [rankEnded][]netip.AddrPort
	unnamed := false
	for _, e := range entries {
		port, ok := e.port(s)
		if !ok {
			unnamed = unnamed || len(slices.Concat(e.addrs[:rankEnded]...)) > 0
			continue
		}
		for rank, addrs := range e.addrs[:rankEnded] {
			for _, a := range addrs {
				endpoints[rank] = append(endpoints[rank], netip.AddrPortFrom(a, port))
			}
		}
	}
	for _, best := range endpoints {
		if len(best) > 0 {
			r.Endpoints = sortedOnce(best, netip.AddrPort.Compare)
			break
		}
	}
	if len(r.Endpoints) == 0 && unnamed {
		problems = append(problems, policy.Problem{
			Object: "service " + s.ref.Namespace + "/" + s.ref.Name, Reason: policy.ReasonPartiallyInvalid, Path: "spec.ports",
			Message: "it is unknown at which port its endpoints answer DNS, so only its cluster address is queried; give it a port 53 of UDP",
		})
	}
	return r, problems
}
