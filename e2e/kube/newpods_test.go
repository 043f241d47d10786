package kube

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/testkit/diff"
)

// testNewPods: the very first query of a pod's life is held until the pod is
// known and its answer is granted. How long its other traffic went unjudged is
// measured: it dials an address that nothing allows from its first moment on. Without the
// results of network plugins, each pod opens connections until its kubelet has published its
// address.
func testNewPods(t *testing.T) {
	s := begin(t, "newpods")
	s.apply(policy("one", `{podSelector: {}, egress: [{matches: [{name: www.example.org}], ports: [{protocol: TCP, port: 80}]}]}`))
	const pods = 5
	var manifests []string
	for i := range pods {
		for _, n := range nodes {
			manifests = append(manifests,
				pod(fmt.Sprintf("asks-%d-%s", i, n), n, nil, "first", "www.example.org", "80"),
				pod(fmt.Sprintf("dials-%d-%s", i, n), n, nil, "window", raw, "5s"))
		}
	}
	s.run(manifests...)
	inTime := 0
	for i := range pods {
		for _, n := range nodes {
			var g probe.Got
			s.report(fmt.Sprintf("asks-%d-%s", i, n), &g)
			t.Logf("first query on %s: %s after %d ms, then %s", n, g.Answer.Rcode, g.Answer.Millis, g.Class)
			diff.Equal(t, probe.OK, g.Class, "the first query of a pod's life on", n, g)
			var w probe.Window
			s.report(fmt.Sprintf("dials-%d-%s", i, n), &w)
			t.Logf("unjudged on %s: %d connections in the first %d ms, then %d denied", n, w.Opened, w.LastMillis, w.Denied)
			if w.Opened == 0 {
				inTime++
			}
			if w.Denied == 0 || w.OpenAgain {
				t.Errorf("a starting pod on %s: %+v", n, w)
			}
			if w.Survived {
				t.Errorf("a connection that a starting pod on %s had opened went on: %+v", n, w)
			}
		}
	}
	if inTime == 0 {
		t.Errorf("none of %d pods was judged from its first packet on", pods*len(nodes))
	}
}

// report reads the output of a pod's program.
func (s *scenario) report(pod string, into any) {
	s.Helper()
	s.eventually(soon, "the report of "+pod, func() error {
		text := s.kubectl("logs", "-n", s.ns, pod)
		if strings.TrimSpace(text) == "" {
			return fmt.Errorf("%s has said nothing", pod)
		}
		return json.Unmarshal([]byte(text), into)
	})
}

// testIsolation: a pod's grants are its own; neither its neighbour on the node nor a pod
// of the other node may use them.
func testIsolation(t *testing.T) {
	s := begin(t, "isolation")
	label := map[string]string{"app": "client"}
	s.run(pod("asker", "node-b", label), pod("neighbour", "node-b", label), pod("far", "node-a", label), pod("far-neighbour", "node-a", label),
		policy("one", `{podSelector: {}, egress: [{matches: [{pattern: "*.wild.test"}]}]}`))
	for _, p := range []string{"asker", "neighbour", "far", "far-neighbour"} {
		s.enforced(soon, p)
	}
	s.gets("asker", "tcp", "a.wild.test", 80, works)
	s.dials("asker", "tcp", "198.51.100.20:80", works)
	for _, p := range []string{"neighbour", "far", "far-neighbour"} {
		s.dials(p, "tcp", "198.51.100.20:80", denied)
	}
	s.gets("far", "tcp", "b.wild.test", 80, works)
	s.dials("far-neighbour", "tcp", "198.51.100.20:80", denied)
	s.dials("neighbour", "tcp", "198.51.100.20:80", denied)
}
