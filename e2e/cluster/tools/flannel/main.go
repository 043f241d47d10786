// Command flannel is flanneld with the Kubernetes subnet manager and the backends host-gw and
// vxlan. It is composed of flannel's own packages as flannel's program is, whose other backends
// need the libraries of clouds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr/iptables"
)

// resync is how often rules of iptables are compared, in seconds: flanneld's default.
const resync = 5

// options are the flags, with the names and the defaults of flanneld.
type options struct {
	kubeconfig, config, subnetFile, iface string
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig-file", "", "the kubeconfig")
	flag.StringVar(&o.config, "net-config-path", "/etc/kube-flannel/net-conf.json", "the network's configuration")
	flag.StringVar(&o.subnetFile, "subnet-file", "/run/flannel/subnet.env", "the file that gets the node's subnet")
	flag.StringVar(&o.iface, "iface", "", "the interface towards other nodes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "flannel:", err)
		os.Exit(1)
	}
}

// run registers the node, writes the subnet file, and keeps the routes to other nodes.
func run(ctx context.Context, o options) error {
	manager, err := kube.NewSubnetManager(ctx, "", o.kubeconfig, "flannel.alpha.coreos.com", o.config, true)
	if err != nil {
		return fmt.Errorf("make the subnet manager: %w", err)
	}
	config, err := manager.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("read the network's configuration: %w", err)
	}
	families, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return fmt.Errorf("read the network's families: %w", err)
	}
	iface, err := ipmatch.LookupExtIface(o.iface, "", "", families, ipmatch.PublicIPOpts{})
	if err != nil {
		return fmt.Errorf("look up the interface %q: %w", o.iface, err)
	}
	chosen, err := backend.NewManager(ctx, manager, iface).GetBackend(config.BackendType)
	if err != nil {
		return fmt.Errorf("get the backend %s: %w", config.BackendType, err)
	}
	var wg sync.WaitGroup
	network, err := chosen.RegisterNetwork(ctx, &wg, config)
	if err != nil {
		return fmt.Errorf("register the network: %w", err)
	}
	rules := &iptables.IPTablesManager{}
	if err := rules.Init(ctx); err != nil {
		return fmt.Errorf("prepare the rules: %w", err)
	}
	rules.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, resync)
	if err := manager.HandleSubnetFile(o.subnetFile, config, false, network.Lease().Subnet, network.Lease().IPv6Subnet, network.MTU()); err != nil {
		return fmt.Errorf("write the subnet file: %w", err)
	}
	wg.Go(func() { network.Run(ctx) })
	if err := manager.CompleteLease(ctx, network.Lease(), &wg); err != nil {
		return fmt.Errorf("complete the lease: %w", err)
	}
	wg.Wait()
	return nil
}
