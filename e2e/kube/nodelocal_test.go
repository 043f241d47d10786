package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/cluster/probe"
)

// nodeLocal is where NodeLocal DNSCache answers on every node.
const nodeLocal = "169.254.20.10"

// testNodeLocal: beside a NodeLocal DNSCache, whose traffic is not tracked,
// selected pods that dial it are served by the agent, others by the cache.
func testNodeLocal(t *testing.T) {
	s := begin(t, "nodelocal")
	for _, n := range the.Nodes {
		lines := [][]string{{"ip", "addr", "add", nodeLocal + "/32", "dev", "lo"}}
		undo := [][]string{{"ip", "addr", "del", nodeLocal + "/32", "dev", "lo"}}
		for _, rule := range []string{"PREROUTING -d %s -p udp --dport 53", "OUTPUT -s %s -p udp --sport 53", "PREROUTING -d %s -p tcp --dport 53", "OUTPUT -s %s -p tcp --sport 53"} {
			words := strings.Fields(fmt.Sprintf(rule, nodeLocal))
			lines = append(lines, append(append([]string{"iptables", "-w", "-t", "raw", "-I"}, words...), "-j", "NOTRACK"))
			undo = append(undo, append(append([]string{"iptables", "-w", "-t", "raw", "-D"}, words...), "-j", "NOTRACK"))
		}
		for _, l := range lines {
			if _, err := n.Run(l[0], l[1:]...); err != nil {
				t.Fatal(err)
			}
		}
		defer func() {
			for _, l := range undo {
				if _, err := n.Run(l[0], l[1:]...); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	if _, err := the.Helm(s.ctx, helmArgs("upgrade", "--set", "corefile.intercept={"+nodeLocal+"}")...); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := the.Helm(s.ctx, helmArgs("upgrade")...); err != nil {
			t.Error(err)
		}
	}()
	s.apply(`---
apiVersion: v1
kind: ConfigMap
metadata: {name: cache}
data:
  Corefile: |
    .:53 {
        bind ` + nodeLocal + `
        cache 30
        forward . 10.96.0.10
    }
`)
	var manifests []string
	for _, n := range nodes {
		manifests = append(manifests, fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: cache-%[1]s}
spec:
  nodeName: %[1]s
  hostNetwork: true
  dnsPolicy: Default
  terminationGracePeriodSeconds: 1
  containers:
  - {name: cache, image: "namegate.test/coredns:e2e", imagePullPolicy: Never, args: [-conf, /etc/coredns/Corefile], volumeMounts: [{name: c, mountPath: /etc/coredns}]}
  volumes: [{name: c, configMap: {name: cache}}]
`, n))
		for _, app := range []string{"selected", "plain"} {
			m := pod(app+"-"+n, n, map[string]string{"app": app})
			manifests = append(manifests, strings.Replace(m, "spec:\n", "spec:\n  dnsPolicy: None\n  dnsConfig: {nameservers: ["+nodeLocal+"]}\n", 1))
		}
	}
	s.run(manifests...)
	s.apply(policy("one", `{podSelector: {matchLabels: {app: selected}}, egress: [{matches: [{pattern: "*.wild.test"}]}]}`))
	for _, n := range the.Nodes {
		selected, plain := "selected-"+n.Name, "plain-"+n.Name
		s.enforced(soon, selected)
		for i := range 3 {
			s.gets(selected, "tcp", fmt.Sprintf("n%d.wild.test", i), 80, works)
		}
		s.gets(selected, "tcp", "other.test", 80, denied)
		s.gets(plain, "tcp", "other.test", 80, works)
		pid := s.agentProcess(n.Name)
		if _, err := n.Run("kill", "-STOP", pid); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if _, err := n.Run("kill", "-CONT", pid); err != nil {
					t.Error(err)
				}
			}()
			s.eventually(patient, "the cache's answer while the agent of "+n.Name+" hangs", func() error {
				var a probe.Answer
				s.inside(selected, &a, "lookup", "n9.wild.test", "A", nodeLocal)
				if len(a.Addrs) == 0 {
					return fmt.Errorf("%s %s %s", a.Class, a.Rcode, a.Error)
				}
				return nil
			})
		}()
		s.eventually(patient, "the agent's return", func() error {
			g, err := the.Get(s.ctx, s.ref(selected), "tcp", "n8.wild.test", 80)
			if err == nil && !works.has(g.Class) {
				err = fmt.Errorf("%+v", g)
			}
			return err
		})
	}
}
