package scenarios

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
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
		diff.Equal(s.t, lab.Refused, s.Pod(pod).ProbeFor("tcp", netip.MustParseAddrPort(to), lab.PatienceFor(lab.Refused)), when, "pod", pod, "to", to)
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
	staged(t, onEach, orphanStage, func(t *testing.T, s *stage) {
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
