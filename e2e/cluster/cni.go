package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
)

// object is a JSON object.
type object = map[string]any

// routed reports which way the node's pods are joined to it: node-a has a route
// for each, node-b has all of them on a bridge.
func (n *Node) routed() bool { return n.Name == nodeSites[0].name }

// LimitAddresses lets the node's next pods have the first count addresses of its
// ranges alone, so that addresses are soon used again; 0 is no limit.
func (n *Node) LimitAddresses(count int) error {
	plugin, err := n.plugin(count)
	if err != nil {
		return err
	}
	return n.writeConflist(plugin)
}

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
func (n *Node) plugin(count int) (object, error) {
	plugin := object{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true}
	if n.routed() {
		plugin = object{"type": "ptp"}
	}
	plugin["ipMasq"] = false
	four, err := addressRange(n.pods4, count)
	six, err6 := addressRange(n.pods6, count)
	if err := errors.Join(err, err6); err != nil {
		return nil, fmt.Errorf("pod network of %s: %w", n.Name, err)
	}
	plugin["ipam"] = object{
		"type":   "host-local",
		"ranges": [][]object{{four}, {six}},
		"routes": []object{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}},
	}
	return plugin, nil
}

// addressRange is a range of which the first address is the gateway and, with a
// limit, count more are to be had.
func addressRange(p netip.Prefix, count int) (object, error) {
	r := object{"subnet": p.String()}
	if count == 0 {
		return r, nil
	}
	first := p.Addr().Next().Next()
	last := first
	for range count - 1 {
		last = last.Next()
	}
	if !p.Contains(last) {
		return nil, fmt.Errorf("%s has no %d addresses", p, count)
	}
	r["rangeStart"], r["rangeEnd"] = first.String(), last.String()
	return r, nil
}
