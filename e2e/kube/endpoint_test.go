package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/cluster/probe"
)

// endpoint are the addresses that pods may be pointed at.
var endpoint = []string{"169.254.20.53", "fd5c:7a1e:93b4::53"}

// testEndpoint: pods whose resolver is the endpoint, as kubelet's clusterDNS makes
// it, are served, selected or not; while the agent hangs the cluster's resolver
// answers them, and enforcement stays.
func testEndpoint(t *testing.T) {
	s := begin(t, "endpoint")
	var manifests []string
	for _, n := range nodes {
		for _, app := range []string{"selected", "plain"} {
			m := pod(app+"-"+n, n, map[string]string{"app": app})
			manifests = append(manifests, strings.Replace(m, "spec:\n", "spec:\n  dnsPolicy: None\n  dnsConfig: {nameservers: ["+endpoint[0]+"]}\n", 1))
		}
	}
	s.run(manifests...)
	s.apply(policy("one", `{podSelector: {matchLabels: {app: selected}}, egress: [{matches: [{name: www.example.org}]}]}`))
	for _, n := range the.Nodes {
		s.enforced(soon, "selected-"+n.Name)
		for _, app := range []string{"selected-", "plain-"} {
			s.gets(app+n.Name, "tcp", "www.example.org", 80, works)
			for _, server := range endpoint {
				s.resolves(app+n.Name, server)
			}
		}
		s.gets("selected-"+n.Name, "tcp", "other.test", 80, denied)
		s.gets("plain-"+n.Name, "tcp", "other.test", 80, works)
		pid := s.agentProcess(n.Name)
		if _, err := n.Run("kill", "-STOP", pid); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		func() {
			defer func() {
				if _, err := n.Run("kill", "-CONT", pid); err != nil {
					t.Error(err)
				}
			}()
			for _, app := range []string{"selected-", "plain-"} {
				for _, server := range append([]string{"10.96.0.10"}, endpoint...) {
					s.eventually(patient, "an answer from "+server+" while the agent of "+n.Name+" hangs", func() error {
						var a probe.Answer
						s.inside(app+n.Name, &a, "lookup", "www.example.org", "A", server)
						if len(a.Addrs) == 0 {
							return fmt.Errorf("%s %s %s", a.Class, a.Rcode, a.Error)
						}
						return nil
					})
					t.Logf("%s: %s answered %v after the agent hung", app+n.Name, server, time.Since(begin).Round(100*time.Millisecond))
				}
			}
			var d probe.Dialled
			s.inside("selected-"+n.Name, &d, "dial", "tcp", raw)
			if !denied.has(d.Class) {
				t.Errorf("while the agent hangs the pod reaches %s: %s", raw, d.Class)
			}
		}()
		s.eventually(patient, "the agent's return", func() error {
			status, err := n.AgentStatus()
			if err == nil && !strings.Contains(status, "true") {
				err = fmt.Errorf("%s", status)
			}
			return err
		})
		s.gets("selected-"+n.Name, "tcp", "www.example.org", 80, works)
	}
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
