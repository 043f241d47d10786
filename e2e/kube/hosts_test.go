package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/testkit/fatal"
)

// onHost makes a manifest of a pod one on the host network.
func onHost(manifest string) string {
	return strings.Replace(manifest, "spec:\n", "spec:\n  hostNetwork: true\n", 1)
}

// testHosts: policies for nodes hold on both nodes: what they allow by name works, and nothing
// else. They lock nothing out that the cluster needs.
func testHosts(t *testing.T) {
	s := begin(t, "hosts")
	var pods []string
	for _, n := range nodes {
		pods = append(pods, pod("own-"+n, n, nil), onHost(pod("host-"+n, n, nil)))
	}
	s.run(pods...)
	for _, n := range nodes {
		s.hostDials(n, raw, works)
		fatal.If(t, the.Node(n).Pull(registry))
	}
	s.administrate("hosts", `{nodeSelector: {}, priority: 1, egress: [{name: images, action: Accept, matches: [{name: registry.test}], ports: [{protocol: TCP, port: 5000}]}, {action: Deny}]}`)
	s.clusterEnforced("hosts")
	for _, n := range nodes {
		t.Run(n, func(t *testing.T) { s.on(t).hostHeld(n) })
	}
	t.Run("restart", func(t *testing.T) {
		s := s.on(t)
		var restarts errgroup.Group
		for _, n := range the.Nodes {
			restarts.Go(func() error { return n.Restart(s.ctx, cluster.DNS4) })
		}
		fatal.If(t, restarts.Wait())
		for _, n := range nodes {
			s.hostDials(n, raw, denied) // before its agent runs
		}
		for _, n := range nodes {
			s.eventually(patient, "the restart of the pods of "+n, func() error {
				out, err := the.Kubectl(s.ctx, "", "get", "pod", "-n", s.ns, "own-"+n, "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
				if err == nil && out != "1" {
					err = fmt.Errorf("%s restarts", out)
				}
				return err
			})
			s.eventually(patient, n+" after its restart", func() error { return s.nodeWorks(n) })
		}
		s.eventually(patient, "the agents", s.agentsReady)
		for _, n := range nodes {
			s.hostHeld(n)
		}
	})
	t.Run("example", func(t *testing.T) { s.on(t).hostExample() })
	s.kubectl("delete", "nnp", "hosts", "--ignore-not-found")
	for _, n := range nodes {
		s.eventually(soon, "the end of the policy on "+n, func() error { return s.hostDialled(n, raw, works) })
	}
}

// registry and strange are images of the world's registry by an allowed name and by another.
var (
	registry = fmt.Sprintf("registry.test:%d/tiny:1", cluster.RegistryPort)
	strange  = fmt.Sprintf("elsewhere.test:%d/tiny:1", cluster.RegistryPort)
)

// hostDialled connects from a node itself and returns the error of another outcome.
func (s *scenario) hostDialled(node, to string, w want) error {
	return s.outcome("host-"+node, to, w)
}

func (s *scenario) hostDials(node, to string, w want) {
	s.Helper()
	if err := s.hostDialled(node, to, w); err != nil {
		s.Error(err)
	}
}

// hostHeld: the policy holds for processes of a node and for its pods on the host network, and
// what the cluster needs goes on.
func (s *scenario) hostHeld(n string) {
	s.Helper()
	s.eventually(soon, "an image by an allowed name on "+n, func() error { return the.Node(n).Pull(registry) })
	if err := the.Node(n).Pull(strange); err == nil {
		s.Errorf("%s pulls an image by a name that no rule accepts", n)
	}
	for _, to := range []string{raw, "[2001:db8::99]:80"} {
		s.hostDials(n, to, denied)
		s.dials("host-"+n, "tcp", to, denied)
		s.dials("own-"+n, "tcp", to, works)
	}
	s.gets("own-"+n, "tcp", "www.example.org", 80, works) // by the cluster's DNS
	if err := s.nodeWorks(n); err != nil {
		s.Error(err)
	}
}

// nodeWorks tells whether the API server and a node reach each other in every direction.
func (s *scenario) nodeWorks(n string) error {
	out, err := the.Kubectl(s.ctx, "", "get", "node", n, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	if err == nil && out != "True" {
		err = fmt.Errorf("%s is not ready: %s", n, out)
	}
	if err != nil {
		return err
	}
	if _, err := the.Kubectl(s.ctx, "", "logs", "-n", s.ns, "own-"+n); err != nil {
		return err
	}
	if _, err := the.Dial(s.ctx, s.ref("own-"+n), "tcp", raw); err != nil { // kubectl exec
		return err
	}
	return s.forwards("own-" + n)
}

var forwarding = regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+)`)

// forwards tells whether kubectl port-forward reaches a pod. The pod's program serves no port:
// the kubelet's refusal comes from the pod's network.
func (s *scenario) forwards(name string) error {
	ctx, cancel := context.WithTimeout(s.ctx, soon)
	defer cancel()
	cmd := the.Client(ctx, the.Tool("kubectl"), "port-forward", "-n", s.ns, name, ":9")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return err
	}
	err = func() error {
		line, err := bufio.NewReader(out).ReadString('\n')
		at := forwarding.FindStringSubmatch(line)
		if at == nil {
			return fmt.Errorf("kubectl port-forward %s says %q: %w", name, line, err)
		}
		c, err := the.DialControl(ctx, "tcp", "127.0.0.1:"+at[1])
		if err != nil {
			return err
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 1)) // until the kubelet has ended it
		return nil
	}()
	_ = cmd.Process.Kill()
	var ended *exec.ExitError
	if waited := cmd.Wait(); waited != nil && !errors.As(waited, &ended) {
		return errors.Join(err, waited)
	}
	if err == nil && !strings.Contains(said.String(), "refused") {
		err = fmt.Errorf("kubectl port-forward %s did not reach the pod: %s", name, said.String())
	}
	return err
}

// agentsReady tells whether every agent is ready.
func (s *scenario) agentsReady() error {
	out, err := the.Kubectl(s.ctx, "", "get", "daemonset", "-n", namespace, release, "-o", "jsonpath={.status.numberReady}/{.status.desiredNumberScheduled}/{.status.updatedNumberScheduled}")
	if err == nil && out != fmt.Sprintf("%[1]d/%[1]d/%[1]d", len(nodes)) {
		err = fmt.Errorf("agents ready %s", out)
	}
	return err
}

// hostExample: the policy of docs/nodes.md, enforced, lets the programs of a node reach what its
// names say, and nothing else.
func (s *scenario) hostExample() {
	text, err := os.ReadFile("../../examples/nodes.yaml")
	fatal.If(s, err)
	s.kubectl("delete", "nnp", "hosts", "--ignore-not-found")
	for _, n := range nodes { // the policy before denies the same
		s.eventually(soon, "the end of the policy on "+n, func() error { return s.hostDialled(n, raw, works) })
	}
	_, err = the.Kubectl(s.ctx, strings.Replace(string(text), "enforcement: Audit", "enforcement: Enforce", 1), "apply", "-f", "-")
	fatal.If(s, err)
	defer s.kubectl("delete", "nnp", "nodes")
	for _, n := range nodes {
		s.eventually(soon, "the example on "+n, func() error { return s.hostDialled(n, raw, denied) })
		for to, w := range map[string]want{
			"registry.example.org:443": works, "blobs.registry.example.org:443": works, "updates.example.org:80": works,
			"registry.example.org:80": denied, "other.example.org:443": denied,
		} {
			name, port, _ := strings.Cut(to, ":")
			out, err := the.Node(n).Run("getent", "ahostsv4", name)
			if err != nil {
				s.Errorf("%s looks up %s: %v", n, name, err)
				continue
			}
			s.hostDials(n, strings.Fields(out)[0]+":"+port, w)
		}
		if err := s.nodeWorks(n); err != nil {
			s.Error(err)
		}
	}
}
