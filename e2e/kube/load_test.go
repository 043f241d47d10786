package kube

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/e2e/cluster/probe"
)

// inside runs the test pods' program in a pod's network, without the API server,
// and reads what it says.
func (s *scenario) inside(pod string, into any, args ...string) {
	s.Helper()
	out, err := the.Inside(s.ctx, s.ref(pod), args...)
	if err == nil {
		err = json.Unmarshal([]byte(out), into)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// during asks 500 questions a second, for the names in turn, from each of the pods
// while f runs, and before and after, for length in all. It returns what was lost.
func (s *scenario) during(what string, pods, names []string, length time.Duration, f func()) (lost int) {
	s.Helper()
	const rate = 500
	type outcome struct {
		pod    string
		loaded probe.Loaded
		err    error
	}
	done := make(chan outcome, len(pods))
	begin := time.Now()
	for _, p := range pods {
		go func() {
			load := probe.Load{Rate: rate, Length: length, Sockets: 4, Timeout: 5 * time.Second, Server: server, Names: names}
			var o outcome
			o.pod = p
			var out string
			if out, o.err = the.Inside(s.ctx, s.ref(p), append([]string{"load"}, load.Args()...)...); o.err == nil {
				o.err = json.Unmarshal([]byte(out), &o.loaded)
			}
			done <- o
		}()
	}
	time.Sleep(3 * time.Second)
	f()
	took := time.Since(begin)
	if took > length-time.Second {
		s.Errorf("%s took %v, longer than the load", what, took.Round(time.Second))
	}
	for range pods {
		o := <-done
		if o.err != nil {
			s.Error(o.err)
			continue
		}
		if o.loaded.Answered == 0 {
			s.Errorf("%s: nothing was answered: %+v", o.pod, o.loaded)
		}
		lost += o.loaded.Lost()
		s.Logf("%s, %s: %d asked, %d answered, %d lost %v (from %.1f s to %.1f s), p50 %.1f ms, p99 %.1f ms, longest %.0f ms", what, o.pod,
			o.loaded.Sent, o.loaded.Answered, o.loaded.Lost(), o.loaded.Failed, o.loaded.FirstFailure, o.loaded.LastFailure, o.loaded.P50, o.loaded.P99, o.loaded.Max)
	}
	s.Logf("%s: took %v, %d queries lost at %d q/s a pod", what, (took - 3*time.Second).Round(100*time.Millisecond), lost, rate)
	return lost
}

// server is the cluster's resolver: what runs inside a pod's network does not
// have its resolv.conf.
const server = "10.96.0.10"

// mixed are a name that is kept and names that are not.
var mixed = []string{"www.example.org", "n#.wild.test"}

// usual is how long the load lasts where what happens is over in seconds.
const usual = 40 * time.Second

// testCoreDNS: the growth and shrinking of the resolver's Deployment loses no query.
func testCoreDNS(t *testing.T) {
	s := begin(t, "coredns")
	s.run(pod("a", "node-a", nil), pod("b", "node-b", nil),
		policy("names", `{podSelector: {}, egress: [{matches: [{name: www.example.org}, {pattern: "*.wild.test"}]}]}`))
	s.enforced(soon, "a")
	s.enforced(soon, "b")
	scale := func(n int) {
		s.kubectl("scale", "-n", "kube-system", "deployment/coredns", fmt.Sprintf("--replicas=%d", n))
		s.kubectl("rollout", "status", "-n", "kube-system", "deployment/coredns", "--timeout=60s")
		time.Sleep(7 * time.Second) // those that go answer for five seconds
	}
	if lost := s.during("CoreDNS grows and shrinks", []string{"a", "b"}, mixed, usual, func() { scale(4); scale(1); scale(2) }); lost > 0 {
		t.Errorf("%d queries lost", lost)
	}
}

// testKubeProxy: kube-proxy's restart, and its change to nftables and back, lose no
// query.
func testKubeProxy(t *testing.T) {
	s := begin(t, "kubeproxy")
	s.run(pod("a", "node-a", nil), pod("b", "node-b", nil),
		policy("names", `{podSelector: {}, egress: [{matches: [{name: www.example.org}, {pattern: "*.wild.test"}]}]}`))
	s.enforced(soon, "a")
	s.enforced(soon, "b")
	proxies := func(mode string) func() {
		return func() {
			for _, n := range the.Nodes {
				if err := n.RestartKubeProxy(s.ctx, cluster.ProxyMode(mode)); err != nil {
					t.Error(err)
				}
			}
		}
	}
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"kube-proxy restarts", proxies("iptables")},
		{"kube-proxy changes to nftables", proxies("nftables")},
		{"kube-proxy changes back", proxies("iptables")},
	} {
		if lost := s.during(step.what, []string{"a", "b"}, mixed, usual, step.do); lost > 0 {
			t.Errorf("%s: %d queries lost", step.what, lost)
		}
		s.gets("a", "tcp", "www.example.org", 80, works)
		s.dials("b", "tcp", raw, denied)
	}
}

// testUpgrade: an upgrade to another image, under load, loses no query.
func testUpgrade(t *testing.T) {
	s := begin(t, "upgrade")
	s.run(pod("a", "node-a", nil), pod("b", "node-b", nil),
		policy("names", `{podSelector: {}, egress: [{matches: [{name: www.example.org}, {pattern: "*.wild.test"}]}]}`))
	s.enforced(soon, "a")
	s.enforced(soon, "b")
	for _, n := range the.Nodes {
		if err := n.Tag(imageName+":"+*imageTag, imageName+":next"); err != nil {
			t.Fatal(err)
		}
	}
	before := s.agents()
	lost := s.during("helm upgrade", []string{"a", "b"}, mixed, usual, func() {
		if _, err := the.Helm(s.ctx, helmArgs("upgrade", "--set", "image.tag=next")...); err != nil {
			t.Error(err)
		}
		s.eventually(20*time.Second, "the end of the old agents", func() error {
			for name := range s.agents() {
				if before[name] {
					return fmt.Errorf("agent %s is there", name)
				}
			}
			return nil
		})
		s.dials("a", "tcp", raw, denied)
	})
	if lost > 0 {
		t.Errorf("%d queries lost", lost)
	}
	s.gets("a", "tcp", "www.example.org", 80, works)
	s.enforced(soon, "b")
}

// agents returns the names of the agents' pods.
func (s *scenario) agents() map[string]bool {
	out := map[string]bool{}
	for _, name := range fields(s.kubectl("get", "pods", "-n", namespace, "-l", agentLabels, "-o", "jsonpath={.items[*].metadata.name}")) {
		out[name] = true
	}
	return out
}
