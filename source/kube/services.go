package kube

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/policy"
)

// dnsPort is where pods dial a resolver (RFC 1035 §4.2).
const dnsPort = 53

// serviceEntry has the used fields of a Service.
type serviceEntry struct {
	ref        policy.ServiceRef
	clusterIPs []netip.Addr
	balanced   []netip.Addr // of load balancers
	external   []netip.Addr
	// dns is the name of its UDP port 53, hasDNS whether there is one. In the
	// Service's EndpointSlices the port has the same name.
	dns    string
	hasDNS bool
	// service is how it leads to its pods.
	service  policy.Service
	problems []policy.Problem
}

func readService(object any, _ *serviceEntry) *serviceEntry {
	s, ok := object.(*corev1.Service)
	if !ok {
		return nil
	}
	e := &serviceEntry{ref: policy.ServiceRef{Namespace: s.Namespace, Name: s.Name}}
	clusterIPs := s.Spec.ClusterIPs
	if len(clusterIPs) == 0 {
		clusterIPs = []string{s.Spec.ClusterIP}
	}
	for i, text := range clusterIPs {
		e.clusterIPs = e.addr(e.clusterIPs, fmt.Sprintf("spec.clusterIPs[%d]", i), text)
	}
	for i, text := range s.Spec.ExternalIPs {
		e.external = e.addr(e.external, fmt.Sprintf("spec.externalIPs[%d]", i), text)
	}
	for i, in := range s.Status.LoadBalancer.Ingress {
		e.balanced = e.addr(e.balanced, fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), in.IP)
	}
	e.service = policy.Service{Ref: e.ref, Selector: s.Spec.Selector, Ports: policy.ServicePorts(s)}
	for _, p := range s.Spec.Ports {
		if p.Port == dnsPort && p.Protocol == corev1.ProtocolUDP {
			e.dns, e.hasDNS = p.Name, true
		}
	}
	return e
}

// addr appends an address to list; a headless Service has None for one.
func (e *serviceEntry) addr(list []netip.Addr, path, text string) []netip.Addr {
	if text == "" || text == corev1.ClusterIPNone {
		return list
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		e.problems = append(e.problems, unreadable("service "+e.ref.Namespace+"/"+e.ref.Name, path, text))
		return list
	}
	return append(list, cleanAddr(a))
}

// listServices fills in what c has of the Services, and returns their problems. An
// address of several is the first's.
func listServices(entries []*serviceEntry, c *policy.Cluster) (problems []policy.Problem) {
	var clusterIPs, balanced []netip.Addr
	at := make(map[netip.Addr]*policy.Service, len(entries))
	dialled := make([]*policy.Service, 0, len(entries))
	for _, e := range entries {
		if len(e.clusterIPs) > 0 {
			dialled = append(dialled, &e.service)
		}
		clusterIPs, balanced = append(clusterIPs, e.clusterIPs...), append(balanced, e.balanced...)
		for _, list := range [][]netip.Addr{e.clusterIPs, e.external, e.balanced} {
			for _, a := range list {
				if at[a] == nil {
					at[a] = &e.service
				}
			}
		}
		problems = append(problems, e.problems...)
	}
	c.ClusterIPs, c.ServicesAt, c.Dialled = sortedOnce(clusterIPs, netip.Addr.Compare), at, dialled
	c.Services = sortedOnce(append(balanced, c.ClusterIPs...), netip.Addr.Compare)
	return problems
}
