package kube

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/policy"
)

// dnsPort is where pods dial a resolver (RFC 1035 §4.2).
const dnsPort = 53

// serviceEntry is what is used of a Service.
type serviceEntry struct {
	ref        policy.ServiceRef
	clusterIPs []netip.Addr
	others     []netip.Addr // of load balancers, and external ones
	// dns is the name of its UDP port 53, hasDNS whether there is one. In the
	// Service's EndpointSlices the port has the same name.
	dns      string
	hasDNS   bool
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
		e.others = e.addr(e.others, fmt.Sprintf("spec.externalIPs[%d]", i), text)
	}
	for i, in := range s.Status.LoadBalancer.Ingress {
		e.others = e.addr(e.others, fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), in.IP)
	}
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

// listServices returns all addresses of the Services, and their problems.
func listServices(entries []*serviceEntry) (addrs []netip.Addr, problems []policy.Problem) {
	for _, e := range entries {
		addrs = append(append(addrs, e.clusterIPs...), e.others...)
		problems = append(problems, e.problems...)
	}
	return sortedOnce(addrs, netip.Addr.Compare), problems
}
