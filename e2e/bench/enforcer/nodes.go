package main

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/lab"
)

// unruled is a node whose policies select pods alone.
const unruled = "no-node-policies"

// The connections that policies for nodes are compared by: the node's own, and its pods'.
var (
	ownState  = podsState + ", the node's own"
	podsOfOne = podsState + ", of its pods"
)

// nodePolicies deny the node, and what it forwards, what twenty rules do not accept; the last of these accepts the world.
func nodePolicies() string {
	rules := ""
	for i := range 20 {
		rules += fmt.Sprintf("\n  - {action: Accept, networks: [203.0.113.%d/32], ports: [{protocol: TCP, port: 443}]}", i)
	}
	out := "apiVersion: v1\nkind: Node\nmetadata: {name: node-a}\nspec: {podCIDRs: [10.244.0.0/16]}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n" +
		"---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {namespace: default, name: kubernetes, labels: {kubernetes.io/service-name: kubernetes}}\n" +
		"addressType: IPv4\nendpoints: [{addresses: [192.0.2.9]}]\nports: [{name: https, port: 6443}]\n"
	for _, traffic := range []string{"Local", "Forwarded"} {
		out += fmt.Sprintf("---\napiVersion: namegate.io/v1alpha1\nkind: NodeNetworkPolicy\nmetadata: {name: %s}\nspec:\n  nodeSelector: {}\n  priority: 1\n  traffic: %s\n  egress:%s\n"+
			"  - {action: Accept, networks: [%s/32]}\n  - {action: Deny}\n", map[string]string{"Local": "own", "Forwarded": "pods"}[traffic], traffic, rules, target4)
	}
	return out
}

// nodes measures what policies for nodes cost the connections of the node and of its pods.
func (b *bench) nodes() {
	names := []string{unruled, "node-policies"}
	nodes := map[string]*node{}
	for _, name := range names {
		n := b.newNode(name+"-", dataplanes[0].name, true)
		nodes[name] = n
		var err error
		n.world, err = n.ServeWorld(answer)
		if err != nil {
			b.Fatal(err)
		}
		all := manifests(chosen(flowPods))
		args := []string(nil)
		if name != unruled {
			maps.Copy(all, map[string]string{"nodes.yaml": nodePolicies()})
			args = []string{"--nodes", "--node-name", "node-a"}
		}
		b.enforce(n, all, func(s lab.Status) bool { return s.InSync && s.Enforcer.Selected >= flowPods }, args...)
		b.resolve(n)
	}
	to := netip.AddrPortFrom(target4, sinkPort)
	for _, from := range []struct {
		state string
		host  func(*node) *lab.Host
	}{{ownState, func(n *node) *lab.Host { return n.Node }}, {podsOfOne, func(n *node) *lab.Host { return n.Pod(client).Host }}} {
		series := map[string]figure.Series{}
		for round := range b.Rounds {
			for i := range names {
				name := names[(round+i)%len(names)]
				series[name] = append(series[name], b.pushTo(nodes[name], from.host(nodes[name]), to, traffic[0]))
			}
		}
		own, p := series[names[1]], series[unruled]
		f := figure.Figure{Name: traffic[0].figure, Value: own.Median(), Unit: traffic[0].unit, State: from.state}.Against(unruled, p.Median())
		b.Note("%s, %s: %.4g, %s %.4g: %.3f", f.Name, f.State, f.Value, f.Peer, f.PeerValue, f.Ratio)
		b.Report(f, max(own.Others(), p.Others()))
	}
}
