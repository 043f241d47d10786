package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/source/kube"
	"github.com/namegate/namegate/testkit/fatal"
)

// manyPolicies are applied at once by testConditions.
const manyPolicies = 1000

// testConditions: many policies are applied at once. Agents compile at most once in each kube.MostDelay
// meanwhile, each policy gets its conditions, and a condition that is written causes no compile.
func testConditions(t *testing.T) {
	s := begin(t, "conditions")
	var text []string
	for i := range manyPolicies {
		text = append(text, policy(fmt.Sprintf("p%04d", i), fmt.Sprintf(`{podSelector: {matchLabels: {app: a%[1]d}}, egress: [{matches: [{name: n%[1]d.example.org}]}]}`, i)))
	}
	s.eventually(patient, "the end of other scenarios' namespaces", func() error {
		if left := s.kubectl("get", "namespace", "-o", `jsonpath={.items[?(@.status.phase=="Terminating")].metadata.name}`); left != "" {
			return fmt.Errorf("%s end", left)
		}
		return nil
	})
	before, begin := s.compiles(), time.Now()
	s.apply(text...)
	applied := time.Since(begin)
	s.eventually(patient, "the conditions of all policies", func() error {
		if n := s.reported(); n < manyPolicies {
			return fmt.Errorf("%d of %d policies have them", n, manyPolicies)
		}
		return nil
	})
	t.Logf("%d policies were applied in %v; all had conditions %v later", manyPolicies, applied.Round(time.Second), (time.Since(begin) - applied).Round(100*time.Millisecond))
	// A state that waits when the last policy is written is compiled after that, and so is a state of
	// another change at the beginning.
	most := int(applied/kube.MostDelay) + 2
	after := s.compiles()
	for i, n := range nodes {
		if made := after[i] - before[i]; made == 0 || made > most {
			t.Errorf("the agent of %s compiled %d times in %v, want 1 to %d times", n, made, applied, most)
		}
	}
	for i := range 20 {
		s.kubectl("patch", "fqdnnp", "-n", s.ns, fmt.Sprintf("p%04d", i), "--subresource=status", "--type=json", "-p",
			`[{"op": "add", "path": "/status/conditions/-", "value": {"type": "Reviewed", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}}]`)
	}
	// The next change of an input is compiled by itself: the written conditions were none.
	s.apply(policy("p0000", `{podSelector: {matchLabels: {app: other}}, egress: [{matches: [{name: other.example.org}]}]}`))
	s.eventually(soon, "the compile of a change", func() error {
		for i, made := range s.compiles() {
			if made != after[i]+1 {
				return fmt.Errorf("the agent of %s compiled %d times, want once", nodes[i], made-after[i])
			}
		}
		return nil
	})
}

// reported is how many policies of the namespace have the condition Enforced of their generation.
func (s *scenario) reported() (n int) {
	s.Helper()
	var list struct{ Items []conditioned }
	fatal.If(s, json.Unmarshal([]byte(s.kubectl("get", "fqdnnp", "-n", s.ns, "-o", "json")), &list))
	for _, p := range list.Items {
		if p.find("Enforced").Type != "" {
			n++
		}
	}
	return n
}

// compiles are how often the agent of each node has compiled, by its metrics.
func (s *scenario) compiles() (out []int) {
	s.Helper()
	for _, node := range nodes {
		at := s.kubectl("get", "node", node, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return the.Node(node).Dial(ctx, network, addr)
		}}}
		resp, err := c.Get("http://" + net.JoinHostPort(strings.Fields(at)[0], "9953") + "/metrics")
		fatal.If(s, err)
		text, err := io.ReadAll(resp.Body)
		fatal.If(s, err)
		fatal.If(s, resp.Body.Close())
		_, rest, found := strings.Cut(string(text), "\nnamegate_compile_seconds_count ")
		rest, _, _ = strings.Cut(rest, "\n")
		n, err := strconv.Atoi(rest)
		if !found || err != nil {
			s.Fatalf("the metrics of %s have no count of compiles: %q", node, rest)
		}
		out = append(out, n)
	}
	return out
}
