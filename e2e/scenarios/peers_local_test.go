package scenarios

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
)

// selectsClient selects the pods with the label app=client, and allows them nothing.
const selectsClient = "podSelector: {matchLabels: {app: client}}"

// both expects an outcome of a pod's probes in both families. The kernel sends a pod few
// ICMP errors a second: a datagram may be refused in silence.
func (s *stage) both(pod, network, to4, to6 string, port uint16, want lab.Outcome) {
	s.t.Helper()
	for _, to := range []string{to4, to6} {
		at := netip.AddrPortFrom(netip.MustParseAddr(to), port)
		got := s.Pod(pod).ProbeFor(network, at, patienceFor(network, want))
		if got != want && !(network == "udp" && want == lab.Refused && got == lab.Silent) {
			s.t.Errorf("pod %s to %s %s: %s, want %s", pod, network, at, got, want)
		}
	}
}

// patienceFor is short for datagrams that are refused, perhaps in silence.
func patienceFor(network string, want lab.Outcome) time.Duration {
	if network == "udp" && want == lab.Refused {
		return lab.Patience
	}
	return lab.PatienceFor(want)
}

// egress is a NetworkPolicy for the pods with the label app=client.
func egress(name, rules string) string {
	return networkPolicy(name, "podSelector: {matchLabels: {app: client}}\npolicyTypes: [Egress]\negress:"+rules)
}

const (
	toAllPods = "\n- to: [{namespaceSelector: {}}]"
	toAll     = "\n- {}"
	toNode    = "\n- to: [{ipBlock: {cidr: 192.168.77.1/32}}, {ipBlock: {cidr: \"fd00:77::1/128\"}}]"
)

// TestNodeLocal: a pod reaches its own node by a rule for the node's address alone, and
// the node reaches the pod whatever is written.
func TestNodeLocal(t *testing.T) {
	staged(t, onEach, newPeerStage, func(t *testing.T, s *peerStage) {
		s.serve(s.Node, 8080)
		a := s.server("client", 10, false, map[string]string{"app": "client"}, 8080)
		s.start(s.manifests(map[string]string{"p.yaml": policy("p", selectsClient)}))
		probed := func(when string) {
			t.Helper()
			for _, to := range []netip.Addr{a.Addr4, a.Addr6} {
				for _, proto := range []string{"tcp", "udp", "icmp"} {
					diff.Equal(t, lab.Answered, s.Node.ProbeFor(proto, netip.AddrPortFrom(to, 8080), lab.Limit), when, "the node's probe of", to, "by", proto)
				}
			}
		}
		node := func(rules string, want lab.Outcome) {
			t.Helper()
			np := ""
			if rules != "" {
				np = egress("np", rules)
				s.apply(map[string]string{"np.yaml": np})
			}
			s.both("client", "tcp", "192.168.77.1", "fd00:77::1", 8080, want)
			s.both("client", "udp", "192.168.77.1", "fd00:77::1", 8080, want)
			if s.Network == lab.Bridged && rules != toNode {
				s.both("client", "tcp", "10.1.0.1", "fd00:1::1", 8080, want)
			}
			probed("with the rules " + rules)
		}
		node("", lab.Refused)
		node(toAllPods, lab.Refused)
		node(toNode, lab.Answered)
		node(" []", lab.Refused)
		node(toAll, lab.Answered)
	})
}

// TestOwnService: a pod reaches itself through its own Service, which needs no rule, and
// another pod through that pod's Service only by a rule for the pod and its port.
func TestOwnService(t *testing.T) {
	staged(t, onEach, newPeerStage, func(t *testing.T, s *peerStage) {
		own := s.server("client", 10, false, map[string]string{"app": "client"}, 8080)
		other := s.server("other", 11, false, map[string]string{"app": "other"}, 8080)
		remote := s.server("remote", 11, true, map[string]string{"app": "other"}, 8080)
		s.service(1, 80, own, 8080)
		s.service(2, 80, other, 8080)
		s.service(3, 80, remote, 8080)
		s.start(s.manifests(map[string]string{"p.yaml": policy("p", selectsClient)}))
		to := func(n int, want lab.Outcome) {
			t.Helper()
			v4, v6 := serviceAddr(n)
			s.both("client", "tcp", v4.String(), v6.String(), 80, want)
			s.both("client", "udp", v4.String(), v6.String(), 80, want)
		}
		s.both("client", "tcp", own.Addr4.String(), own.Addr6.String(), 8080, lab.Answered)
		to(1, lab.Answered)
		to(2, lab.Refused)
		to(3, lab.Refused)
		rule := "\n- to: [{podSelector: {matchLabels: {app: other}}}]\n  ports: [{port: %d}, {protocol: UDP, port: %d}]"
		s.apply(map[string]string{"np.yaml": egress("np", fmt.Sprintf(rule, 80, 80))})
		to(2, lab.Refused) // the Service's port is no peer's
		to(3, lab.Refused)
		s.apply(map[string]string{"np.yaml": egress("np", fmt.Sprintf(rule, 8080, 8080))})
		to(1, lab.Answered)
		to(2, lab.Answered)
		to(3, lab.Answered)
		// A rule for the Service's address says nothing of the pods behind it.
		s.apply(map[string]string{"np.yaml": egress("np", "\n- to: [{ipBlock: {cidr: 10.96.0.0/24}}, {ipBlock: {cidr: \"fd00:96::/112\"}}]")})
		to(1, lab.Answered)
		to(2, lab.Refused)
		to(3, lab.Refused)
	})
}

// TestRepliesAdmitNothing: a selected pod's replies on another's connection do not admit
// that connection, also if the selected pod might have opened it itself.
func TestRepliesAdmitNothing(t *testing.T) {
	staged(t, onRouted, newPeerStage, func(t *testing.T, s *peerStage) {
		client := s.client("client", 10)
		client.labels = map[string]string{"app": "free"} // unselected at first
		db := s.server("db", 20, false, map[string]string{"db": "yes"}, 8080)
		never := s.server("never", 41, true, nil, 8080)
		s.start(s.manifests(map[string]string{
			"db.yaml": policy("db", "podSelector: {matchLabels: {db: \"yes\"}}"),
			"np.yaml": networkPolicy("np", "podSelector: {matchLabels: {db: \"yes\"}}\npolicyTypes: [Egress]\negress: [{}]"),
			"p.yaml":  policy("p", selectsClient),
		}))
		lines := func(p *peerPod) (out []*line) {
			for _, network := range []string{"tcp", "udp"} {
				for _, to := range []netip.Addr{p.Addr4, p.Addr6} {
					out = append(out, s.lineTo("client", network, p.Host, to))
				}
			}
			return out
		}
		toDB, others := lines(db), lines(never)
		s.goesOn("before the client is selected", toDB...)
		s.noneAdmitted([]netip.Addr{client.Addr4, client.Addr6})
		client.labels = map[string]string{"app": "client"}
		s.apply(map[string]string{"pod-client.yaml": client.manifest()})
		half := len(toDB) / 2
		s.serverNext("after the client was selected", append(toDB[:half:half], others[:half]...), nil)
		s.podNext("after the client was selected", append(toDB[half:], others[half:]...), nil)
	})
}
