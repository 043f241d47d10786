package kube

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/policy"
)

// apiService is the Service of the API itself.
var apiService = policy.ServiceRef{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// apiSlice has the used fields of an EndpointSlice of the Service kubernetes.
type apiSlice struct {
	to       []netip.AddrPort
	problems []policy.Problem
}

// readAPISlice reads every TCP port of every endpoint: an API server that is not ready now is
// dialled later.
func readAPISlice(object any, _ *apiSlice) *apiSlice {
	s, ok := object.(*discoveryv1.EndpointSlice)
	if !ok || s.Labels[discoveryv1.LabelServiceName] != apiService.Name || s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	e := &apiSlice{}
	for i := range s.Endpoints {
		for j, text := range s.Endpoints[i].Addresses {
			a, err := netip.ParseAddr(text)
			if err != nil {
				e.problems = append(e.problems, unreadable("endpointslice "+s.Namespace+"/"+s.Name, fmt.Sprintf("endpoints[%d].addresses[%d]", i, j), text))
				continue
			}
			for _, p := range s.Ports {
				if p.Port != nil && policy.IsPort(*p.Port) && (p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP) {
					e.to = append(e.to, netip.AddrPortFrom(cleanAddr(a), uint16(*p.Port)))
				}
			}
		}
	}
	return e
}

// apiSliceRequests are for the EndpointSlices of the Service kubernetes.
func (s *Source) apiSliceRequests() requests {
	filter := func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{discoveryv1.LabelServiceName: apiService.Name}.String()
	}
	c := s.client.DiscoveryV1().EndpointSlices(apiService.Namespace)
	return newRequests(s.client, filter, c.List, c.Watch)
}

// listAPISlices sets the endpoints of the Service kubernetes.
func listAPISlices(entries []*apiSlice, c *policy.Cluster) (problems []policy.Problem) {
	var to []netip.AddrPort
	for _, e := range entries {
		to = append(to, e.to...)
		problems = append(problems, e.problems...)
	}
	c.APIServers.Endpoints = sortedOnce(to, netip.AddrPort.Compare)
	return problems
}

// listAPIService sets the addresses of the Service of the API.
func listAPIService(entries []*serviceEntry, c *policy.Cluster) {
	c.APIServers.Service = nil
	for _, e := range entries {
		if e.ref != apiService {
			continue
		}
		for _, a := range e.clusterIPs {
			for _, p := range e.service.Ports {
				if p.Protocol == policy.TCP {
					c.APIServers.Service = append(c.APIServers.Service, netip.AddrPortFrom(a, p.Port))
				}
			}
		}
	}
	c.APIServers.Service = sortedOnce(c.APIServers.Service, netip.AddrPort.Compare)
}
