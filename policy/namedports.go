package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// MaxNamedPorts bounds the named ports of one pod: every agent has the ports of all pods
// of the cluster, and an object has room for tens of thousands.
const MaxNamedPorts = 256

// NamedPorts returns the named ports of a pod's containers, in the order of the manifest
// and each once. Init containers that run beside the others (restartPolicy Always) count,
// after all containers. A port without a protocol is TCP; an invalid port is left out. Of
// more than MaxNamedPorts the first are returned, and the others count as unnamed.
func NamedPorts(spec *corev1.PodSpec) []NamedPort {
	var ports []NamedPort
	for i := range spec.Containers {
		ports = appendNamed(ports, &spec.Containers[i])
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			ports = appendNamed(ports, c)
		}
	}
	return ports
}

func appendNamed(ports []NamedPort, c *corev1.Container) []NamedPort {
	for i := range c.Ports {
		if len(ports) == MaxNamedPorts {
			break
		}
		p := &c.Ports[i]
		protocol, ok := ProtocolOf(p.Protocol)
		if !ok || p.Name == "" || p.ContainerPort < 1 || p.ContainerPort > 65535 {
			continue
		}
		if named := (NamedPort{Name: p.Name, Protocol: protocol, Port: uint16(p.ContainerPort)}); !slices.Contains(ports, named) {
			ports = append(ports, named)
		}
	}
	return ports
}

// ProtocolOf returns the protocol of an object of Kubernetes, TCP where it says none,
// and whether it is one of TCP, UDP and SCTP.
func ProtocolOf(p corev1.Protocol) (Protocol, bool) {
	switch p {
	case "", corev1.ProtocolTCP:
		return TCP, true
	case corev1.ProtocolUDP:
		return UDP, true
	case corev1.ProtocolSCTP:
		return SCTP, true
	}
	return AnyProtocol, false
}
