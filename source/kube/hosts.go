package kube

import (
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
)

// apiService is the Service of the API itself.
var apiService = policy.ServiceRef{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// apiEndpoints returns where an API server may answer: every TCP port of every endpoint of the Service
// kubernetes, because one that is not ready now is dialled later.
func apiEndpoints(entries []*sliceEntry) (to []netip.AddrPort) {
	for _, e := range entries {
		for _, a := range slices.Concat(e.addrs[:]...) {
			for _, port := range e.tcp {
				to = append(to, netip.AddrPortFrom(a, port))
			}
		}
	}
	return sortedOnce(to, netip.AddrPort.Compare)
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
