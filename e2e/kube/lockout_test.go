package kube

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// closed is the name of the policy that denies a node everything.
func closed(node string) string { return "closed-" + node }

// closes is a policy that denies a node everything, in both directions by every interface, but the port of
// kubectl namegate. It has a safeguard.
func closes(node string) string {
	return `{nodeSelector: ` + hostname(node) + `, priority: 1, interfaces: ["*"], safeguard: {confirmWithin: 1m}, ` +
		`ingress: [{action: Accept, ports: [{protocol: TCP, port: 9954}]}, {action: Deny}], egress: [{name: everything, action: Deny}]}`
}

// traffics are what policies for nodes judge.
var traffics = []string{"Local", "Forwarded", "BeforeNAT", "Untracked"}

// shut denies nodes everything of traffics in both directions by interfaces, which are YAML as the selector is.
func (s *scenario) shut(selector, interfaces string, traffics ...string) {
	s.Helper()
	name := func(traffic string) string { return "shut-" + strings.ToLower(traffic) }
	for _, traffic := range traffics {
		egress := ", egress: [{action: Deny}]"
		if traffic == "BeforeNAT" {
			egress = ""
		}
		s.administrate(name(traffic), fmt.Sprintf("{nodeSelector: %s, priority: 2, traffic: %s, interfaces: %s, ingress: [{action: Deny}]%s}", selector, traffic, interfaces, egress))
	}
	for _, traffic := range traffics {
		s.clusterEnforced(name(traffic))
	}
}

// hostname is a selector of a node.
func hostname(node string) string {
	return "{matchLabels: {kubernetes.io/hostname: " + node + "}}"
}

// testLockout: nodes that are denied everything stay nodes of the cluster, whatever changes about
// them, and their administrators can end the policy: with an unconfirmed safeguard, on the node
// itself.
func testLockout(t *testing.T) {
	s := begin(t, "lockout")
	s.run(lockoutManifests()...)
	s.loaded()
	since := time.Now()
	for _, n := range nodes {
		s.administrate(closed(n), closes(n))
	}
	s.confirm("node-a")
	s.clusterCondition(soon, closed("node-a"), "True", "NoBlindSpot", "")
	s.clusterCondition(soon, closed("node-b"), "True", "Unconfirmed", confirmCommand("node-b"))
	ready := s.restarts()
	t.Run("clock", func(t *testing.T) { s.on(t).clocksSet(since) })
	t.Run("upgrade", func(t *testing.T) { s.on(t).upgraded(since) })
	fatal.If(t, s.backend("node-a", works, works)) // no rule names the ranges of pods and Services
	t.Run("seen", func(t *testing.T) { s.on(t).closedSeen("node-a") })
	s.extend()
	stop := s.apiServerOnNode(the.Node("node-a"))
	t.Run("control plane", func(t *testing.T) { s.on(t).controlPlaneClosed(the.Node("node-a")) })
	s.administrate("ranges", `{nodeSelector: {}, priority: 0, egress: [{action: Deny, networks: [10.244.0.0/16, "fd00:244::/48", 10.96.0.0/16, "fd00:96::/112"]}]}`)
	t.Run("ranges", func(t *testing.T) {
		s.on(t).rangesDenied()
		s.on(t).extensionsDenied(the.Node("node-a"))
	})
	stop()
	t.Run("safeguard", func(t *testing.T) { s.on(t).safeguarded() })
	for _, n := range []string{"node-b", "node-a"} {
		s.shut(hostname(n), `["*"]`, traffics[1:]...)
		t.Run("shut "+n, func(t *testing.T) { s.on(t).shutWorks(n) })
	}
	t.Run("probes", func(t *testing.T) {
		diff.Equal(t, ready, s.on(t).restarts(), "restarts of probed pods")
	})
	t.Run("cleanup", func(t *testing.T) { s.on(t).cleanedUp(the.Node("node-a")) })
}

