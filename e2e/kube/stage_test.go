package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/testkit/fatal"
)

// nodes are the names of both nodes: pods of the first are routed, pods of the second are
// on a bridge.
var nodes = []string{"node-a", "node-b"}

// raw is an address of the world that no name in the scenarios has.
const raw = "203.0.113.99:80"

// scenario is a test with a namespace of its own.
type scenario struct {
	*testing.T
	ctx context.Context
	ns  string
}

// begin makes the namespace of a scenario. It is deleted after the scenario, which does not wait
// for its end.
func begin(t *testing.T, ns string) *scenario {
	t.Helper()
	s := &scenario{T: t, ctx: context.Background(), ns: ns}
	fatal.If(t, the.CreateNamespace(s.ctx, ns))
	machine := startCanary()
	t.Cleanup(func() {
		saw := machine.end()
		if t.Failed() {
			t.Log(saw)
			s.explain()
		}
		if _, err := the.Kubectl(s.ctx, "", "delete", "namespace", ns, "--wait=false", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	return s
}

// explain logs the state after a failure.
func (s *scenario) explain() {
	for _, args := range [][]string{
		{"get", "pods,fqdnnp", "-A", "-o", "wide"},
		{"logs", "-n", namespace, "-l", agentLabels, "--tail=40", "--prefix"},
		{"get", "events", "-n", s.ns},
	} {
		out, err := the.Kubectl(s.ctx, "", args...)
		s.Logf("kubectl %s (%v)\n%s", strings.Join(args, " "), err, out)
	}
}

// kubectl runs kubectl; it must succeed.
func (s *scenario) kubectl(args ...string) string {
	s.Helper()
	out, err := the.Kubectl(s.ctx, "", args...)
	fatal.If(s, err)
	return out
}

// apply applies manifests in the scenario's namespace.
func (s *scenario) apply(manifests ...string) {
	s.Helper()
	if _, err := the.Kubectl(s.ctx, strings.Join(manifests, ""), "apply", "-n", s.ns, "-f", "-"); err != nil {
		s.Fatal(err)
	}
}

// run applies pods, and what else is given, and waits until all pods are ready.
func (s *scenario) run(manifests ...string) {
	s.Helper()
	s.apply(manifests...)
	s.kubectl("wait", "-n", s.ns, "pod", "--all", "--for=condition=Ready", "--timeout=300s")
}

// eventually waits until f has no error.
func (s *scenario) eventually(within time.Duration, what string, f func() error) {
	s.Helper()
	end := time.Now().Add(within)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%s: not within %v: %v", what, within, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// pod is a manifest of a test pod; args are its program's.
func pod(name, node string, labels map[string]string, args ...string) string {
	if len(args) == 0 {
		args = []string{"sleep"}
	}
	if labels == nil {
		labels = map[string]string{}
	}
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err) // strings can be written
		}
		return string(b)
	}
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: %s}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  enableServiceLinks: false
  containers: [{name: main, image: %q, imagePullPolicy: Never, args: %s}]
`, name, text(labels), node, cluster.PodImage, text(args))
}

// policy is a manifest of an FQDNNetworkPolicy; spec is its YAML in flow style.
func policy(name, spec string) string {
	return fmt.Sprintf("---\napiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: %s}\nspec: %s\n", name, spec)
}

func (s *scenario) ref(name string) cluster.PodRef {
	return cluster.PodRef{Namespace: s.ns, Name: name}
}

// want is the outcome of a connection; several classes mean any of them.
type want []probe.Class

var (
	works  = want{probe.OK}
	denied = want{probe.Refused, probe.Prohibited, probe.Reset}
)

func (w want) has(c probe.Class) bool { return slices.Contains(w, c) }

// expect connects from a pod to an address and returns the error of the outcome.
func (s *scenario) expect(from, network, to string, w want) error {
	d, err := the.Dial(s.ctx, s.ref(from), network, to)
	if err == nil && !w.has(d.Class) {
		err = fmt.Errorf("%s to %s %s: %s (%s), want %v", from, network, to, d.Class, d.Error, w)
	}
	return err
}

// dials connects now and demands an outcome.
func (s *scenario) dials(from, network, to string, w want) {
	s.Helper()
	if err := s.expect(from, network, to, w); err != nil {
		s.Error(err)
	}
}

// gets looks a name up, connects to its addresses, and demands an outcome.
func (s *scenario) gets(from, network, name string, port int, w want) {
	s.Helper()
	if err := s.got(from, network, name, port, w); err != nil {
		s.Error(err)
	}
}

// enforced waits until a policy is in force for a pod: a raw address is denied.
func (s *scenario) enforced(within time.Duration, from string) {
	s.Helper()
	s.eventually(within, "enforcement for "+from, func() error { return s.expect(from, "tcp", raw, denied) })
}

// free waits until nothing is enforced for a pod.
func (s *scenario) free(within time.Duration, from string) {
	s.Helper()
	s.eventually(within, "the end of enforcement for "+from, func() error { return s.expect(from, "tcp", raw, works) })
}

// conditioned is an object with conditions.
type conditioned struct {
	Metadata struct{ Generation int64 }
	Status   struct{ Conditions []metav1.Condition }
}

// find returns the condition of a type that is about the object's generation, the zero one without it.
func (c *conditioned) find(kind string) (found metav1.Condition) {
	for _, has := range c.Status.Conditions {
		if has.Type == kind && has.ObservedGeneration == c.Metadata.Generation {
			found = has
		}
	}
	return found
}

// condition returns status, reason and message of a policy's condition, "" if it
// is not there or is about an older generation.
func (s *scenario) condition(policy, kind string) (status, reason, message string) {
	s.Helper()
	var p conditioned
	fatal.If(s, json.Unmarshal([]byte(s.kubectl("get", "fqdnnp", "-n", s.ns, policy, "-o", "json")), &p))
	c := p.find(kind)
	return string(c.Status), c.Reason, c.Message
}
