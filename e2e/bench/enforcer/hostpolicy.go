package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/namegate/namegate/e2e/lab"
)

// hostName is the name of a node to which a policy applies.
const hostName = "node-1"

// hostRules is how many rules the policy of the node has: half have names, half have networks.
const hostRules = 20

// hostManifest is the Node and its policy. The last rule but one accepts the connections of the
// benchmark by the network of their destination, and the last denies the others.
func hostManifest() string {
	var rules strings.Builder
	for i := range hostRules/2 - 1 {
		fmt.Fprintf(&rules, "  - {action: Accept, matches: [{pattern: \"**.host-%d.test\"}], ports: [{protocol: TCP, port: 443}]}\n", i)
		fmt.Fprintf(&rules, "  - {action: Accept, networks: [203.0.113.%d/32, \"2001:db8:a::%x/128\"], ports: [{protocol: TCP, port: 443}]}\n", i, i)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Node
metadata: {name: %s}
---
apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: hosts}
spec:
  tier: Admin
  priority: 1
  subject: {nodes: {}}
  egress:
%s  - {action: Accept, networks: [%s/32, "%s/128"]}
  - {action: Deny}
`, hostName, rules.String(), target4, target6)
}

// hostArgs are the arguments of an agent that enforces policies for its node.
func (n *node) hostArgs() ([]string, error) {
	root := filepath.Join(n.dir, "host")
	err := lab.HostFiles(root, map[string]string{"etc/resolv.conf": fmt.Sprintf("nameserver %s\n", lab.Resolver4)})
	return []string{"--nodes", "--node-name", hostName, "--host-root", root}, err
}

// hostState is the state of a node with a policy for itself, and ownState that of its own
// connections.
func hostState(count int) string { return podsState(count) + ", a policy for the node" }

func ownState(count int) string { return hostState(count) + ", connections of the node" }
