package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// object is a JSON object.
type object = map[string]any

// routed reports which way the node's pods are joined to it: node-a has a route
// for each, node-b has all of them on a bridge.
func (n *Node) routed() bool { return n.Name == nodeSites[0].name }

// writeConflist gives the node's next pods a network. Its name stays the same, since the
// addresses in use are kept by it.
func (n *Node) writeConflist(plugin object) error {
	text, err := conflist(plugin)
	if err != nil {
		return fmt.Errorf("write the pod network of %s: %w", n.Name, err)
	}
	// The runtime reads the folder whenever it changes: it must never see half a file.
	path := n.own("cni/net.d/10-pods.conflist")
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return fmt.Errorf("write the pod network of %s: %w", n.Name, err)
	}
	return os.Rename(path+".new", path)
}

// conflist is a pod network as CNI wants it.
func conflist(plugin object) ([]byte, error) {
	return json.MarshalIndent(object{
		"cniVersion": "1.0.0", "name": "pods",
		"plugins": []object{plugin, {"type": "portmap", "capabilities": object{"portMappings": true}}},
	}, "", "  ")
}

// plugin is the CNI plugin of the node's pod network, with its configuration.
func (n *Node) plugin() object {
	plugin := object{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true}
	if n.routed() {
		plugin = object{"type": "ptp"}
	}
	plugin["ipMasq"] = false
	plugin["ipam"] = object{
		"type":   "host-local",
		"ranges": [][]object{{{"subnet": n.pods4.String()}}, {{"subnet": n.pods6.String()}}},
		"routes": []object{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}},
	}
	return plugin
}

// FlannelBackend is how flannel transports the packets of pods between nodes.
type FlannelBackend string

// The backends of flannel that a cluster can run: routes over the nodes' own network, or VXLAN.
const (
	HostGateway FlannelBackend = "host-gw"
	VXLAN       FlannelBackend = "vxlan"
)

// Interfaces that flannel makes for VXLAN, one for each family, and the prefix of its chains.
var (
	flannelLinks  = []string{"flannel.1", "flannel-v6.1"}
	flannelChains = []string{"FLANNEL-"}
)

// flannelSubnet is the file that flanneld writes, as the node sees it below /var/lib.
const flannelSubnet = "flannel/subnet.env"

// StartFlannel starts flanneld on the node, which replaces the node's routes to pods of other
// nodes, and gives the node's next pods the network that flannel's CNI plugin delegates to
// bridge. It returns when flanneld has written the node's subnet.
func (n *Node) StartFlannel(ctx context.Context, backend FlannelBackend) error {
	config, err := json.Marshal(object{"Network": PodRanges[0].String(), "EnableIPv6": true, "IPv6Network": PodRanges[1].String(), "Backend": object{"Type": backend}})
	if err != nil {
		return fmt.Errorf("prepare flannel on %s: %w", n.Name, err)
	}
	if err := errors.Join(os.MkdirAll(n.own("flannel"), 0o755), os.WriteFile(n.own("flannel/net-conf.json"), config, 0o644)); err != nil {
		return fmt.Errorf("prepare flannel on %s: %w", n.Name, err)
	}
	for _, line := range n.podRoutes("del") {
		if err := n.ip(line); err != nil {
			return err
		}
	}
	if err := n.begin("flannel", "/usr/bin/env", "NODE_NAME="+n.Name, n.cluster.tool("flannel"),
		"--kubeconfig-file="+pkiFile("flannel.conf"), "--net-config-path=/var/lib/flannel/net-conf.json",
		"--subnet-file=/var/lib/"+flannelSubnet, "--iface=eth0"); err != nil {
		return err
	}
	return until(ctx, "flannel on "+n.Name, upTime, func(context.Context) error {
		env, err := os.ReadFile(n.own(flannelSubnet))
		if err != nil {
			return err
		}
		plugin, err := flannelPlugin(string(env))
		if err != nil {
			return err
		}
		return n.writeConflist(plugin)
	})
}

// flannelPlugin is what flannel's CNI plugin delegates to bridge, from flanneld's subnet file:
// the node's subnets and the MTU.
func flannelPlugin(env string) (object, error) {
	values := map[string]string{}
	for line := range strings.Lines(env) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found {
			values[name] = value
		}
	}
	var mtu int
	if _, err := fmt.Sscan(values["FLANNEL_MTU"], &mtu); err != nil {
		return nil, fmt.Errorf("read flannel's MTU %q: %w", values["FLANNEL_MTU"], err)
	}
	var ranges [][]object
	for _, name := range []string{"FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET"} {
		p, err := netip.ParsePrefix(values[name])
		if err != nil {
			return nil, fmt.Errorf("read flannel's %s: %w", name, err)
		}
		ranges = append(ranges, []object{{"subnet": p.Masked().String()}})
	}
	return object{
		"type": "bridge", "bridge": "cni0", "mtu": mtu, "isGateway": true, "hairpinMode": true, "ipMasq": false,
		"ipam": object{"type": "host-local", "ranges": ranges, "routes": []object{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}}},
	}, nil
}

// StopFlannel ends flanneld on the node, removes what outlives it, and gives the node its own
// routes and pod network again.
func (n *Node) StopFlannel() error {
	errs := []error{n.end("flannel"), os.RemoveAll(n.own("flannel")), n.writeConflist(n.plugin())}
	for _, program := range []string{"iptables", "ip6tables"} {
		errs = append(errs, n.dropChains(program, flannelChains))
	}
	links := flannelLinks
	if n.routed() {
		links = append([]string{"cni0"}, links...)
	}
	for _, link := range links {
		if _, err := n.Run("ip", "link", "show", link); err == nil {
			errs = append(errs, n.ip("link del "+link))
		}
	}
	for _, line := range n.podRoutes("replace") {
		errs = append(errs, n.ip(line))
	}
	return errors.Join(errs...)
}

// podRoutes are the lines of ip that change the node's routes to pods of other nodes.
func (n *Node) podRoutes(verb string) (lines []string) {
	for _, line := range routes(n.site) {
		if route, found := strings.CutPrefix(line, "route add "); found && !strings.HasPrefix(route, "default") {
			lines = append(lines, "route "+verb+" "+route)
		} else if route, found := strings.CutPrefix(line, "-6 route add "); found && !strings.HasPrefix(route, "default") {
			lines = append(lines, "-6 route "+verb+" "+route)
		}
	}
	return lines
}
