package scenarios

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// fromGoodAll lets pods with the label app=good in on every port.
const fromGoodAll = "\n- from: [{podSelector: {matchLabels: {app: good}}}]"

// egressOf is a NetworkPolicy for egress of the pods with the label app=APP.
func egressOf(app, rules string) string {
	return networkPolicy("out-"+app, "podSelector: {matchLabels: {app: "+app+"}}\npolicyTypes: [Egress]\negress:"+rules)
}

// toWebOnly lets pods out to those with the label app=web.
const toWebOnly = "\n- to: [{podSelector: {matchLabels: {app: web}}}]"

// linesToWeb are connections of a pod to web, of each protocol.
func (s *peerStage) linesToWeb(pod string) []*line {
	s.t.Helper()
	web := s.Pod("web")
	return []*line{s.lineTo(pod, "tcp", web.Host, web.Addr4), s.lineTo(pod, "udp", web.Host, web.Addr6)}
}

// replaced has another pod, with the label app=APP, take the place of one: the lab keeps the sockets.
func (s *peerStage) replaced(name, app string) map[string]string {
	text := s.pods[name].manifest()
	text = strings.Replace(text, "name: "+name+"\n", "name: next-"+name+"\n", 1)
	text = strings.Replace(text, "uid: ", "uid: next-", 1)
	text = strings.Replace(text, `app: "`+s.pods[name].labels["app"]+`"`, `app: "`+app+`"`, 1)
	return map[string]string{"pod-" + name + ".yaml": "", "pod-next-" + name + ".yaml": text}
}

// TestIngressBeginsWithEgress: what a policy of Namegate's own denies is cut though rules for ingress begin with it.
func TestIngressBeginsWithEgress(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		first, others := s.linesToWeb("good"), s.linesToWeb("fargood")
		both := map[string]string{"np.yaml": ingress("np", fromGoodAll), "good.yaml": policy("good", "podSelector: {matchLabels: {app: good}}")}
		s.start(s.manifests(both))
		s.podNext("behind a first agent", first, others)
		s.apply(map[string]string{"np.yaml": "", "good.yaml": ""})
		second := s.linesToWeb("good")
		s.apply(both)
		s.podNext("behind two policies", second, others)
	})
}

// TestIngressEndsBesideEgress: the end of rules for ingress cuts no connection that rules for egress allow.
func TestIngressEndsBesideEgress(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGoodAll), "good.yaml": egressOf("good", toWebOnly)}))
		lines := s.linesToWeb("good")
		for range 2 {
			s.apply(map[string]string{"np.yaml": ""})
			s.goesOn("without rules for ingress", lines...)
			s.apply(map[string]string{"np.yaml": ingress("np", " []")})
			s.goesOn("with rules for ingress", lines...)
		}
		s.apply(map[string]string{"good.yaml": ""})
		s.goesOn("without rules for egress", lines...)
		fatal.Await(t, "the last look at connections", func() bool {
			return !strings.Contains(s.prints("nft list set inet namegate recheck4", "nft list set inet namegate recheck6"), "elements")
		})
		s.goesOn("without rules for egress", lines...)
		s.apply(map[string]string{"good.yaml": egressOf("good", toWebOnly)})
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		fatal.If(t, s.agent.Write(map[string]string{"good.yaml": ""}))
		fatal.If(t, s.agent.Start())
		s.goesOn("without rules for egress, with another agent", lines...)
	})
}

// TestIngressNextDestination: the next pod of an address inherits no connection, whichever rules admitted it.
func TestIngressNextDestination(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", " []"), "good.yaml": egressOf("good", "\n- {}")}))
		bad := s.Pod("bad")
		lines := []*line{s.lineTo("good", "udp", bad.Host, bad.Addr4), s.lineTo("good", "tcp", bad.Host, bad.Addr6)}
		others := []*line{s.lineTo("good", "tcp", s.Pod("farbad").Host, s.Pod("farbad").Addr4)}
		s.apply(s.replaced("bad", "web"))
		s.podNext("to the next pod", lines, others)
	})
}

// TestIngressNextSource: the next pod of an address inherits no connection of the last one.
func TestIngressNextSource(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGoodAll)}))
		kept := s.linesToWeb("fargood")
		lines := s.linesToWeb("good")
		s.apply(s.replaced("good", "bad"))
		s.podNext("from the next pod", lines, kept)
		stays := []*line{s.lineTo("web", "tcp", s.Pod("farbad").Host, s.Pod("farbad").Addr4)}
		s.apply(s.replaced("fargood", "bad"))
		s.podNext("from the next pod of another node", kept, stays)
	})
}

// TestIngressSecondNet: without the judge's table a pod that is isolated in both directions answers nothing that was cut.
func TestIngressSecondNet(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGoodAll), "web.yaml": egressOf("web", " []")}))
		lines, others := s.linesToWeb("fargood"), []*line{s.lineTo("good", "tcp", s.Pod("bad").Host, s.Pod("bad").Addr4)}
		next := s.replaced("web", "web")
		next["np.yaml"] = ingress("np", " []")
		s.apply(next)
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		s.serverNext("with the judge", lines, others)
		run(t, s.Node, "nft", "delete", "table", "inet", "namegate")
		s.serverNext("without the judge", lines, others)
	})
}

