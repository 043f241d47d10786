package kube

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/testkit/fatal"
)

// testChurn: thirty pods come and go on few addresses. Each asks for a name of its
// own and may use it; the next pod with its address may not. At the end nothing
// of them is left.
func testChurn(t *testing.T) {
	s := begin(t, "churn")
	const rounds, each = 3, 5 // on two nodes: thirty pods
	for _, n := range the.Nodes {
		fatal.If(t, n.LimitAddresses(each+3))
		defer func(n *cluster.Node) {
			if err := n.LimitAddresses(0); err != nil {
				t.Error(err)
			}
		}(n)
	}
	s.apply(policy("spelled", `{podSelector: {}, egress: [{matches: [{pattern: "*.ip.test"}], ports: [{protocol: TCP, port: 80}]}]}`))
	held := map[string]string{} // by address: the grant of its last pod
	reused, all := 0, map[string]bool{}
	for round := range rounds {
		var pods []string
		for i := range each {
			for _, n := range nodes {
				pods = append(pods, pod(fmt.Sprintf("p%d-%d-%s", round, i, n), n, nil))
			}
		}
		s.run(pods...)
		now := map[string]string{}
		for i := range each {
			for k, n := range nodes {
				name := fmt.Sprintf("p%d-%d-%s", round, i, n)
				s.enforced(soon, name)
				own := s.addresses(name)
				for _, a := range own {
					all[a] = true
				}
				if before := held[own[0]]; before != "" {
					reused++
					s.dials(name, "tcp", before+":80", denied)
				}
				target := fmt.Sprintf("198.51.100.%d", 100+round*20+i*2+k)
				s.gets(name, "tcp", strings.ReplaceAll(target, ".", "-")+".ip.test", 80, works)
				s.dials(name, "tcp", target+":80", works)
				now[own[0]] = target
			}
		}
		maps.Copy(held, now)
		s.kubectl("delete", "pod", "-n", s.ns, "--all", "--wait")
	}
	t.Logf("%d pods on %d addresses, %d of them had an address that an earlier one had used", rounds*each*len(nodes), len(all), reused)
	if reused < 10 {
		t.Errorf("%d pods had a used address: the scenario shows nothing", reused)
	}
	var addrs []string
	for a := range all {
		addrs = append(addrs, a)
	}
	s.eventually(soon, "nodes without a trace of the pods", func() error { return traces(addrs) })
}
