package scenarios

import (
	"net/netip"
	"testing"
)

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
