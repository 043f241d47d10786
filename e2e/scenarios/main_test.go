// Package scenarios runs the real agent against the real kernel, with real
// packets, and asserts what arrived.
package scenarios

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/short"
)

// agentBinary is the agent under test, built once.
var agentBinary string

// long are the scenarios that -short leaves out: each has labs of many seconds, or a load.
var long = []string{
	"TestAgentStopped", "TestChangedLayout", "TestClockSteps",
	"TestFailsafesOfAClosedNode", "TestFloodEndsNothing", "TestLinkLocalReachesNothing",
	"TestManyPods", "TestNetLostBetweenAgents", "TestNoFirstPacketIsLost", "TestRivalRules", "TestRivals", "TestShareOfARule",
	"TestSwitchOfDataplanes", "TestUnionBeside", "TestUpgrade",
}

// nightly are the scenarios that the tests of a change leave out: each has programs that few machines
// have, real DNS clients, or random worlds.
var nightly = []string{
	"TestApplications", "TestClients", "TestClientsOfTheNode", "TestOpenVSwitch",
	"TestRandomRival", "TestServerNameClients", "TestServerNameRate", "TestSuspendedMachine",
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "namegate-scenarios-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		// Others may run the agent too: it has to tell them that it needs root.
		if err := os.Chmod(dir, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		agentBinary = filepath.Join(dir, "namegate")
		build := exec.Command("go", "build", "-o", agentBinary, "../../cmd/namegate")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the agent: %v\n%s", err, out)
			return 1
		}
		return short.Main(m, short.Lists{Long: long, Nightly: nightly})
	}())
}

// corefile gives the kernel time, so that no answer fails on a busy machine.
const corefile = `
. {
    forward . 192.0.2.53 2001:db8::53
    cluster cluster.local 10.1.0.0/24 10.96.0.0/24 fd00:1::/64 fd00:96::/112
    grant timeout 4s
    audit AUDIT
}
`

// eventLimit bounds waits for what takes the agent seconds: starts, ends of grants.
const eventLimit = 2 * time.Minute

// withLimits returns the Corefile with lines of the block limits; fast ones let a
// pod ask as much as a machine can.
func withLimits(lines string) string {
	return strings.Replace(corefile, "audit AUDIT", "audit AUDIT\n    limits {\n        "+lines+"\n    }", 1)
}

const fast = "rate_per_pod 100000\n        burst_per_pod 100000"

// questions writes what dnsperf is to ask, a name a line, and returns the file.
func (s *stage) questions(count int, name func(i int) string) (file string, err error) {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, "%s A\n", name(i))
	}
	file = filepath.Join(s.agent.Dir, "queries")
	return file, os.WriteFile(file, []byte(b.String()), 0o644)
}

// serve starts echo servers on a host.
func (s *stage) serve(h *lab.Host, ports ...int) *lab.Outside {
	s.t.Helper()
	o, err := h.Serve(ports...)
	fatal.If(s.t, err)
	s.t.Cleanup(o.Close)
	return o
}

// sniff captures what passes an interface of a host.
func (s *stage) sniff(h *lab.Host, iface string) *lab.Sniffer {
	s.t.Helper()
	sniffer, err := h.Sniff(iface)
	fatal.If(s.t, err)
	s.t.Cleanup(sniffer.Close)
	return sniffer
}

// stage is a lab with a world that answers and an agent.
type stage struct {
	*lab.Lab
	t       *testing.T
	outside *lab.Outside
	agent   *lab.Agent
	zone    *zone
	world   *lab.Sniffer // where a test has one
}

// newStage builds a lab with the pods a and b, not yet known to the agent, and
// an agent that is not started.
func newStage(t *testing.T, network lab.Network) *stage {
	t.Helper()
	return newStageOf(t, nodeKind{network: network})
}

