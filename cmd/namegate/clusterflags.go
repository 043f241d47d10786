package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/namegate/namegate/agent"
)

// clusterFlags are the flags of an agent of a cluster.
type clusterFlags struct {
	agent.Cluster
	watchNodes bool
}

func (f *clusterFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.Kubeconfig, "kubeconfig", "", "how to reach the API server (default: as a pod of the cluster)")
	fl.StringVar(&f.Namespace, "namespace", "", "the namespace that Namegate is installed in")
	fl.StringVar(&f.PodName, "pod-name", "", "this agent's pod")
	fl.StringVar(&f.DaemonSet, "daemonset", "", "the agents' DaemonSet: without it, or off its nodes, the agent removes its rules when it ends")
	fl.BoolVar(&f.ClusterNetworkPolicies, "cluster-network-policy", false, "read ClusterNetworkPolicies of policy.networking.k8s.io too, where the cluster serves them")
	fl.BoolVar(&f.watchNodes, "watch-nodes", true, "watch all Nodes of the cluster; false watches this node's alone, and the cluster ranges of the Corefile keep names outside the cluster from the others")
	fl.StringVar(&f.CNIResults, "cni-results", "", "the folder in which the container runtime keeps the results of network plugins: a new pod's addresses are known from them before its first container starts (default: none, they are known from the pod's status)")
	fl.BoolVar(&f.ClearTaint, "clear-taint", false, "take the taint namegate.io/agent-not-ready from this node when the agent is ready")
}

// options checks the flags that a cluster's agent cannot do without, and returns them.
func (f *clusterFlags) options(node string, console []netip.AddrPort) (*agent.Cluster, error) {
	c := f.Cluster
	c.ConsoleAddrs, c.OwnNodeOnly = console, !f.watchNodes
	for flag, value := range map[string]string{"--node-name": node, "--namespace": c.Namespace, "--pod-name": c.PodName, "--daemonset": c.DaemonSet} {
		if value == "" {
			return nil, fmt.Errorf("--source kube needs %s; set it from the pod's fields as the chart does", flag)
		}
	}
	if c.OwnNodeOnly && c.ClusterNetworkPolicies {
		return nil, errors.New("--cluster-network-policy needs the addresses of all Nodes, to which rules can lead; leave out --watch-nodes=false, or --cluster-network-policy")
	}
	return &c, nil
}

// listenFlags say where an agent listens for people of the cluster.
type listenFlags struct{ addresses []string }

func (f *listenFlags) add(fl *pflag.FlagSet) {
	fl.StringSliceVar(&f.addresses, "console-addr", nil, "ADDRESS:PORT at which kubectl namegate is answered, may be repeated (default: none)")
}

// parse returns what --console-addr says; addresses are without a cluster's users
// worth nothing.
func (f *listenFlags) parse(inCluster bool) (out []netip.AddrPort, err error) {
	for _, text := range f.addresses {
		host, port, err := net.SplitHostPort(text)
		at, bad := netip.ParseAddrPort(net.JoinHostPort(host, port)) // without the brackets of an IPv4 address
		if err != nil || bad != nil {
			return nil, fmt.Errorf("--console-addr %q is not an address and a port; write for example 192.0.2.1:9954 or [2001:db8::1]:9954", text)
		}
		out = append(out, at)
	}
	if len(out) > 0 && !inCluster {
		return nil, fmt.Errorf("--console-addr needs --source kube: without a cluster the agent cannot identify callers; the socket is there for root")
	}
	return out, nil
}
