package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/process"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	// scalePolicies are in so many namespaces as the cluster has, as are the pods of this and of other nodes.
	scalePolicies, remotePods = 1000, 5000
	// scaleTurns is how often each change of scale is made.
	scaleTurns = 5
)

var scaleState = fmt.Sprintf("%d pods, %d NetworkPolicies in both directions, %d pods of other nodes", maxPods, scalePolicies, remotePods)

// scaleChanges are manifests that change with the turn.
var scaleChanges = []struct {
	name     string
	manifest func(turn int) string
}{
	{"a policy", func(turn int) string { return scalePolicy(77, turn) }},
	{"a remote pod", func(turn int) string { return remotePod(777, turn) }},
	{"a pod", func(turn int) string { return localPod(33, turn) }},
}

// scale measures an agent that enforces NetworkPolicies alone in a large cluster: its memory after the start and
// after changes, and how long each of these takes from the write of its file, of which manifest.QuietDelay is a wait.
func (b *bench) scale(dataplane, state string) {
	n := b.newNode("scale-", dataplane, true)
	files := map[string]string{}
	for _, c := range scaleChanges {
		files[c.name+".yaml"] = c.manifest(0)
	}
	all := func(number, but int, manifest func(i, turn int) string) string { // each change has a file of its own
		var b strings.Builder
		for i := range number {
			if i != but {
				b.WriteString(manifest(i, 0))
			}
		}
		return b.String()
	}
	files["policies.yaml"], files["remote.yaml"], files["local.yaml"] = all(scalePolicies, 77, scalePolicy), all(remotePods, 777, remotePod), all(maxPods, 33, localPod)
	for i := range namespaces {
		files["namespaces.yaml"] += fmt.Sprintf("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ns-%d, labels: {team: team-%d}}\n", i, i%7)
	}
	b.enforce(n, files, func(s lab.Status) bool { return s.InSync && len(s.Problems) == 0 && s.Enforcer.Selected == maxPods }, "--node-name", "node-a", "--enforce-network-policies")
	b.memory(n, scaleState+", started"+state)
	for _, c := range scaleChanges {
		pid, err := process.Listener(n.agent.Socket())
		fatal.If(b, err)
		before, err := process.Whole(pid)
		fatal.If(b, err)
		var took []float64
		for turn := range scaleTurns {
			began := time.Now()
			fatal.If(b, n.agent.Apply(map[string]string{c.name + ".yaml": c.manifest(turn + 1)}))
			took = append(took, time.Since(began).Seconds()*1e3)
		}
		used, err := process.Whole(pid)
		fatal.If(b, err)
		b.Note("scale.change_ms, %s: %.0f, with %s of a core each", c.name, took, (used-before)/scaleTurns)
		b.Report(figure.Figure{Name: "scale.change_ms", Value: figure.Median(took), Unit: "ms", State: scaleState + ", " + c.name + state}, 0)
	}
	b.memory(n, scaleState+", changed"+state)
}

// scalePolicy is a NetworkPolicy of a number in both directions, whose first port is of the turn.
func scalePolicy(i, turn int) string {
	app, team, selector := i/namespaces, i%7, "{}"
	if i%4 > 0 {
		selector = fmt.Sprintf("{matchLabels: {app: app-%d}}", app%groups)
	}
	rules := func(peers string, tier int) string {
		return fmt.Sprintf(`
  - %[1]s: [{podSelector: {matchLabels: {app: app-%[2]d, tier: tier-%[6]d}}}]
    ports: [{port: %[3]d}]
  - %[1]s:
    - {namespaceSelector: {matchLabels: {team: team-%[4]d}}, podSelector: {matchLabels: {app: app-%[2]d, tier: tier-%[5]d}}}
    - {namespaceSelector: {matchLabels: {team: team-3}}, podSelector: {matchLabels: {number: "%[7]d"}}}
  - %[1]s: [{namespaceSelector: {matchLabels: {team: team-%[4]d}}, podSelector: {matchLabels: {app: app-%[2]d}}}]
    ports: [{port: http}]
  - %[1]s: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8, 169.254.169.254/32]}}]`, peers, app, 5000+i%10+turn%2*10, team, i%3, tier, i)
	}
	return fmt.Sprintf(`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: policy-%04d, namespace: ns-%d}
spec:
  podSelector: %s
  policyTypes: [Egress, Ingress]
  egress:%s
  ingress:%s
`, i, i%namespaces, selector, rules("to", i%3), rules("from", (i+1)%3))
}

// remotePod is a pod of another node, whose app is of the turn.
func remotePod(i, turn int) string {
	return podManifest(fmt.Sprintf("far-%d", i), "far", i, i/namespaces%20+turn%2, fmt.Sprintf("[{ip: 10.9.%d.%d}]", i>>8, i&255))
}

// localPod is a pod of this node, whose app is of the turn.
func localPod(i, turn int) string {
	a4, a6 := podAddrs(i)
	return podManifest(fmt.Sprintf("pod-%d", i), "node-a", i, i/namespaces%groups+turn%2, fmt.Sprintf("[{ip: %s}, {ip: %s}]", a4, a6))
}

func podManifest(name, node string, i, app int, addrs string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: ns-%[2]d, uid: uid-%[1]s, labels: {app: app-%[4]d, tier: tier-%[5]d, hash: "%[6]d", number: "%[3]d"}}
spec: {nodeName: %[7]s, containers: [{name: main, image: main, ports: [{name: http, containerPort: %[8]d}]}]}
status: {phase: Running, podIPs: %[9]s}
`, name, i%namespaces, i, app, i%3, i/10, node, 8000+i%10, addrs)
}