// newStageOf is newStage for a kind of node.
func newStageOf(t *testing.T, kind nodeKind) *stage {
	t.Helper()
	l, err := lab.New(kind.network)
	fatal.If(t, err)
	l.Dataplane = kind.dataplane
	s := &stage{Lab: l, t: t, zone: newZone()}
	t.Cleanup(func() {
		if s.outside != nil {
			s.outside.Close()
		}
		if err := l.Remove(); err != nil {
			t.Error(err)
		}
	})
	s.addPod("a", 5)
	s.addPod("b", 6)
	if s.outside, err = l.ServeWorld(s.zone.answer, 80, 81, 443, 8080); err != nil {
		t.Fatal(err)
	}
	s.agentWith(corefile, kind.args()...)
	return s
}

// agentWith prepares an agent with a Corefile and arguments in the place of the stage's.
func (s *stage) agentWith(corefile string, args ...string) {
	s.t.Helper()
	var err error
	s.agent, err = s.NewAgent(agentBinary, s.t.TempDir(), corefile, args...)
	fatal.If(s.t, err)
}

// run runs a program on a host, which must succeed, and returns what it printed.
func run(t *testing.T, h *lab.Host, program string, args ...string) string {
	t.Helper()
	out, err := h.Run(program, args...)
	fatal.If(t, err)
	return out
}

// xtables runs a command line of iptables on the node for both families.
func (s *stage) xtables(line string) {
	s.t.Helper()
	for _, program := range []string{"iptables", "ip6tables"} {
		run(s.t, s.Node, program, strings.Fields(line)...)
	}
}

func (s *stage) addPod(name string, n int) *lab.Pod {
	s.t.Helper()
	p, err := s.AddPod(name, n)
	fatal.If(s.t, err)
	return p
}

// start starts the agent with manifests; it is killed at the end.
func (s *stage) start(files map[string]string) {
	s.t.Helper()
	fatal.If(s.t, s.Ready())
	s.startNow(files)
}

// startClient starts the agent with a policy and the pod a, which has the label app: client.
func (s *stage) startClient(policy string) {
	s.t.Helper()
	s.start(map[string]string{"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}), "p.yaml": policy})
}

// startNow is start on a node that need not reach its pods.
func (s *stage) startNow(files map[string]string) {
	s.t.Helper()
	fatal.If(s.t, s.agent.Write(files))
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("the agent's log:\n%s", s.agent.Log())
		}
		if err := s.agent.Stop(syscall.SIGKILL); err != nil {
			s.t.Error(err)
		}
	})
	fatal.If(s.t, s.agent.Start())
}

func (s *stage) apply(files map[string]string) {
	s.t.Helper()
	fatal.If(s.t, s.agent.Apply(files))
}

// expect probes from a pod and asserts the outcome.
func (s *stage) expect(pod, network, to string, want lab.Outcome) {
	s.t.Helper()
	diff.Equal(s.t, want, s.Pod(pod).ProbeFor(network, netip.MustParseAddrPort(to), lab.PatienceFor(want)), "pod", pod, "to", network, to)
}

// resolve asks the world's resolver from a pod and returns the addresses.
func (s *stage) resolve(pod, name string, qtype uint16) []netip.Addr {
	s.t.Helper()
	r, err := s.ask(pod, "udp", name, qtype)
	fatal.If(s.t, err, "pod", pod, "asks for", name)
	return lab.Addresses(r)
}

// resolver is the address of the world's resolver that pods ask.
var resolver = netip.AddrPortFrom(lab.Resolver4, 53)

func (s *stage) ask(pod, network, name string, qtype uint16) (*dns.Msg, error) {
	return s.Pod(pod).Ask(network, resolver, name, qtype, lab.Limit)
}

// askAgain asks by UDP as a stub resolver does: a query without a reply for a second is sent again.
func (s *stage) askAgain(pod, name string, qtype uint16) (*dns.Msg, error) {
	c, err := s.Pod(pod).Dial("udp", resolver.String(), lab.Limit)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	const patience = time.Second
	for until := time.Now().Add(lab.Limit); ; {
		r, err := lab.Exchange(c, name, qtype, patience)
		if err == nil || time.Now().After(until) {
			return r, err
		}
	}
}

// policy renders an FQDNNetworkPolicy; spec is indented YAML below spec.
func policy(name, spec string) string {
	return "apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: " + name + ", namespace: shop}\nspec:\n  " +
		strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ") + "\n"
}
