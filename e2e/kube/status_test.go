package kube

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// testHostNetwork: a pod on the host network is not selected, and that is reported: in an
// event on the policy, in its condition, and in the agent's status.
func testHostNetwork(t *testing.T) {
	s := begin(t, "hostnetwork")
	s.run(strings.Replace(pod("host", "node-a", nil), "spec:\n", "spec:\n  hostNetwork: true\n", 1), pod("own", "node-b", nil),
		policy("all", `{podSelector: {}, egress: [{matches: [{name: www.example.org}]}]}`))
	s.enforced(soon, "own")
	s.dials("host", "tcp", raw, works)
	s.eventually(patient, "an event", func() error {
		if out := s.kubectl("get", "events", "-n", s.ns); !strings.Contains(out, "HostNetwork") {
			return fmt.Errorf("no event HostNetwork:\n%s", out)
		}
		return nil
	})
	status, err := the.Node("node-a").AgentStatus()
	if err != nil || !strings.Contains(status, "hostnetwork/host") {
		t.Errorf("status does not name the pod (%v):\n%s", err, status)
	}
	if status, reason, _ := s.condition("all", "Accepted"); status != "True" {
		t.Errorf("Accepted is %s %s", status, reason)
	}
}

// testCorefile: a change of the ConfigMap is applied without a restart; a bad one
// is refused with its line, and the running configuration stays.
func testCorefile(t *testing.T) {
	s := begin(t, "corefile")
	s.run(pod("client", "node-a", map[string]string{"app": "client"}), pod("server", "node-b", nil, "serve", "server", "8080"))
	fatal.If(t, the.SetZone("inside.test. 1 A "+s.addresses("server")[0]+"\n"))
	defer func() {
		if err := the.SetZone(""); err != nil {
			t.Error(err)
		}
	}()
	s.apply(policy("one", `{podSelector: {matchLabels: {app: client}}, egress: [{matches: [{name: inside.test}]}]}`))
	s.enforced(soon, "client")
	// The guard takes a pod's address out of the answer for an outside name.
	s.gets("client", "tcp", "inside.test", 8080, want{probe.Failed})
	agents := s.agents()
	good := s.kubectl("get", "configmap", "-n", namespace, release, "-o", "jsonpath={.data.Corefile}")
	write := func(text string) {
		patch, err := json.Marshal(map[string]any{"data": map[string]string{"Corefile": text}})
		fatal.If(t, err)
		s.kubectl("patch", "configmap", "-n", namespace, release, "--type=merge", "-p", string(patch))
	}
	defer write(good)
	begin := time.Now()
	write(strings.Replace(good, "{\n", "{\n    rebind allow inside.test 10.244.0.0/16\n", 1))
	s.eventually(3*time.Minute, "the exception", func() error {
		g, err := the.Get(s.ctx, s.ref("client"), "tcp", "inside.test", 8080)
		if err == nil && !works.has(g.Class) {
			err = fmt.Errorf("%+v", g)
		}
		return err
	})
	t.Logf("a changed ConfigMap was in force after %v", time.Since(begin).Round(time.Second))
	write(strings.Replace(good, "{\n", "{\n    nonsense\n", 1))
	s.eventually(3*time.Minute, "the refusal", func() error {
		for agent := range agents {
			log := s.kubectl("logs", "-n", namespace, agent)
			if !strings.Contains(log, "the Corefile is refused") || !strings.Contains(log, "nonsense") {
				return fmt.Errorf("%s has not refused it", agent)
			}
		}
		return nil
	})
	s.gets("client", "tcp", "inside.test", 8080, works)
	diff.Error(t, agents, s.agents(), "the agents; some were started anew")
}
