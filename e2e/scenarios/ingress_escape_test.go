package scenarios

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestIngressLostElements: where a rival empties a set, nothing new arrives.
func TestIngressLostElements(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGood), "bad.yaml": egressOf("bad", toWebOnly)}))
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		for _, set := range []string{"map inet namegate ingresschains", "set inet namegate ingress"} {
			for _, f := range []string{"4", "6"} {
				run(t, s.Node, "nft", strings.Fields("flush "+set+f)...)
			}
			for _, from := range []string{"bad", "farbad"} {
				s.reaches("after flush "+set, s.Pod(from).Host, "tcp", 8080, lab.Silent)
			}
		}
	})
}

// TestIngressLostRule: what got in while a rival had emptied sets of rules that deny is cut when these are there again.
func TestIngressLostRule(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"cnp.yaml": `
apiVersion: policy.networking.k8s.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: first}
spec:
  tier: Admin
  priority: 1
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}
  ingress: [{action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: bad}}}}]}]
`}))
		others := s.linesToWeb("good")
		s.reaches("at first", s.Pod("bad").Host, "tcp", 8080, lab.Silent)
		fatal.If(t, s.agent.Signal(syscall.SIGSTOP))
		run(t, s.Node, "sh", "-c", eachNamed("set", "peers-", "nft flush set inet namegate $n"))
		lines := s.linesToWeb("bad")
		fatal.If(t, s.agent.Signal(syscall.SIGCONT))
		fatal.Await(t, "a repair", func() bool {
			return s.Pod("bad").Probe("tcp", netip.AddrPortFrom(s.Pod("web").Addr4, 8080)) == lab.Silent
		})
		s.podNext("after a repair", lines, others)
	})
}

// TestIngressForgedFrames: a bridge port of a subject gets frames to its own addresses alone.
func TestIngressForgedFrames(t *testing.T) {
	staged(t, onBridged, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{
			"np.yaml":  ingress("np", fromGood),
			"bad.yaml": networkPolicy("open", "podSelector: {matchLabels: {app: bad}}\npolicyTypes: [Ingress]\ningress: [{}]"),
		}))
		good, web, bad := s.Pod("good"), s.pods["web"], s.Pod("bad")
		card, err := good.Card("eth0")
		fatal.If(t, err)
		defer card.Close()
		at, err := web.Hardware("eth0")
		fatal.If(t, err)
		to := map[string]netip.Addr{"another subject": bad.Addr4, "all hosts": netip.MustParseAddr("224.0.0.1"), "broadcast": netip.MustParseAddr("255.255.255.255"), "link-local": netip.MustParseAddr("fe80::1234")}
		tokens := map[string][]byte{}
		n := uint32(4000)
		for name, dst := range to {
			n++
			tokens[name] = lab.Token(n)
			src := good.Addr4
			if dst.Is6() {
				src = good.Addr6
			}
			p := lab.Packet{Src: src, Dst: dst, Proto: 17, Payload: lab.UDP(netip.AddrPortFrom(src, 7), netip.AddrPortFrom(dst, 8080), tokens[name])}
			fatal.If(t, card.SendIP(at, p.Bytes()))
		}
		// A pod that the agent does not know may send tags.
		unknown := s.addPod("unknown", 30)
		tagging, err := unknown.Card("eth0")
		fatal.If(t, err)
		defer tagging.Close()
		tokens["web with a priority tag"] = lab.Token(4999)
		p := lab.Packet{Src: unknown.Addr4, Dst: web.Addr4, Proto: 17, Payload: lab.UDP(netip.AddrPortFrom(unknown.Addr4, 7), netip.AddrPortFrom(web.Addr4, 8080), lab.Token(4999))}
		fatal.If(t, tagging.Send(tagging.Frame(at, 0x8100, append([]byte{0, 0, 8, 0}, p.Bytes()...))))
		fatal.If(t, web.sniffer.SettleAt(web.Addr4, s.Node))
		for name, token := range tokens {
			if web.sniffer.SawToken(token) != 0 {
				t.Errorf("a frame to %s arrived", name)
			}
		}
	})
}
