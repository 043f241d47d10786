package main

import (
	"fmt"
	"strings"

	"github.com/namegate/namegate/testkit/fatal"
)

// linearMark is the bit by which a policy's chain says that it allowed.
const linearMark = "0x10000/0x10000"

// linearRules are rules in the order in which kube-router lays them out: in filter
// FORWARD for each pod the jumps to its chain, one after the other; in a pod's chain
// one jump for each policy; in a policy's chain its sources, destinations and ports.
// Here all pods share the chains of the policies. The client is the middle one.
func linearRules(selected []int) string {
	var b strings.Builder
	b.WriteString("*filter\n:LINEAR-FORWARD - [0:0]\n")
	for _, i := range selected {
		fmt.Fprintf(&b, ":LINEAR-POD-%d - [0:0]\n", i)
	}
	for k := range portSets {
		fmt.Fprintf(&b, ":LINEAR-POLICY-%d - [0:0]\n", k)
	}
	b.WriteString("-A FORWARD -j LINEAR-FORWARD\n")
	for _, i := range selected {
		a, _ := podAddrs(i)
		fmt.Fprintf(&b, "-A LINEAR-FORWARD -d %[1]s/32 -j LINEAR-POD-%[2]d\n", a, i)
		fmt.Fprintf(&b, "-A LINEAR-FORWARD -d %[1]s/32 -m physdev --physdev-is-bridged -j LINEAR-POD-%[2]d\n", a, i)
		fmt.Fprintf(&b, "-A LINEAR-FORWARD -s %[1]s/32 -j LINEAR-POD-%[2]d\n", a, i)
		fmt.Fprintf(&b, "-A LINEAR-FORWARD -s %[1]s/32 -m physdev --physdev-is-bridged -j LINEAR-POD-%[2]d\n", a, i)
		linearPod(&b, i)
	}
	for k := range portSets {
		fmt.Fprintf(&b, "-A LINEAR-POLICY-%[1]d -p tcp -m set --match-set linear-from src -m set --match-set linear-to-%[1]d dst -m tcp --dport %[2]d -j MARK --set-xmark %[3]s\n",
			k, portOf(k), linearMark)
		fmt.Fprintf(&b, "-A LINEAR-POLICY-%d -m mark --mark %s -j RETURN\n", k, linearMark)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

func linearPod(b *strings.Builder, i int) {
	a, _ := podAddrs(i)
	fmt.Fprintf(b, "-A LINEAR-POD-%d -m conntrack --ctstate INVALID -j DROP\n", i)
	fmt.Fprintf(b, "-A LINEAR-POD-%d -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n", i)
	fmt.Fprintf(b, "-A LINEAR-POD-%d -d %s/32 -m addrtype --src-type LOCAL -j ACCEPT\n", i, a)
	for k := range portSets {
		fmt.Fprintf(b, "-A LINEAR-POD-%d -s %s/32 -j LINEAR-POLICY-%d\n", i, a, k)
	}
	fmt.Fprintf(b, "-A LINEAR-POD-%d -m mark ! --mark %s -j REJECT\n", i, linearMark)
	fmt.Fprintf(b, "-A LINEAR-POD-%d -j MARK --set-xmark 0x0/0x10000\n", i)
}

// linearSets are the sets that linearRules asks: each policy allows one address.
func linearSets(selected []int) string {
	var b strings.Builder
	b.WriteString("create linear-from hash:ip\n")
	for _, i := range selected {
		a, _ := podAddrs(i)
		fmt.Fprintf(&b, "add linear-from %s\n", a)
	}
	for k := range portSets {
		fmt.Fprintf(&b, "create linear-to-%d hash:ip\nadd linear-to-%[1]d %s\n", k, target4)
	}
	return b.String()
}

// layLinear replaces the rules of a node by those for the selected pods.
func (b *bench) layLinear(n *node, selected []int) {
	for _, step := range []struct{ program, args, in string }{
		{"iptables-restore", "", "*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"},
		{"ipset", "destroy", ""},
		{"ipset", "restore", linearSets(selected)},
		{"iptables-restore", "", linearRules(selected)},
	} {
		fatal.If(b, n.Node.Pipe(step.in, step.program, strings.Fields(step.args)...))
	}
}
