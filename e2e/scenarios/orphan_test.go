package scenarios

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// orphanPolicy allows the pods of an app a name, whose answers stay for long.
func orphanPolicy(app, name string) string {
	return policy(app, fmt.Sprintf("podSelector: {matchLabels: {app: %s}}\nttl: {minSeconds: 600}\negress:\n- matches: [{name: %s}]\ndns: {unmatched: Refuse}", app, name))
}

// orphanStage has the pods a and b, which have an address open each.
func orphanStage(t *testing.T, kind nodeKind) *stage {
	s := newStageOf(t, kind)
	s.zone.add(`
		www.example.org. 600 IN A 198.51.100.1
		www.example.org. 600 IN AAAA 2001:db8:1::1
		next.example.org. 600 IN A 198.51.100.3`)
	s.start(map[string]string{
		"a.yaml":    s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
		"b.yaml":    s.Pod("b").Manifest("shop", "b", map[string]string{"app": "client"}),
		"p.yaml":    orphanPolicy("client", "www.example.org"),
		"next.yaml": orphanPolicy("next", "next.example.org"),
	})
	for _, pod := range []string{"a", "b"} {
		s.resolve(pod, "www.example.org", dns.TypeA)
		s.resolve(pod, "www.example.org", dns.TypeAAAA)
	}
	return s
}

// isClosed asserts that nothing of a pod gets through.
func (s *stage) isClosed(when, pod string) {
	s.t.Helper()
	for _, to := range []string{"198.51.100.1:80", "[2001:db8:1::1]:80", "198.51.100.2:80", "[2001:db8:1::2]:80"} {
		if got := s.Pod(pod).ProbeFor("tcp", netip.MustParseAddrPort(to), lab.PatienceFor(lab.Refused)); got != lab.Refused {
			s.t.Errorf("%s: pod %s to %s: %s", when, pod, to, got)
		}
	}
	asked := len(s.outside.Asked())
	if r, err := s.ask(pod, "udp", "www.example.org", dns.TypeA); err != nil || r.Rcode != dns.RcodeRefused || len(s.outside.Asked()) > asked {
		s.t.Errorf("%s: pod %s asks: %v, %v", when, pod, r, err)
	}
}

// hasOrphan tells whether the agent lists a pod as one without an object.
func (s *stage) hasOrphan(pod string) bool {
	s.t.Helper()
	out, err := s.agent.Run(agentBinary, "pods", pod+"+orphaned", "--socket", s.agent.Socket())
	return err == nil && strings.Contains(out, "Enforce")
}

// awaitSelected waits until so many pods are isolated.
func (s *stage) awaitSelected(n int) {
	s.t.Helper()
	fatal.If(s.t, s.agent.WaitFor(fmt.Sprintf("%d isolated pods", n), func(got lab.Status) bool { return got.InSync && got.Enforcer.Selected == n }))
}

// TestForceDeletedPod: a pod's object is gone while its process runs, at an agent and between two.
// Nothing of it gets through, until its interface is gone. The next pod of its address, one of a
// StatefulSet or another, has its own rules at once.
func TestForceDeletedPod(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, kind nodeKind) {
		s := orphanStage(t, kind)
		lines := []*line{s.line("a", "tcp", netip.MustParseAddr("198.51.100.1")), s.line("a", "udp", netip.MustParseAddr("2001:db8:1::1"))}
		others := []*line{s.line("b", "tcp", netip.MustParseAddr("198.51.100.1"))}
		denied := []string{"198.51.100.2:80", "[2001:db8:1::2]:80"}
		first := s.vigil("a", nil, denied)
		s.apply(map[string]string{"a.yaml": ""})
		s.isClosed("without an object", "a")
		s.serverNext("without an object", lines, others)
		if !s.hasOrphan("shop/a") {
			t.Error("the pod is not listed")
		}
		fatal.If(t, s.agent.Upgrade())
		s.isClosed("after an upgrade", "a")
		second := s.vigil("b", nil, denied)
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		fatal.If(t, s.agent.Write(map[string]string{"b.yaml": ""}))
		fatal.If(t, s.agent.Start())
		for _, pod := range []string{"a", "b"} {
			s.isClosed("after a restart", pod)
		}
		s.serverNext("after a restart", append(lines, others...), nil)
		first("a without an object")
		second("b without an object")

		for i, name := range []string{"a", "c"} { // as of a StatefulSet, and another
			old, labels := []string{"a", "b"}[i], map[string]string{"app": "next"}
			n := int(s.Pod(old).Addr4.As4()[3])
			fatal.If(t, s.RemovePod(old))
			s.awaitSelected(1 - i)
			pod := s.addPod(name, n)
			fatal.If(t, s.Ready())
			// No policy knows the pod yet: what was closed denies it nothing.
			s.expect(name, "tcp", "198.51.100.2:80", lab.Answered)
			s.apply(map[string]string{name + ".yaml": strings.Replace(pod.Manifest("shop", name, labels), "uid: ", "uid: next-", 1)})
			s.expect(name, "tcp", "198.51.100.1:80", lab.Refused)
			s.resolve(name, "next.example.org", dns.TypeA)
			end := s.vigil(name, []string{"198.51.100.3:80"}, append(denied, "198.51.100.1:80"))
			s.apply(map[string]string{"other.yaml": orphanPolicy("other", "other.example.org")})
			end("the next pod " + name)
			s.apply(map[string]string{name + ".yaml": "", "other.yaml": ""})
			fatal.If(t, s.RemovePod(name))
			s.awaitSelected(1 - i)
			if i == 0 {
				s.isClosed("after the other's end", "b")
			}
		}
	})
}

