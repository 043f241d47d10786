package kube

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/testkit/fatal"
)

// inside runs the test pods' program in a pod's network, without the API server, and
// reads its output.
func (s *scenario) inside(pod string, into any, args ...string) {
	s.Helper()
	out, err := the.Inside(s.ctx, s.ref(pod), args...)
	if err == nil {
		err = json.Unmarshal([]byte(out), into)
	}
	fatal.If(s, err)
}

// during sends 500 queries a second, for the names in turn, from each of the pods, from
// before f until it has returned, and for least in all. It returns the lost queries.
func (s *scenario) during(what string, pods, names []string, least time.Duration, f func()) (lost int) {
	s.Helper()
	begin, over := time.Now(), make(chan struct{})
	var loads sync.WaitGroup
	sums := make([]loadSum, len(pods))
	for i, p := range pods {
		// Two clients alternate: while one of them restarts the other asks.
		for turn := range 2 {
			loads.Go(func() { s.asks(&sums[i], p, names, turn, over) })
		}
	}
	end := sync.OnceFunc(func() {
		close(over)
		loads.Wait()
	})
	defer end() // also where f ends the test
	time.Sleep(3 * time.Second)
	f()
	took := time.Since(begin)
	time.Sleep(least - took)
	end()
	for i, p := range pods {
		if sums[i].answered == 0 {
			s.Errorf("%s: nothing was answered", p)
		}
		lost += sums[i].lost
		s.Logf("%s, %s: %d asked, %d answered, %d lost, longest %.0f ms%s", what, p, sums[i].sent, sums[i].answered, sums[i].lost, sums[i].longest, sums[i].failures)
	}
	s.Logf("%s: took %v, %d queries lost at %d q/s a pod", what, (took - 3*time.Second).Round(100*time.Millisecond), lost, loadRate)
	return lost
}

const (
	loadRate = 500
	// loadRound is how long one load lasts.
	loadRound = 6 * time.Second
)

// loadSum is what became of a pod's questions.
type loadSum struct {
	mu                   sync.Mutex
	sent, answered, lost int
	longest              float64 // in ms
	failures             string
}

// asks asks half of a pod's questions until it is over, each name once.
func (s *scenario) asks(sum *loadSum, pod string, names []string, turn int, over <-chan struct{}) {
	length := loadRound / time.Duration(turn+1) // at first
	for round := 0; ; round++ {
		select {
		case <-over:
			return
		default:
		}
		var fresh []string
		for _, n := range names {
			fresh = append(fresh, strings.Replace(n, "#", fmt.Sprintf("%d-%d-#", turn, round), 1))
		}
		load := probe.Load{Rate: loadRate / 2, Length: length, Server: server, Names: fresh}
		begin := time.Now()
		out, err := the.Inside(s.ctx, s.ref(pod), append([]string{"load"}, load.Args()...)...)
		var l probe.Loaded
		if err == nil {
			err = json.Unmarshal([]byte(out), &l)
		}
		if err != nil {
			s.Error(err)
			return
		}
		sum.mu.Lock()
		sum.sent, sum.answered, sum.lost, sum.longest = sum.sent+l.Sent, sum.answered+l.Answered, sum.lost+l.Lost(), max(sum.longest, l.Max)
		if l.Lost() > 0 {
			sum.failures += fmt.Sprintf("; of those from %s on lost %v from %.1f s to %.1f s", begin.Format(time.TimeOnly), l.Failed, l.FirstFailure, l.LastFailure)
		}
		sum.mu.Unlock()
		length = loadRound
	}
}

// server is the cluster's resolver: what runs inside a pod's network does not
// have its resolv.conf.
const server = "10.96.0.10"

// settles is how long a load lasts at least where programs write rules after their
// start is done.
const settles = 20 * time.Second

// mixed are a name that is kept and names that are not.
var mixed = []string{"www.example.org", "n#.wild.test"}

// testCoreDNS: the growth and shrinking of the resolver's Deployment loses no query.
func testCoreDNS(t *testing.T) {
	s := begin(t, "coredns")
	s.loaded()
	scale := func(n int) {
		s.kubectl("scale", "-n", "kube-system", "deployment/coredns", fmt.Sprintf("--replicas=%d", n))
		s.kubectl("rollout", "status", "-n", "kube-system", "deployment/coredns", "--timeout=180s")
		time.Sleep(7 * time.Second) // terminating endpoints answer for five seconds
	}
	if lost := s.during("CoreDNS grows and shrinks", []string{"a", "b"}, mixed, 0, func() { scale(4); scale(1); scale(2) }); lost > 0 {
		t.Errorf("%d queries lost", lost)
	}
}

// testKubeProxy: kube-proxy's restart, and its change to nftables and back, lose no
// query.
func testKubeProxy(t *testing.T) {
	s := begin(t, "kubeproxy")
	s.loaded()
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
		if lost := s.during(step.what, []string{"a", "b"}, mixed, settles, step.do); lost > 0 {
			t.Errorf("%s: %d queries lost", step.what, lost)
		}
		s.gets("a", "tcp", "www.example.org", 80, works)
		s.dials("b", "tcp", raw, denied)
	}
}

// testDataplane: each node changes to the dataplane of the other one, under load, which loses no
// query and leaves nothing of the dataplane before.
func testDataplane(t *testing.T) {
	s := begin(t, "dataplane")
	s.loaded()
	fatal.If(t, enforceWith(s.ctx, map[string]string{"node-a": dataplanes["node-b"], "node-b": dataplanes["node-a"]}))
	s.replaced("a change of the dataplanes", func() {
		s.kubectl("rollout", "restart", "-n", namespace, "daemonset/"+release)
		s.kubectl("rollout", "status", "-n", namespace, "daemonset/"+release, "--timeout=300s")
	})
	for node, left := range map[string]string{"node-a": "NG4-", "node-b": "table inet namegate-net"} {
		s.eventually(soon, "the end of the dataplane before on "+node, func() error {
			sets, err := the.Node(node).Sets()
			fatal.If(t, err)
			rules, err := the.Node(node).NFT()
			fatal.If(t, err)
			if strings.Contains(sets+rules, left) {
				return fmt.Errorf("%s is there", left)
			}
			return nil
		})
	}
}

// loaded runs two pods and the policy of their questions.
func (s *scenario) loaded() {
	s.Helper()
	s.run(pod("a", "node-a", map[string]string{"app": "load"}), pod("b", "node-b", map[string]string{"app": "load"}),
		policy("names", `{podSelector: {matchLabels: {app: load}}, egress: [{matches: [{name: www.example.org}, {pattern: "*.wild.test"}]}]}`))
	s.enforced(soon, "a")
	s.enforced(soon, "b")
}

// replaced has all agents replaced, under load, which loses no query.
func (s *scenario) replaced(what string, do func()) {
	s.Helper()
	before := s.agents()
	lost := s.during(what, []string{"a", "b"}, mixed, settles, func() {
		do()
		s.eventually(patient, "the end of the old agents", func() error {
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
		s.Errorf("%s: %d queries lost", what, lost)
	}
	s.gets("a", "tcp", "www.example.org", 80, works)
	s.dials("b", "tcp", raw, denied)
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
