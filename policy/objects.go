package policy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PodOf returns a pod as its object has it, as one of this node. It calls bad with each address that
// cannot be read, which the pod then lacks.
func PodOf(p *corev1.Pod, bad func(i int, text string, err error)) Pod {
	out := Pod{
		PodRef:      PodRef{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)},
		Labels:      p.Labels,
		HostNetwork: p.Spec.HostNetwork,
		Phase:       string(p.Status.Phase),
		Ports:       NamedPorts(&p.Spec),
	}
	ips := p.Status.PodIPs
	if len(ips) == 0 && p.Status.PodIP != "" {
		ips = []corev1.PodIP{{IP: p.Status.PodIP}}
	}
	for i, ip := range ips {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil {
			bad(i, ip.IP, err)
		} else if a = a.Unmap(); !slices.Contains(out.IPs, a) {
			out.IPs = append(out.IPs, a)
		}
	}
	return out
}

// NodeAddrs returns the addresses of a Node object, without its names. It calls bad with each address
// that cannot be read.
func NodeAddrs(n *corev1.Node, bad func(i int, text string)) (addrs []netip.Addr) {
	for i, a := range n.Status.Addresses {
		addr, err := netip.ParseAddr(a.Address)
		switch {
		case err == nil:
			addrs = append(addrs, addr.Unmap().WithZone(""))
		case a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP:
			bad(i, a.Address)
		}
	}
	return addrs
}

// ServicePorts returns the ports of a Service object that can be dialled.
func ServicePorts(s *corev1.Service) (ports []ServicePort) {
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		protocol, ok := ProtocolOf(p.Protocol)
		if !ok || !IsPort(p.Port) {
			continue
		}
		port := ServicePort{Protocol: protocol, Port: uint16(p.Port), Target: uint16(p.Port)}
		switch {
		case p.TargetPort.Type == intstr.String:
			port.Target, port.TargetName = 0, p.TargetPort.StrVal
		case IsPort(p.TargetPort.IntVal):
			port.Target = uint16(p.TargetPort.IntVal)
		}
		ports = append(ports, port)
	}
	return ports
}

// IsPort tells whether a port of an object is one.
func IsPort(n int32) bool { return 1 <= n && n <= 65535 }
