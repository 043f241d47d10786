package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/testkit/fatal"
)

// endpoint are the addresses that pods may be pointed at.
var endpoint = []string{"169.254.20.53", "fd5c:7a1e:93b4::53"}

// nodeLocal is where NodeLocal DNSCache answers on every node.
const nodeLocal = "169.254.20.10"

// testResolvers: pods whose resolver is the endpoint, as kubelet's clusterDNS makes it, or a
// NodeLocal DNSCache, whose traffic is not tracked, are served by the agent if a policy selects
// them, over UDP and over TCP. While the agents hang, each resolver answers, and enforcement stays.
func testResolvers(t *testing.T) {
	s := begin(t, "resolvers")
	resolvers := map[string]string{"endpoint": endpoint[0], "nodelocal": nodeLocal}
	s.run(s.nodeLocalCaches()...)
	var manifests []string
	for _, n := range nodes {
		for resolver, address := range resolvers {
			for _, app := range []string{"selected", "plain"} {
				m := pod(app+"-"+resolver+"-"+n, n, map[string]string{"app": app})
				manifests = append(manifests, strings.Replace(m, "spec:\n", "spec:\n  dnsPolicy: None\n  dnsConfig: {nameservers: ["+address+"]}\n", 1))
			}
		}
	}
	s.run(manifests...)
	s.apply(policy("one", `{podSelector: {matchLabels: {app: selected}}, egress: [{matches: [{name: www.example.org}, {pattern: "*.wild.test"}, {pattern: "*.ip.test"}]}]}`))
	for _, n := range nodes {
		for resolver, address := range resolvers {
			selected, plain := "selected-"+resolver+"-"+n, "plain-"+resolver+"-"+n
			s.enforced(soon, selected)
			fatal.If(s, s.expect(selected, "tcp", "198.51.100.41:80", denied))
			var overTCP probe.Answer
			s.inside(selected, &overTCP, "lookup", "198-51-100-41.ip.test", "A", address, "tcp")
			if len(overTCP.Addrs) != 1 {
				s.Errorf("%s asks %s over TCP: %+v", selected, address, overTCP)
			}
			fatal.If(s, s.expect(selected, "tcp", "198.51.100.41:80", works))
			for i := range 3 {
				s.gets(selected, "tcp", fmt.Sprintf("n%d.wild.test", i), 80, works)
			}
			for _, p := range []string{selected, plain} {
				s.gets(p, "tcp", "www.example.org", 80, works)
				for _, server := range endpoint {
					s.resolves(p, server)
				}
			}
			s.gets(selected, "tcp", "other.test", 80, denied)
			s.gets(plain, "tcp", "other.test", 80, works)
		}
	}
	s.hang(func() {
		for _, n := range nodes {
			for resolver := range resolvers {
				for _, app := range []string{"selected-", "plain-"} {
					s.answeredWithoutAgent(app+resolver+"-"+n, append([]string{server, nodeLocal}, endpoint...))
				}
				var d probe.Dialled
				s.inside("selected-"+resolver+"-"+n, &d, "dial", "tcp", raw)
				if !denied.has(d.Class) {
					t.Errorf("while the agent hangs the pod reaches %s: %s", raw, d.Class)
				}
			}
		}
	})
	for _, n := range the.Nodes {
		s.eventually(patient, "the agent's return", func() error {
			status, err := n.AgentStatus()
			if err == nil && !strings.Contains(status, "true") {
				err = fmt.Errorf("%s", status)
			}
			return err
		})
		for resolver := range resolvers {
			s.eventually(patient, "an answer of the agent", func() error { return s.got("selected-"+resolver+"-"+n.Name, "tcp", "n8.wild.test", 80, works) })
		}
	}
}

// nodeLocalCaches gives each node the address of NodeLocal DNSCache, with its rules, until the
// test ends, and returns the manifests of the caches.
func (s *scenario) nodeLocalCaches() (manifests []string) {
	s.Helper()
	for _, n := range the.Nodes {
		change := func(address, rule string) (lines [][]string) {
			lines = [][]string{{"ip", "addr", address, nodeLocal + "/32", "dev", "lo"}}
			for _, protocol := range []string{"udp", "tcp"} {
				for _, match := range []string{"PREROUTING -d %s -p %s --dport 53", "OUTPUT -s %s -p %s --sport 53"} {
					lines = append(lines, strings.Fields("iptables -w -t raw "+rule+" "+fmt.Sprintf(match, nodeLocal, protocol)+" -j NOTRACK"))
				}
			}
			return lines
		}
		for _, l := range change("add", "-I") {
			_, err := n.Run(l[0], l[1:]...)
			fatal.If(s, err)
		}
		s.Cleanup(func() {
			for _, l := range change("del", "-D") {
				if _, err := n.Run(l[0], l[1:]...); err != nil {
					s.Error(err)
				}
			}
		})
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
`, n.Name))
	}
	return append(manifests, `---
apiVersion: v1
kind: ConfigMap
metadata: {name: cache}
data:
  Corefile: |
    .:53 {
        bind `+nodeLocal+`
        cache 30
        forward . `+server+`
    }
`)
}

// hang stops the agents of all nodes while f runs.
func (s *scenario) hang(f func()) {
	s.Helper()
	for _, n := range the.Nodes {
		pid := s.agentProcess(n.Name)
		_, err := n.Run("kill", "-STOP", pid)
		fatal.If(s, err)
		defer func() {
			if _, err := n.Run("kill", "-CONT", pid); err != nil {
				s.Error(err)
			}
		}()
	}
	f()
}

// answeredWithoutAgent waits for the answer of each server to a pod.
func (s *scenario) answeredWithoutAgent(pod string, servers []string) {
	s.Helper()
	begin := time.Now()
	for _, to := range servers {
		s.eventually(patient, "an answer from "+to+" while the agent hangs", func() error {
			var a probe.Answer
			s.inside(pod, &a, "lookup", "www.example.org", "A", to)
			if len(a.Addrs) == 0 {
				return fmt.Errorf("%s %s %s", a.Class, a.Rcode, a.Error)
			}
			return nil
		})
	}
	s.Logf("%s was answered by all resolvers %v after it began to ask", pod, time.Since(begin).Round(100*time.Millisecond))
}

func (s *scenario) resolves(pod, server string) {
	s.Helper()
	a, err := the.Lookup(s.ctx, s.ref(pod), "example.org", "AAAA", server)
	if err != nil || len(a.Addrs) == 0 {
		s.Errorf("%s asks %s: %+v (%v)", pod, server, a, err)
	}
}

// agentProcess returns the number, as the node counts, of its agent.
func (s *scenario) agentProcess(node string) string {
	s.Helper()
	out, err := the.Node(node).Run("pgrep", "-f", "namegate agent ")
	if err != nil || len(fields(out)) != 1 {
		s.Fatalf("the agent of %s: %q %v", node, out, err)
	}
	return fields(out)[0]
}