// TestForceDeletedPodsAddress is another pod's while the old interface is there: that pod has it at
// once, selected or not, and the old one has nothing of it.
func TestForceDeletedPodsAddress(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := orphanStage(t, kind)
		s.apply(map[string]string{"a.yaml": "", "b.yaml": ""})
		for old, app := range map[string]string{"a": "next", "b": "free"} {
			s.isClosed("without an object", old)
			at := s.Pod(old)
			heir := s.addPod("heir-"+old, 10+int(at.Addr4.As4()[3]))
			fatal.If(t, s.Ready())
			for _, a := range []string{at.Addr4.String() + "/32", at.Addr6.String() + "/128"} {
				fatal.If(t, heir.IP("addr", "replace", a, "dev", "eth0"))
				fatal.If(t, s.Node.IP("route", "replace", a, "dev", heir.Iface))
			}
			fatal.If(t, heir.IP("addr", "del", heir.Addr4.String()+"/32", "dev", "eth0"))
			fatal.If(t, heir.IP("addr", "del", heir.Addr6.String()+"/128", "dev", "eth0"))
			heir.Addr4, heir.Addr6 = at.Addr4, at.Addr6
			s.apply(map[string]string{"heir-" + old + ".yaml": heir.Manifest("shop", "heir-"+old, map[string]string{"app": app})})
			if app == "free" {
				s.expect("heir-"+old, "tcp", "198.51.100.2:80", lab.Answered)
				continue
			}
			s.expect("heir-"+old, "tcp", "198.51.100.1:80", lab.Refused)
			s.resolve("heir-"+old, "next.example.org", dns.TypeA)
			s.expect("heir-"+old, "tcp", "198.51.100.3:80", lab.Answered)
			for _, to := range []string{"198.51.100.1:80", "198.51.100.3:80"} {
				s.expect(old, "tcp", to, lab.Silent)
			}
		}
	})
}

// TestForceDeletedPodWithoutAHome: nothing shows the pod's interface. It is closed until the result
// of its network plugin is gone, also for the next agent. A result of before the boot does not count.
func TestForceDeletedPodWithoutAHome(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add("www.example.org. 600 IN A 198.51.100.1\nwww.example.org. 600 IN AAAA 2001:db8:1::1")
		// A link to a whole network is no pod's home.
		fatal.If(t, s.Node.IP("route", "del", "10.1.0.5/32"))
		fatal.If(t, s.Node.IP("-6", "route", "del", "fd00:1::5/128"))
		fatal.If(t, s.Node.IP("route", "add", "10.1.0.4/31", "dev", "veth5"))
		fatal.If(t, s.Node.IP("-6", "route", "add", "fd00:1::4/127", "dev", "veth5"))
		at := hostPort("192.0.2.11", apiPort)
		api := serveAPI(t, s.World, at)
		a := s.Pod("a")
		running := fmt.Sprintf("metadata: {namespace: shop, name: a, labels: {app: client}}\nspec: {nodeName: n1, containers: []}\nstatus: {phase: Running, podIPs: [{ip: %q}, {ip: %q}]}\n", a.Addr4, a.Addr6)
		api.set(t, "nodes", "metadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.168.77.1}]}\n")
		api.set(t, "namespaces", "metadata: {name: shop}\n")
		api.set(t, "fqdnnetworkpolicies", orphanPolicy("client", "www.example.org"))
		config, results := filepath.Join(t.TempDir(), "kubeconfig"), t.TempDir()
		fatal.If(t, os.WriteFile(config, []byte(kubeconfigFor(at)), 0o600))
		result := filepath.Join(results, "pods-c1-eth0")
		writeResult := func() {
			fatal.If(t, os.WriteFile(result, fmt.Appendf(nil, `{"kind":"cniCacheV1","ifName":"eth0","cniArgs":[["K8S_POD_UID","pods-0"]],"result":{"ips":[{"address":"%s/32"},{"address":"%s/128"}]}}`, a.Addr4, a.Addr6), 0o600))
		}
		var err error
		s.agent, err = s.NewAgent(agentBinary, t.TempDir(), corefile, append(kind.args(), "--source", "kube", "--kubeconfig", config, "--node-name", "n1", "--namespace", "namegate", "--pod-name", "agent", "--daemonset", "namegate", "--cni-results", results)...)
		fatal.If(t, err)
		for i, how := range []string{"the result is removed", "the result is of before the boot"} {
			writeResult()
			api.set(t, "pods", running)
			if i == 0 {
				s.start(nil)
			}
			s.awaitSelected(1)
			s.resolve("a", "www.example.org", dns.TypeA)
			s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
			denied := s.vigil("a", nil, []string{"198.51.100.2:80", "[2001:db8:1::2]:80"})
			api.set(t, "pods")
			fatal.If(t, s.agent.WaitFor("a pod without an object", func(lab.Status) bool { return s.hasOrphan("shop/a") }))
			s.isClosed("without an object", "a")
			fatal.If(t, s.agent.Stop(syscall.SIGKILL))
			fatal.If(t, s.agent.Start())
			s.isClosed("after a restart", "a")
			denied("a without an object")
			if i == 0 {
				fatal.If(t, os.Remove(result))
			} else {
				fatal.If(t, os.Chtimes(result, time.Unix(1, 0), time.Unix(1, 0)))
			}
			s.awaitSelected(0)
			if got := s.Pod("a").ProbeFor("tcp", netip.MustParseAddrPort("198.51.100.2:80"), lab.Limit); got != lab.Answered {
				t.Errorf("%s: %s", how, got)
			}
		}
	})
}
