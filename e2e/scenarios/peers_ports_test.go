package scenarios

import (
	"net"
	"net/netip"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// associates sends what opens an SCTP association to a port of a pod.
func (s *peerStage) associates(from, to *peerPod, port uint16) {
	s.t.Helper()
	for network, at := range map[string]netip.Addr{"ip4:132": to.Addr4, "ip6:132": to.Addr6} {
		c, err := from.ListenPacket(network, "")
		fatal.If(s.t, err)
		defer c.Close()
		// A refusal may come back as an error of the next packet: each has its own socket.
		if _, err := c.WriteTo(lab.SCTPInit(10000+port, port, nil), &net.IPAddr{IP: at.AsSlice()}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// arrived asserts how many families' packets for a port reached a pod.
func (s *peerStage) arrived(from, to *peerPod, protocol byte, port uint16, want bool) {
	s.t.Helper()
	fatal.If(s.t, to.sniffer.SettleAt(to.Addr4, s.Node))
	for src, dst := range map[netip.Addr]netip.Addr{from.Addr4: to.Addr4, from.Addr6: to.Addr6} {
		n := to.sniffer.SawFlow(lab.Arrival{From: src, To: dst, Protocol: protocol, Port: port})
		if (n > 0) != want {
			s.t.Errorf("%d packets of protocol %d for port %d of %s arrived", n, protocol, port, dst)
		}
	}
}

// TestPeerPorts: protocols, ranges and values for all of them.
func TestPeerPorts(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newPeerStage(t, kind)
		a := s.client("client", 10)
		pods := map[string]*peerPod{}
		for i, place := range unionPlaces {
			pods[place] = s.server(place, 20+i, place == "remote", map[string]string{"app": "server"}, 7999, 8000, 8100, 8101)
		}
		s.start(s.manifests(map[string]string{
			"p.yaml": policy("p", selectsClient),
			"np.yaml": egress("np", `
- to: [{podSelector: {matchLabels: {app: server}}}]
  ports: [{port: 8000, endPort: 8100}, {protocol: UDP, port: 8100, endPort: 8100}, {protocol: SCTP, port: 5000, endPort: 5010}]
- to: [{podSelector: {matchLabels: {app: none}}}]`),
		}))
		for _, p := range pods {
			v4, v6 := p.Addr4.String(), p.Addr6.String()
			s.both("client", "tcp", v4, v6, 8000, lab.Answered)
			s.both("client", "tcp", v4, v6, 8100, lab.Answered)
			s.both("client", "tcp", v4, v6, 7999, lab.Refused)
			s.both("client", "tcp", v4, v6, 8101, lab.Refused)
			s.both("client", "udp", v4, v6, 8100, lab.Answered)
			s.both("client", "udp", v4, v6, 8000, lab.Refused)
			s.both("client", "icmp", v4, v6, 0, lab.Silent)
			for port, want := range map[uint16]bool{4999: false, 5000: true, 5010: true, 5011: false} {
				s.associates(a, p, port)
				s.arrived(a, p, 132, port, want)
			}
		}
		// A protocol without a port is all of its ports; no ports are all protocols.
		s.apply(map[string]string{"np.yaml": egress("np", `
- to: [{podSelector: {matchLabels: {app: server}}}]
  ports: [{protocol: UDP}]`)})
		for _, p := range pods {
			v4, v6 := p.Addr4.String(), p.Addr6.String()
			s.both("client", "udp", v4, v6, 8000, lab.Answered)
			s.both("client", "udp", v4, v6, 8101, lab.Answered)
			s.both("client", "tcp", v4, v6, 8000, lab.Refused)
			s.both("client", "icmp", v4, v6, 0, lab.Silent)
		}
		s.apply(map[string]string{"np.yaml": egress("np", "\n- to: [{podSelector: {matchLabels: {app: server}}}]")})
		for _, p := range pods {
			v4, v6 := p.Addr4.String(), p.Addr6.String()
			s.both("client", "tcp", v4, v6, 7999, lab.Answered)
			s.both("client", "icmp", v4, v6, 0, lab.Answered)
			s.associates(a, p, 4998)
			s.arrived(a, p, 132, 4998, true)
		}
		s.both("client", "tcp", "198.51.100.9", "2001:db8:9::9", 80, lab.Refused)
	})
}
