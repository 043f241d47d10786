package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

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

// testAdmission: kubectl apply refuses every invalid manifest of the table with a
// message that says what to write, and takes every valid one.
func testAdmission(t *testing.T) {
	s := begin(t, "admission")
	var text string
	for _, file := range []string{"admission.yaml", "admission-cluster.yaml", "admission-node.yaml"} {
		of, err := os.ReadFile("../../crds/testdata/" + file)
		fatal.If(t, err)
		text += string(of) + "\n"
	}
	refused := 0
	for _, doc := range strings.Split(text, "\n---\n") {
		var c struct {
			Name, Manifest string
			Refused        []string
		}
		fatal.If(t, yaml.Unmarshal([]byte(doc), &c))
		if c.Manifest == "" {
			continue
		}
		c.Manifest = strings.ReplaceAll(c.Manifest, "namespace: shop", "namespace: "+s.ns)
		args := []string{"apply", "--dry-run=server", "-f", "-"}
		if !strings.Contains(c.Manifest, "namespace:") {
			args = append(args, "-n", s.ns)
		}
		_, err := the.Kubectl(s.ctx, c.Manifest, args...)
		switch {
		case len(c.Refused) == 0 && err != nil:
			t.Errorf("%s: refused: %v", c.Name, err)
		case len(c.Refused) > 0 && err == nil:
			t.Errorf("%s: taken", c.Name)
		}
		for _, text := range c.Refused {
			refused++
			if err != nil && !strings.Contains(err.Error(), text) {
				t.Errorf("%s: the refusal does not say %q: %v", c.Name, text, err)
			}
		}
	}
	if refused < 20 {
		t.Errorf("%d refusals are in the table", refused)
	}
	t.Logf("%d refusals", refused)
}

// administrate applies a policy for nodes, which goes with the scenario; spec is its YAML in flow style.
func (s *scenario) administrate(name, spec string) {
	s.Helper()
	s.temporary("nnp", name, fmt.Sprintf("---\napiVersion: namegate.io/v1alpha1\nkind: NodeNetworkPolicy\nmetadata: {name: %s}\nspec: %s\n", name, spec))
}

// temporary applies an object that goes with the scenario.
func (s *scenario) temporary(kind, name, manifest string) {
	s.Helper()
	s.apply(manifest)
	s.Cleanup(func() {
		if _, err := the.Kubectl(s.ctx, "", "delete", kind, name, "--ignore-not-found"); err != nil {
			s.Error(err)
		}
	})
}

// clusterEnforced waits until the condition Enforced of a policy for nodes is true.
func (s *scenario) clusterEnforced(name string) {
	s.Helper()
	s.clusterCondition(soon, name, "True", "", "")
}

// clusterCondition waits until the condition Enforced of a policy for nodes has, for its generation, a status,
// a reason unless it is "", and a message with a text.
func (s *scenario) clusterCondition(within time.Duration, name, status, reason, text string) {
	s.Helper()
	s.eventually(within, "the condition Enforced of "+name, func() error {
		var p conditioned
		fatal.If(s, json.Unmarshal([]byte(s.kubectl("get", "nnp", name, "-o", "json")), &p))
		if c := p.find("Enforced"); string(c.Status) == status && (reason == "" || c.Reason == reason) && strings.Contains(c.Message, text) {
			return nil
		}
		return fmt.Errorf("conditions %+v", p.Status.Conditions)
	})
}
