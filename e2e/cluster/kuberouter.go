package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// kubeRouterSync is how often kube-router writes all of its chains anew, besides on
// changes; five minutes unless told.
const kubeRouterSync = 2 * time.Second

// kubeRouterChains begin the names of kube-router's chains of the filter table.
var kubeRouterChains = []string{"KUBE-ROUTER-", "KUBE-POD-FW-", "KUBE-NWPLCY-"}

// StartKubeRouter starts kube-router's firewall on the node, which enforces
// NetworkPolicies in the filter table; routes and Services stay with the cluster's own
// programs. It returns when its chains are there in both families.
func (n *Node) StartKubeRouter(ctx context.Context) error {
	if err := n.begin("kube-router", n.cluster.tool("kube-router"),
		"--kubeconfig="+pkiFile("kube-router.conf"), "--hostname-override="+n.Name,
		"--run-firewall=true", "--run-router=false", "--run-service-proxy=false", "--enable-cni=false",
		"--enable-ipv4=true", "--enable-ipv6=true", "--service-cluster-ip-range="+joined(ServiceRanges),
		"--iptables-sync-period="+kubeRouterSync.String(), "--health-port=0"); err != nil {
		return err
	}
	return until(ctx, "kube-router on "+n.Name, upTime, func(context.Context) error {
		for _, save := range []string{"iptables-save", "ip6tables-save"} {
			rules, err := n.Run(save, "-t", "filter")
			if err != nil {
				return err
			}
			if !strings.Contains(rules, "-j "+kubeRouterChains[0]+"FORWARD") {
				return fmt.Errorf("%s has no chains of kube-router", save)
			}
		}
		return nil
	})
}

// StopKubeRouter ends kube-router on the node and takes its rules and sets away, which
// outlive it.
func (n *Node) StopKubeRouter() error {
	err := n.end("kube-router")
	for _, program := range []string{"iptables", "ip6tables"} {
		err = errors.Join(err, n.dropChains(program, kubeRouterChains))
	}
	sets, listErr := n.Run("ipset", "list", "-n")
	err = errors.Join(err, listErr)
	for _, set := range strings.Fields(sets) {
		if strings.HasPrefix(strings.TrimPrefix(set, "inet6:"), "KUBE-") {
			_, destroyErr := n.Run("ipset", "destroy", set)
			err = errors.Join(err, destroyErr)
		}
	}
	return err
}

// dropChains removes the chains of the filter table whose names begin so, and all that leads to them.
func (n *Node) dropChains(program string, prefixes []string) error {
	rules, err := n.Run(program+"-save", "-t", "filter")
	if err != nil {
		return err
	}
	var keep strings.Builder
	for line := range strings.Lines(rules) {
		if !slices.ContainsFunc(prefixes, func(chain string) bool { return strings.Contains(line, chain) }) {
			keep.WriteString(line)
		}
	}
	_, err = output(n.Command(context.Background(), program+"-restore", "-w", "5", "-T", "filter"), keep.String(), program+"-restore", nil)
	return err
}