// probes are probes of the kubelet, by the words of the test pods' program that serve them.
var probes = map[string]struct{ serve, probe string }{
	"http": {`[serve, http, "8080"]`, "{httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 1}"},
	"tcp":  {`[serve, tcp, "8080"]`, "{tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 1}"},
	"grpc": {`[health, "8080"]`, "{grpc: {port: 8080}, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 1}"},
}

// lockoutManifests are pods with every kind of probe on both nodes, and a Service of a pod on node-b.
func lockoutManifests() (manifests []string) {
	for _, n := range nodes {
		manifests = append(manifests, pod("own-"+n, n, nil))
		for kind, p := range probes {
			plain := pod(kind+"-"+n, n, map[string]string{"probed": kind + "-" + n})
			manifests = append(manifests, strings.Replace(plain, `args: ["sleep"]`, fmt.Sprintf("args: %s, livenessProbe: %s, readinessProbe: %s", p.serve, p.probe, p.probe), 1))
		}
	}
	return append(manifests, `---
apiVersion: v1
kind: Service
metadata: {name: backend}
spec:
  selector: {probed: http-node-b}
  ipFamilyPolicy: RequireDualStack
  ports: [{port: 8080}]
`)
}

// restarts returns the restarts of the probed pods' containers and the start of each one that runs.
func (s *scenario) restarts() string {
	s.Helper()
	return s.kubectl("get", "pods", "-n", s.ns, "-l", "probed", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].state.running.startedAt}{"\n"}{end}`)
}

func confirmCommand(node string) string {
	return "kubectl annotate nnp " + closed(node) + " namegate.io/confirmed=1"
}

// confirm confirms the first generation of a node's policy.
func (s *scenario) confirm(node string) {
	s.Helper()
	s.kubectl("annotate", "nnp", closed(node), "namegate.io/confirmed=1", "--overwrite")
}

// upgraded: an upgrade to another image loses no query, and the page goes on. Nodes work, and are
// denied everything else, at every moment of it. The time of node-b ends a minute after since at the
// earliest: an agent that starts does not end it.
func (s *scenario) upgraded(since time.Time) {
	for _, n := range the.Nodes {
		fatal.If(s, n.Tag(imageName+":"+*imageTag, imageName+":next"))
	}
	page := s.page()
	page.follow()
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, n := range nodes {
				err := s.hostDialled(n, raw, denied)
				if err != nil && (n == "node-a" || time.Since(since) < time.Minute) {
					s.Error(err)
				}
				if err := s.nodeWorks(n); err != nil {
					s.Error(err)
				}
			}
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	s.replaced("helm upgrade", func() { s.helm("--set-string", "image.tag=next") })
	close(over)
	<-done
	s.eventually(patient, "the agents", s.agentsReady)
	page.arrives("after the upgrade", 20000)
}

// closedSeen: the audit log has the users of a node's denied connections, explain names the rule,
// and status the failsafes.
func (s *scenario) closedSeen(n string) {
	const to = "203.0.113.98"
	dial := func() {
		_, _ = the.Node(n).Run("setpriv", "--reuid=4242", "--regid=4243", "--clear-groups", "bash", "-c", "</dev/tcp/"+to+"/80")
	}
	s.eventually(soon, "the line of a denied connection of "+n, func() error {
		dial()
		out, code, err := s.namegate("audit", "-A", "--node", n, "--kind", "flow", "--verdict", "denied", "-o", "json")
		if code != 0 {
			return err
		}
		found := false
		err = audit.Read(strings.NewReader(out), func(l audit.Line) error {
			h, d := l.Host, l.Destination
			found = found || h != nil && h.UID != nil && *h.UID == 4242 && h.GID != nil && *h.GID == 4243 && d != nil && d.Address == to
			return nil
		}, nil)
		if err == nil && !found {
			err = fmt.Errorf("no line of user 4242 in\n%s", out)
		}
		return err
	})
	e := told[explain.Explanation](s, 1, "explain", "node/"+n, raw)
	if e.Verdict != explain.Denied || !strings.Contains(e.Reason, closed(n)) || !strings.Contains(e.Reason, "everything") {
		s.Errorf("explained as %s: %s", e.Verdict, e.Reason)
	}
	if e := told[explain.Explanation](s, 0, "explain", "node/"+n, cluster.APIServer.String()); e.Verdict != explain.Allowed || !strings.Contains(e.Reason, "failsafe") {
		s.Errorf("the API server is explained as %s: %s", e.Verdict, e.Reason)
	}
	out, _, _ := s.namegate("status", "--node", n)
	for _, text := range []string{"failsafe", cluster.APIServer.Addr().String(), cluster.Resolver4.String()} {
		if !strings.Contains(out, text) {
			s.Errorf("status of %s does not say %s:\n%s", n, text, out)
		}
	}
}

// backend connects from a node to a pod of node-b and to its Service, over both families, and
// returns the error of another outcome.
func (s *scenario) backend(from string, pods, services want) error {
	v := s.served()
	if len(v.pods["http-node-b"]) != 2 || len(v.services["backend"]) != 2 {
		return fmt.Errorf("the backend has %v", v)
	}
	for i := range 2 {
		for a, w := range map[string]want{v.pods["http-node-b"][i]: pods, v.services["backend"][i]: services} {
			if err := s.outcome(from, net.JoinHostPort(a, "8080"), w); err != nil {
				return err
			}
		}
	}
	return nil
}

// rangesDenied: a rule that names the ranges of pods and Services closes them, as API servers reach
// webhooks and aggregated APIs, to nodes. The cluster works without. What is dialled by a Service cannot be
// rejected.
func (s *scenario) rangesDenied() {
	s.eventually(soon, "pods and Services are denied to node-a", func() error { return s.backend("node-a", denied, silent) })
	for _, n := range nodes {
		if err := s.nodeWorks(n); err != nil {
			s.Error(err)
		}
		s.gets("own-"+n, "tcp", "www.example.org", 80, works)
	}
}

// safeguarded: an unconfirmed policy only audits after its time, also if the agent was upgraded in
// it, until it is confirmed. A confirmed one stays.
func (s *scenario) safeguarded() {
	s.eventually(2*time.Minute, "the safeguard of node-b", func() error { return s.hostDialled("node-b", raw, works) })
	s.clusterCondition(soon, closed("node-b"), "False", "TurnedToAudit", confirmCommand("node-b"))
	s.clusterCondition(soon, closed("node-b"), "False", "TurnedToAudit", "node-b")
	s.hostDials("node-a", raw, denied)
	s.confirm("node-b")
	s.eventually(soon, "the confirmed policy on node-b", func() error { return s.hostDialled("node-b", raw, denied) })
	s.clusterCondition(soon, closed("node-b"), "True", "NoBlindSpot", "")
}

// shutWorks: a node that is denied everything of every traffic is a node of the cluster. Its programs, the API server,
// which is no Node, administrators and the other node reach what they need, and no more, and its pods are answered.
func (s *scenario) shutWorks(n string) {
	s.clusterCondition(soon, closed(n), "True", "NoBlindSpot", "")
	fatal.If(s, s.nodeWorks(n))
	other, client := nodes[0], "b"
	if n == other {
		other, client = nodes[1], "a"
	}
	refused := want{probe.Refused} // by the host: no program serves there
	var tries []func() error
	dials := func(to string, port uint16, from string, w want) {
		for i, a := range fields(s.kubectl("get", "node", to, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)) {
			tries = append(tries, func() error {
				return s.outcome(strings.Replace(from, outside[0], outside[i], 1), net.JoinHostPort(a, fmt.Sprint(port)), w)
			})
		}
	}
	for _, ends := range [][2]string{{n, other}, {other, n}} {
		dials(ends[0], 10250, "host-"+ends[1], works)
		dials(ends[0], 2379, "host-"+ends[1], refused)
		dials(ends[0], 10249, "host-"+ends[1], closedTo)
	}
	dials(n, 22, outside[0], refused)
	dials(n, 10250, outside[0], silent)
	for i := range 4 {
		tries = append(tries, func() error {
			a, err := the.Lookup(s.ctx, s.ref(client), fmt.Sprintf("10-0-%d-%d.%s.pod.cluster.local.", i, time.Now().Second(), s.ns), "A", "")
			if err == nil && len(a.Addrs) != 1 {
				err = fmt.Errorf("%s is answered %+v", client, a)
			}
			return err
		})
	}
	fatal.If(s, atOnce(tries))
	_, err := the.Node(n).Run("getent", "ahostsv4", "www.example.org")
	fatal.If(s, err)
}

// cleanedUp: without an agent and without the API server, one command on the node frees it.
func (s *scenario) cleanedUp(n *cluster.Node) {
	if err := n.Cleanup(); err == nil || !strings.Contains(err.Error(), "agent") {
		s.Errorf("cleanup beside a running agent: %v", err)
	}
	s.hostDials(n.Name, raw, closedTo)
	fatal.If(s, n.StopKubelet())
	s.Cleanup(func() {
		fatal.If(s, n.RestartKubelet(cluster.DNS4))
		s.eventually(patient, "the agents", s.agentsReady)
	})
	fatal.If(s, n.KillContainers(s.ctx, "agent"))
	s.hostDials(n.Name, raw, closedTo)
	fatal.If(s, n.Cleanup())
	s.hostDials(n.Name, raw, works)
	if err := clean(n); err != nil {
		s.Error(err)
	}
	fatal.If(s, n.RestartKubelet(cluster.DNS4))
	s.eventually(patient, "the policy on "+n.Name+" again", func() error { return s.hostDialled(n.Name, raw, closedTo) })
	s.eventually(soon, "the kubelet's pods", func() error { return s.nodeWorks(n.Name) })
}

// clockSteps is how far the clocks of agents are set.
var clockSteps = []time.Duration{time.Hour, -time.Hour}

// clocksSet: agents whose clocks are set by an hour, forward and back, enforce what is confirmed and what is
// not: the time of an unconfirmed policy, which ends a minute after since at the earliest, goes on as
// before. It ends in time after the agents were replaced.
func (s *scenario) clocksSet(since time.Time) {
	var clocks []*lab.Clock
	for _, n := range nodes {
		pid, err := the.Node(n).Process("namegate agent ")
		fatal.If(s, err)
		c, err := lab.ClockOf(pid)
		if errors.Is(err, lab.ErrNoClock) || errors.Is(err, os.ErrPermission) {
			s.Skipf("the agents cannot be given clocks of their own: %v", err)
		}
		fatal.If(s, err)
		defer c.Close()
		clocks = append(clocks, c)
	}
	for _, ahead := range clockSteps {
		for _, c := range clocks {
			fatal.If(s, c.Step(ahead))
		}
		// Safeguards are compared with the clock each second.
		for begin := time.Now(); time.Since(begin) < 3*time.Second; time.Sleep(500 * time.Millisecond) {
			for _, n := range nodes {
				if err := s.hostDialled(n, raw, denied); err != nil && (n == "node-a" || time.Since(since) < time.Minute) {
					s.Fatalf("the clock is set by %v: %v", ahead, err)
				}
			}
		}
		for _, n := range nodes {
			if err := s.nodeWorks(n); err != nil {
				s.Errorf("the clock is set by %v: %v", ahead, err)
			}
		}
		s.clusterCondition(soon, closed("node-a"), "True", "NoBlindSpot", "")
	}
	if passed := time.Since(since); passed > time.Minute {
		s.Logf("node-b was looked at after its time, %v", passed)
	}
}
