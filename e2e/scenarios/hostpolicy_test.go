package scenarios

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// hostNode is the Node object of the lab's node.
const hostNode = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1, labels: {role: edge}}\n"

// hostPolicy is a policy for the node; egress is YAML in flow style.
func hostPolicy(egress string) string {
	return fmt.Sprintf("apiVersion: namegate.io/v1alpha1\nkind: NodeNetworkPolicy\nmetadata: {name: hosts}\nspec: {nodeSelector: {matchLabels: {role: edge}}, priority: 1, egress: %s}\n", egress)
}

// newHostStage is newStageOf with an agent that enforces policies for its node, and lines in its Corefile.
func newHostStage(t *testing.T, kind nodeKind, lines string) *stage {
	t.Helper()
	s := newStageOf(t, kind)
	s.hostAsks(lab.Resolver4, lab.Resolver6)
	file := filepath.Join(s.agent.Dir, "Corefile")
	text, err := os.ReadFile(file)
	fatal.If(t, err)
	fatal.If(t, os.WriteFile(file, []byte(strings.Replace(string(text), "grant timeout", lines+"\n    grant timeout", 1)), 0o644))
	s.agent.Use(agentBinary, append(kind.args(), "--nodes", "--node-name", "node-1", "--resolv-conf", filepath.Join(s.agent.Dir, "resolv.conf"))...)
	return s
}

// hostAsks writes the resolvers of the host.
func (s *stage) hostAsks(resolvers ...netip.Addr) {
	s.t.Helper()
	text := ""
	for _, r := range resolvers {
		text += fmt.Sprintf("nameserver %s\n", r)
	}
	fatal.If(s.t, os.WriteFile(filepath.Join(s.agent.Dir, "resolv.conf"), []byte(text), 0o644))
}

// hostExpects probes from the node and asserts the outcome.
func (s *stage) hostExpects(network, to string, want lab.Outcome) {
	s.t.Helper()
	diff.Equal(s.t, want, s.Node.ProbeFor(network, netip.MustParseAddrPort(to), lab.PatienceFor(want)), "the node to", network, to)
}

// TestHostPolicy: a policy for the node judges the connections of its own sockets and no other
// packets, stays in force without an agent, and leaves nothing when it goes.
func TestHostPolicy(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newHostStage(t, kind, "")
		pod := s.Pod("a")
		s.serve(pod.Host, 80)
		s.serve(s.Node, 8080)
		s.start(map[string]string{"node.yaml": hostNode, "a.yaml": pod.Manifest("shop", "a", nil)})
		raw := []string{"198.51.100.1:80", "[2001:db8:1::1]:80"}
		both := func(when string, want lab.Outcome) {
			t.Helper()
			for _, to := range raw {
				for _, network := range []string{"tcp", "udp"} {
					s.hostExpects(network, to, want)
				}
				s.expect("a", "tcp", to, lab.Answered)
			}
			if t.Failed() {
				t.Fatal(when)
			}
		}
		both("without a policy", lab.Answered)
		s.apply(map[string]string{"policy.yaml": hostPolicy(`[{action: Accept, networks: [198.51.100.2/32, "2001:db8:1::2/128"], ports: [{protocol: TCP, port: 80}]}, {action: Deny}]`)})
		both("by the policy", lab.Refused)
		s.hostExpects("tcp", "198.51.100.2:80", lab.Answered)
		s.hostExpects("tcp", "[2001:db8:1::2]:80", lab.Answered)
		s.hostExpects("tcp", "198.51.100.2:81", lab.Refused)
		s.says(1, "NodeNetworkPolicy hosts (spec.egress[1]) denies 198.51.100.1|interface |Local Deny by", "explain", "node/node-1", "198.51.100.1:80")
		s.says(0, "no rule of a policy for nodes denies 198.51.100.1", "explain", "node/node-1", "8080", "--from", "198.51.100.1")
		// Failsafes: the pods of the node, and the resolvers of the host.
		s.hostExpects("tcp", netip.AddrPortFrom(pod.Addr4, 80).String(), lab.Answered)
		s.hostExpects("tcp", netip.AddrPortFrom(pod.Addr6, 80).String(), lab.Answered)
		for _, r := range []netip.Addr{lab.Resolver4, lab.Resolver6} {
			c, err := s.Node.Dial("tcp", netip.AddrPortFrom(r, 53).String(), lab.Limit)
			if err != nil {
				t.Errorf("the node to its resolver: %v", err)
				continue
			}
			c.Close()
		}
		s.hostExpects("tcp", "127.0.0.1:8080", lab.Answered)
		fatal.If(t, s.agent.Upgrade())
		both("by the next agent", lab.Refused)
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		both("without an agent", lab.Refused)
		fatal.If(t, s.agent.Begin())
		both("while an agent starts", lab.Refused)
		fatal.If(t, s.agent.WaitFor("its policies", func(st lab.Status) bool { return st.InSync && st.Enforcer.Intercepting }))
		both("by an agent that started", lab.Refused)
		s.apply(map[string]string{"policy.yaml": ""})
		both("without the policy", lab.Answered)
		rules := run(t, s.Node, "nft", "list", "chains")
		if strings.Contains(rules, "node-") {
			t.Errorf("chains of the node are left:\n%s", rules)
		}
	})
}

