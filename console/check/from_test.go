package check

import (
	"fmt"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/explain"
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
			from, err := ParseFrom(words[2])
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
