package check

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/golden"
)

// TestAskFrom: each kind of answer about connections to a pod, word for word, where NetworkPolicies isolate the pods
// that they select and where they do not.
func TestAskFrom(t *testing.T) {
	m, err := Read([]string{"testdata/from.yaml"}, nil, false)
	fatal.If(t, err)
	var out strings.Builder
	for _, all := range []bool{true, false} {
		fmt.Fprintf(&out, "EnforceNetworkPolicies: %v\n", all)
		for _, asked := range []string{
			"colors/blue 80 blue", "colors/green 8080 colors/blue", "colors/green 80 blue", "colors/green icmp blue", "colors/red 80 blue", "colors/blue 80 red", "colors/blue 80 green", "colors/green 8080 green",
			"colors/green 8080 entry/controller", "colors/blue 80 entry/controller", "colors/green 22 entry/controller", "colors/red 22 entry/controller",
			"colors/green 8080 entry/named", "colors/green 80 entry/watched", "colors/green 8080 entry/watched", "entry/controller 80 entry/named", "entry/controller 80 entry/watched",
			"colors/green 8080 198.51.100.7", "colors/green 8080 198.51.101.7", "colors/blue 80 10.1.0.7", "colors/red 8080 10.8.0.1", "colors/red 8080 10.9.0.1", "colors/red 8080 2001:db8::1", "colors/red 9090 2001:db8::1", "colors/blue 80 2001:db8::1",
			"colors/red 8080 entry/controller", "colors/red 9090 entry/controller", "colors/red 8081 entry/controller",
			"colors/red 80 node/n1", "colors/red 80 node/n2", "colors/red 80 192.0.2.1", "colors/red 80 entry/host", "colors/blue 80 entry/host", "colors/blue 80 192.0.2.2", "entry/host 80 colors/blue", "entry/host 8080 colors/blue",
			"kube-system/coredns 53/udp entry/named", "kube-system/coredns 53/udp colors/blue", "kube-system/coredns 54/udp entry/named",
		} {
			words := strings.Fields(asked)
			namespace, name, _ := strings.Cut(words[0], "/")
			port, err := explain.ParsePort(words[1])
			fatal.If(t, err)
			from, err := explain.ParseFrom(words[2])
			fatal.If(t, err)
			answers, err := m.AskFrom(m.PodsNamed(namespace, name)[0], from, port, Options{ClusterDomain: "cluster.local", EnforceNetworkPolicies: all})
			fatal.If(t, err)
			for _, a := range answers {
				text, _, _ := strings.Cut(strings.Join(a.lines(), "\n"), "\n---")
				fmt.Fprintln(&out, text)
			}
		}
	}
	golden.Compare(t, "from", out.String())
}

// TestAskFromUnknown: the errors say what there is, and what to write.
func TestAskFromUnknown(t *testing.T) {
	const host = "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: host, namespace: shop}, spec: {template: {spec: {hostNetwork: true}}}}\n"
	const cart = "---\n{apiVersion: v1, kind: Pod, metadata: {name: cart, namespace: shop}, spec: {nodeName: n1}}\n"
	for _, c := range []struct{ to, from, want string }{
		{"cart", "till", "no manifest has a pod shop/till, or a workload that makes it; write one of shop/host, shop/cart, or the address from which it connects"},
		{"cart", "pay/cart", "no manifest has a pod pay/cart"},
		{"cart", "node/n2", "these manifests have no address from which node/n2 connects; write that address"},
		{"cart", "node/n1", ""},
		{"cart", "host", "these manifests have no address from which shop/host connects; write that address"},
		{"host", "cart", "daemonset shop/host uses the host network, and these manifests have no address of it; add the pod as `kubectl get pod -o yaml` prints it"},
		{"host", "192.0.2.1", ""},
	} {
		m := manifests(t, host+cart)
		from, err := explain.ParseFrom(c.from)
		fatal.If(t, err)
		answers, err := m.AskFrom(m.PodsNamed("shop", c.to)[0], from, explain.Target{Port: 80, Protocol: policy.TCP}, inCluster)
		if got := fmt.Sprint(err); c.want == "" && (err != nil || !answers[0].Allowed()) || c.want != "" && !strings.HasPrefix(got, c.want) {
			t.Errorf("%s from %s: %s", c.to, c.from, got)
		}
	}
}

// TestAskFromJSON: a program finds the direction, and no address that stands for an unknown one.
func TestAskFromJSON(t *testing.T) {
	m, err := Read([]string{"testdata/from.yaml"}, nil, false)
	fatal.If(t, err)
	answers, err := m.AskFrom(m.PodsNamed("colors", "green")[0], explain.From{Name: "blue"}, explain.Target{Port: 8080, Protocol: policy.TCP}, inCluster)
	fatal.If(t, err)
	text, err := json.Marshal(answers[0])
	fatal.If(t, err)
	for _, want := range []string{`"pod":"deployment colors/green"`, `"from":"pod colors/blue"`, `"to":"8080/tcp"`, `"direction":"ingress"`, `"pod":"colors/blue","ports"`} {
		if !strings.Contains(string(text), want) || strings.Contains(string(text), "192.0.0.") {
			t.Errorf("%s is not in %s", want, text)
		}
	}
}