// The places of the IPv6-only cluster.
const (
	resolver6    = "2001:db8::53"
	apiServer6   = "2001:db8:1::10"
	otherNode6   = "2001:db8:1::20"
	strange6     = "2001:db8:1::99"
	nodeOut6     = "fd00:77::1"
	nextHop6     = "fd00:77::2"
	apiPort      = 6443
	kubeletPort  = 10250
	inboundPort  = 8080
	nodes6       = "apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {role: edge}}\nspec: {podCIDRs: [\"%s\"]}\nstatus: {addresses: [{type: InternalIP, address: \"%s\"}]}\n"
	apiEndpoint6 = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {namespace: default, name: kubernetes, labels: {kubernetes.io/service-name: kubernetes}}\naddressType: IPv6\nendpoints: [{addresses: [\"%s\"]}]\nports: [{name: https, port: %d}]\n"
)

// node6 is a stage whose node has no IPv4, and whose agent reads policies from an API server.
type node6 struct {
	*stage
	api *apiServer
	pod *lab.Pod
}

// newNode6 starts the agent with the policies of nodeNames.
func newNode6(t *testing.T, kind nodeKind) *node6 {
	t.Helper()
	n := &node6{stage: newStageOf(t, kind)}
	n.outside.SetAnswer(answerNumbers)
	n.pod = n.Pod("a")
	run(t, n.Node, "ip", "-4", "addr", "flush", "dev", "out0")
	run(t, n.pod.Host, "ip", "-4", "addr", "flush", "dev", "eth0")
	if out, err := n.Node.Run("ip", "-4", "-o", "addr", "show"); err != nil || strings.Count(out, "\n") > 1 || !strings.Contains(out, "127.0.0.1") {
		t.Fatalf("the node has IPv4: %s, %v", out, err)
	}
	n.serve(n.pod.Host, 80)
	n.serve(n.World, kubeletPort)
	n.serve(n.Node, inboundPort, kubeletPort)
	n.api = serveAPI(t, n.World, hostPort(apiServer6, apiPort))
	n.api.set(t, "nodes", fmt.Sprintf(nodes6, "n1", "fd00:1::/64", nodeOut6), fmt.Sprintf(nodes6, "n2", "fd00:2::/64", otherNode6))
	n.api.set(t, "pods", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {namespace: shop, name: a}\nspec: {nodeName: n1, containers: []}\nstatus: {phase: Running, podIPs: [{ip: \"%s\"}]}\n", n.pod.Addr6))
	n.api.set(t, "endpointslices", fmt.Sprintf(apiEndpoint6, apiServer6, apiPort))
	n.api.set(t, "nodenetworkpolicies", nodeNames)
	n.api.set(t, "endpointslices", fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {namespace: default, name: kubernetes, labels: {kubernetes.io/service-name: kubernetes}}\n"+
		"addressType: IPv6\nendpoints: [{addresses: [\"%s\"]}]\nports: [{name: https, port: %d, protocol: TCP}]\n", apiServer6, apiPort))
	dir := t.TempDir()
	config := filepath.Join(dir, "kubeconfig")
	fatal.If(t, os.WriteFile(config, []byte(kubeconfigFor(hostPort(apiServer6, apiPort))), 0o600))
	var err error
	n.agent, err = n.NewAgent(agentBinary, dir, ". {\n    forward . "+resolver6+"\n    audit AUDIT\n}\n", append(kind.args(), "--nodes", "--node-name", "n1", "--resolv-conf", filepath.Join(dir, "resolv.conf"),
		"--source", "kube", "--kubeconfig", config, "--namespace", "namegate", "--pod-name", "agent", "--daemonset", "namegate")...)
	fatal.If(t, err)
	n.hostAsks(lab.Resolver6)
	n.startNow(nil)
	return n
}

// dials demands whether the node reaches a port of an address.
func (n *node6) dials(when, addr string, port int, want lab.Outcome) {
	n.t.Helper()
	c, err := n.Node.Dial("tcp", hostPort(addr, port), lab.Limit)
	got := lab.Answered
	if err != nil {
		got = lab.Refused
	} else {
		c.Close()
	}
	if got != want {
		n.t.Errorf("%s: the node to %s: %s (%v), want %s", when, hostPort(addr, port), got, err, want)
	}
}

// works demands all that a closed node needs, also when it has to look for its neighbours anew. It is open to the world or not.
func (n *node6) works(when string, open bool) {
	n.t.Helper()
	run(n.t, n.Node, "ip", "-6", "neigh", "flush", "dev", "out0")
	n.dials(when, apiServer6, apiPort, lab.Answered)
	n.dials(when, resolver6, 53, lab.Answered)
	n.dials(when, otherNode6, kubeletPort, lab.Answered)
	n.dials(when, n.pod.Addr6.String(), 80, lab.Answered)
	for _, addr := range []string{nextHop6, strange6} {
		if got := n.Node.Probe("icmp", addrPort(hostPort(addr, 0))); got == lab.Answered {
			n.t.Errorf("%s: an echo request to %s: %s", when, addr, got)
		}
	}
	for _, from := range []string{otherNode6, apiServer6} { // the API server is no Node
		n.passes(n.World, from, "tcp", hostPort(nodeOut6, kubeletPort), true)
	}
	n.passes(n.World, strange6, "tcp", hostPort(nodeOut6, inboundPort), open)
	diff.Equal(n.t, lab.Answered, n.pod.ProbeFor("tcp", addrPort(hostPort(strange6, 80)), lab.Limit), when, "a pod of the node to the world")
	n.passes(n.Node, "", "tcp", hostPort(strange6, 80), false)
	if out, err := n.Node.Run(agentBinary, "status", "--socket", n.agent.Socket()); err != nil || !strings.Contains(out, "API server") || strings.Contains(out, "[NOT ENFORCED]") {
		n.t.Errorf("%s: the status: %v\n%s", when, err, out)
	}
}

// TestANodeWithoutIPv4: policies for a node that has IPv6 alone, with names and with none: its queries are
// led to the agent, answered addresses open, and neither the policies nor a restart of the agent lock it out.
func TestANodeWithoutIPv4(t *testing.T) {
	staged(t, onRouted, newNode6, func(t *testing.T, n *node6) {
		n.intercepted(resolver6)
		n.reaches("by the exact name", "2001:db8:1::1", lab.Answered)
		for i, network := range []string{"udp", "tcp"} {
			at := fmt.Sprintf("2001:db8:1::%d", 30+i)
			n.reaches("unasked", at, lab.Refused)
			if rcode, addrs, err := n.query(network, resolver6, fmt.Sprintf("a%d.example.org.", 30+i), dns.TypeAAAA); rcode != 0 || len(addrs) != 1 || err != nil {
				t.Errorf("over %s: %d %v, %v", network, rcode, addrs, err)
			}
			n.reaches("after a query over "+network, at, lab.Answered)
		}
		if rcode, _, err := n.query("udp", resolver6, "denied.example.org.", dns.TypeAAAA); rcode != dns.RcodeNameError || err != nil {
			t.Errorf("a denied name: %d, %v", rcode, err)
		}
		n.works("with names", true)
		closed := strings.ReplaceAll(closedHost("Local", "BeforeNAT", "Untracked"), `["*"]`, "[out0]") // pods go on
		n.api.set(t, "nodenetworkpolicies", strings.Split(closed, "---\n")[1:]...)
		fatal.Await(t, "everything is denied", func() bool {
			return n.Node.Probe("tcp", addrPort(hostPort("2001:db8:1::30", 80))) != lab.Answered && n.World.Probe("tcp", addrPort(hostPort(nodeOut6, inboundPort))) != lab.Answered
		})
		n.works("with everything denied", false)
		fatal.If(t, n.agent.Stop(syscall.SIGKILL))
		n.dials("without an agent", apiServer6, apiPort, lab.Answered)
		n.passes(n.Node, "", "tcp", hostPort(strange6, 80), false)
		listed := n.api.lists("nodes")
		fatal.If(t, n.agent.Start())
		n.works("by the next agent", false)
		if n.api.lists("nodes") == listed {
			t.Error("the next agent did not ask the API server")
		}
		n.api.set(t, "nodenetworkpolicies")
		fatal.Await(t, "the policy ends", func() bool { return n.Node.Probe("tcp", addrPort(hostPort(strange6, 80))) == lab.Answered })
	})
}