// TestIngressComesAndGoes: no first packet is lost where rules come and go that allow it.
func TestIngressComesAndGoes(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		stays := networkPolicy("stays", "podSelector: {matchLabels: {app: bad}}\npolicyTypes: [Ingress]")
		var to []string
		for _, a := range []netip.Addr{s.Pod("web").Addr4, s.Pod("web").Addr6} {
			to = append(to, netip.AddrPortFrom(a, 8080).String())
		}
		end, local := s.vigil("fargood", to, nil), s.vigil("good", to, nil)
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGood), "stays.yaml": stays}))
		end("at the start")
		local("at the start")
		end, local = s.vigil("fargood", to, nil), s.vigil("good", to, nil)
		for range 5 {
			s.apply(map[string]string{"np.yaml": ""})
			s.apply(map[string]string{"np.yaml": ingress("np", fromGood)})
		}
		end("beside another subject")
		local("beside another subject")
	})
}

// TestIngressOrphan: a pod without an object stays closed, and so does the interface of another one.
func TestIngressOrphan(t *testing.T) {
	staged(t, onEach, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGood)}))
		web := s.pods["web"]
		s.apply(map[string]string{"pod-bad.yaml": ""})
		good := s.Pod("fargood").Addr4
		seen := lab.Arrival{From: good, To: web.Addr4, Protocol: 6, Port: 8080}
		fatal.If(t, s.Pod("bad").Forge("tcp", good.String(), netip.AddrPortFrom(web.Addr4, 8080)))
		fatal.If(t, web.sniffer.SettleAt(web.Addr4, s.Node))
		if n := web.sniffer.SawFlow(seen); n != 0 {
			t.Errorf("%d forged packets of a pod without an object arrived", n)
		}
		s.apply(map[string]string{"pod-web.yaml": ""})
		for _, from := range []string{"bad", "farbad"} {
			s.reaches("without an object", s.Pod(from).Host, "tcp", 8080, lab.Silent)
		}
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		fatal.If(t, s.agent.Start())
		s.reaches("without an object, with another agent", s.Pod("farbad").Host, "tcp", 8080, lab.Silent)
	})
}

// TestIngressKilled: agents that are killed on their way from one state to the next let nothing in and lose nothing.
func TestIngressKilled(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		stays := map[string]string{"np.yaml": ingress("np", fromGood)}
		s.start(s.manifests(stays))
		to := []string{netip.AddrPortFrom(s.Pod("web").Addr4, 8080).String(), netip.AddrPortFrom(s.Pod("web").Addr6, 8080).String()}
		far, good, bad := s.vigil("fargood", to, nil), s.vigil("good", to, nil), s.vigil("bad", nil, to)
		on := map[string]string{
			"other.yaml": networkPolicy("other", "podSelector: {matchLabels: {app: good}}\npolicyTypes: [Ingress]"),
			"bad.yaml":   egressOf("bad", toWebOnly), "good.yaml": egressOf("good", toWebOnly),
		}
		off := map[string]string{"other.yaml": "", "bad.yaml": "", "good.yaml": ""}
		for i := range 6 {
			fatal.If(t, s.agent.Write(on))
			time.Sleep(time.Duration(i) * 40 * time.Millisecond)
			fatal.If(t, s.agent.Stop(syscall.SIGKILL))
			fatal.If(t, s.agent.Start())
			on, off = off, on
		}
		fatal.If(t, s.agent.Upgrade())
		far("from another node")
		good("from this node")
		bad("what is denied")
	})
}

// TestIngressSwitch: an agent with the other dataplane keeps what is open, and what is denied.
func TestIngressSwitch(t *testing.T) {
	t.Parallel()
	for from, to := range map[string]string{iptables: nftables, nftables: iptables} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			s := ingressStage(t, nodeKind{lab.Routed, from, ""})
			s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGoodAll)}))
			lines := append(s.linesToWeb("good"), s.linesToWeb("fargood")...)
			at := []string{netip.AddrPortFrom(s.Pod("web").Addr4, 8080).String()}
			end := s.vigil("fargood", at, nil)
			fatal.If(t, s.agent.SetDataplane(to))
			fatal.If(t, s.agent.Upgrade())
			s.runs(to)
			s.goesOn("after the switch", lines...)
			s.reaches("after the switch", s.Pod("bad").Host, "tcp", 8080, lab.Silent)
			s.nothingLeftOf(from)
			end("to " + to)
			s.goesOn("after the switch", lines...)

			// Back, while the rules for ingress of one pod go and those of another come.
			bad := networkPolicy("bad", "podSelector: {matchLabels: {app: bad}}\npolicyTypes: [Ingress]")
			fatal.If(t, s.agent.Stop(syscall.SIGKILL))
			fatal.If(t, s.agent.SetDataplane(from))
			fatal.If(t, s.agent.Write(map[string]string{"np.yaml": "", "bad.yaml": bad}))
			fatal.If(t, s.agent.Start())
			s.goesOn("after the switch back", lines...)
			s.reaches("rules that are gone", s.Pod("farbad").Host, "tcp", 8080, lab.Answered)
			if got := s.Pod("good").Probe("tcp", netip.AddrPortFrom(s.Pod("bad").Addr4, 8080)); got != lab.Silent {
				t.Errorf("rules that came: %s", got)
			}
		})
	}
}
