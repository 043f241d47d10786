package failsafes

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/agent/failsafes/hostfiles"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

const (
	// apiServerPort is the API server's port by default (--secure-port).
	apiServerPort = 6443
	// etcdFirst and etcdLast are etcd's ports for clients and for members (IANA).
	etcdFirst, etcdLast = 2379, 2380
)

// apiServers adds the API server as the agent, the kubelet and the pods dial it.
func (n *needs) apiServers(in *Inputs) {
	host, port, ok := splitHostPort(in.APIServer)
	if ok {
		n.target(failsafe.Target{Host: host, Ports: failsafe.Port(policy.TCP, port), Reason: hostfiles.ReasonAPIServer, Source: "API server of the agent"})
	}
	n.targets(in.Kubelet.Targets)
	for _, to := range in.Cluster.APIServers.Service {
		n.kept = append(n.kept, entry(single(to.Addr()), failsafe.Port(policy.TCP, to.Port()), hostfiles.ReasonAPIServer, "Service kubernetes"))
	}
	for _, to := range in.Cluster.APIServers.Endpoints {
		n.kept = append(n.kept, entry(single(to.Addr()), failsafe.Port(policy.TCP, to.Port()), hostfiles.ReasonAPIServer, "EndpointSlices of the Service kubernetes"))
	}
	if own := in.own(); in.Kubelet.Local != "" && (own == nil || !own.ControlPlane) {
		n.problem(in.Kubelet.Local, policy.TCP, "the kubelet reaches the API server through a load balancer on the node, and the addresses behind it are not known; "+
			"write `failsafe ADDRESS:PORT` with the API servers' addresses in the Corefile", in.apiServerPorts()...)
	}
}

// splitHostPort splits HOST:PORT.
func splitHostPort(text string) (host string, port uint16, ok bool) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", 0, false
	}
	number, err := strconv.ParseUint(text[i+1:], 10, 16)
	return strings.Trim(text[:i], "[]"), uint16(number), err == nil && i > 0
}

// own returns the Node object of the node, nil without one.
func (in *Inputs) own() *policy.Host {
	for _, h := range in.Cluster.Hosts {
		if h.Name == in.Node {
			return h
		}
	}
	return nil
}

// apiServerPorts returns the ports of the API servers themselves, and the default.
func (in *Inputs) apiServerPorts() (ports []uint16) {
	for _, to := range in.Cluster.APIServers.Endpoints {
		ports = append(ports, to.Port())
	}
	slices.Sort(ports)
	if ports = slices.Compact(ports); !slices.Contains(ports, apiServerPort) {
		ports = append(ports, apiServerPort)
	}
	return ports
}

// nodes adds every node's kubelet, and the control plane to its own nodes.
func (n *needs) nodes(in *Inputs) {
	own := in.own()
	controls := own != nil && own.ControlPlane
	ports := in.apiServerPorts()
	for _, h := range in.Cluster.Hosts {
		if h == own {
			continue // its addresses are loopback
		}
		source := "Node " + h.Name
		for _, a := range h.Addrs {
			n.kept = append(n.kept, entry(single(a), failsafe.Port(policy.TCP, h.KubeletPort), "kubelet", source))
			if !controls || !h.ControlPlane {
				continue
			}
			n.kept = append(n.kept, entry(single(a), policy.PortRange{Protocol: policy.TCP, First: etcdFirst, Last: etcdLast}, hostfiles.ReasonEtcd, source))
			for _, port := range ports {
				n.kept = append(n.kept, entry(single(a), failsafe.Port(policy.TCP, port), hostfiles.ReasonAPIServer, source))
			}
		}
	}
}

// ranges adds this node's pods, which the kubelet probes, and the ranges of all pods and
// Services, which yield to policies that name them.
func (n *needs) ranges(in *Inputs) {
	every := failsafe.AllPorts(policy.AnyProtocol)
	local := in.Cluster.LocalRanges
	for _, p := range local {
		n.kept = append(n.kept, entry(p, every, "pods of this node", "Node "+in.Node))
	}
	for _, a := range in.Cluster.Pods {
		if !contain(local, a) {
			n.current = append(n.current, entry(single(a), every, "pods of this node", "pods"))
		}
	}
	yields := func(p netip.Prefix, source string) {
		e := entry(p, every, "pods and Services", source)
		e.Yields = true
		n.current = append(n.current, e)
	}
	for _, p := range in.Corefile.Ranges {
		yields(p, "cluster of the Corefile")
	}
	for _, p := range in.Cluster.PodRanges {
		if !covered(in.Corefile.Ranges, p) && !slices.Contains(local, p) {
			yields(p, "Node objects")
		}
	}
	for _, a := range in.Cluster.ClusterIPs {
		if !contain(in.Corefile.Ranges, a) {
			yields(single(a), "Services")
		}
	}
}

func contain(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

func covered(ranges []netip.Prefix, by netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Bits() <= by.Bits() && p.Contains(by.Addr()) })
}

// The instance metadata services of clouds: one link-local address for most (AWS, Azure,
// Google Cloud, OpenStack and others), and AWS's over IPv6.
var (
	metadata4   = netip.MustParseAddr("169.254.169.254")
	metadataAWS = netip.MustParseAddr("fd00:ec2::254")
)

// metadataClouds are the schemes of spec.providerID of clouds whose kubelets and credential
// plugins ask the metadata service.
var metadataClouds = []string{"aws", "azure", "digitalocean", "gce", "hcloud", "ibm", "linode", "oci", "openstack", "vultr"}

// metadata adds the metadata service where a cloud runs or credential plugins are configured.
func (n *needs) metadata(in *Inputs) {
	source, cloud := "", ""
	if own := in.own(); own != nil {
		scheme, _, _ := strings.Cut(own.ProviderID, "://")
		if slices.Contains(metadataClouds, scheme) {
			cloud, source = scheme, "providerID of the Node "+own.Name
		}
	}
	if in.Kubelet.CredentialProvider {
		source = "--image-credential-provider-config of the kubelet"
	}
	if source == "" {
		return
	}
	n.kept = append(n.kept, entry(single(metadata4), failsafe.Port(policy.TCP, 80), "instance metadata", source))
	if cloud == "aws" {
		n.kept = append(n.kept, entry(single(metadataAWS), failsafe.Port(policy.TCP, 80), "instance metadata", source))
	}
}
