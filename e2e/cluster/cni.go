package cluster

import (
	"encoding/json"
	"fmt"
	"os"
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
