package scenarios

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// ingress is a NetworkPolicy for ingress of the pods with the label app=web.
func ingress(name, rules string) string {
	return networkPolicy(name, "podSelector: {matchLabels: {app: web}}\npolicyTypes: [Ingress]\ningress:"+rules)
}

// fromGood lets pods with the label app=good in on TCP port 8080, and the world on UDP port 8080.
const fromGood = `
- from: [{podSelector: {matchLabels: {app: good}}}]
  ports: [{port: 8080}]
- from: [{ipBlock: {cidr: 192.168.77.2/32}}, {ipBlock: {cidr: "fd00:77::2/128"}}]
  ports: [{protocol: UDP, port: 8080}]`

// ingressStage has a server web with its Service, and the pods good and bad on both nodes.
func ingressStage(t *testing.T, kind nodeKind) *peerStage {
	s := enforcesAll(t, kind)
	web := s.server("web", 10, false, map[string]string{"app": "web"}, 8080, 8081)
	s.service(1, 80, web, 8080)
	for i, app := range []string{"good", "bad"} {
		s.server(app, 20+i, false, map[string]string{"app": app}, 8080)
		s.server("far"+app, 20+i, true, map[string]string{"app": app}, 8080)
	}
	return s
}

// reaches asserts the outcome of probes of web's addresses in both families.
func (s *peerStage) reaches(when string, from *lab.Host, network string, port uint16, want lab.Outcome) {
	s.t.Helper()
	for _, to := range []netip.Addr{s.Pod("web").Addr4, s.Pod("web").Addr6} {
		if got := from.ProbeFor(network, netip.AddrPortFrom(to, port), lab.PatienceFor(want)); got != want {
			s.t.Errorf("%s: %s to %s port %d of %s: %s, want %s", when, from.Name, network, port, to, got, want)
		}
	}
}

// TestIngress: who may reach a pod, from both nodes, from outside and by a Service.
func TestIngress(t *testing.T) {
	staged(t, onEach, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGood)}))
		v4, v6 := serviceAddr(1)
		for _, place := range []string{"", "far"} {
			good, bad := s.Pod(place+"good").Host, s.Pod(place+"bad").Host
			s.reaches("allowed", good, "tcp", 8080, lab.Answered)
			s.reaches("another port", good, "tcp", 8081, lab.Silent)
			s.reaches("another protocol", good, "udp", 8080, lab.Silent)
			s.reaches("ping", good, "icmp", 0, lab.Silent)
			s.reaches("another pod", bad, "tcp", 8080, lab.Silent)
		}
		s.reaches("the world", s.World, "udp", 8080, lab.Answered)
		s.reaches("the world", s.World, "tcp", 8080, lab.Silent)
		for _, network := range []string{"tcp", "udp", "icmp"} {
			s.reaches("probes of the node", s.Node, network, 8080, lab.Answered)
		}
		s.both("good", "tcp", v4.String(), v6.String(), 80, lab.Answered)
		s.both("bad", "tcp", v4.String(), v6.String(), 80, lab.Silent)
		s.both("web", "tcp", v4.String(), v6.String(), 80, lab.Answered) // itself
		for _, to := range []string{"bad", "farbad"} {
			for _, network := range []string{"tcp", "udp", "icmp"} {
				s.both("web", network, s.Pod(to).Addr4.String(), s.Pod(to).Addr6.String(), 8080, lab.Answered)
			}
		}
		s.both("web", "tcp", "198.51.100.1", "2001:db8:1::1", 80, lab.Answered)
		s.both("good", "udp", s.Pod("bad").Addr4.String(), s.Pod("bad").Addr6.String(), 8080, lab.Answered)

		// By the name of the pod's port, to every source.
		file := strings.Replace(s.pods["web"].manifest(), "containers: []", "containers: [{name: c, image: i, ports: [{name: http, containerPort: 8081}]}]", 1)
		s.apply(map[string]string{"pod-web.yaml": file, "np.yaml": ingress("np", "\n- ports: [{port: http}]")})
		s.reaches("the named port", s.Pod("bad").Host, "tcp", 8081, lab.Answered)
		s.reaches("the named port", s.World, "tcp", 8081, lab.Answered)
		s.reaches("not the named port", s.Pod("good").Host, "tcp", 8080, lab.Silent)

		// Ordered rules come first, and what they pass on is the NetworkPolicy's.
		s.apply(map[string]string{"np.yaml": ingress("np", fromGood), "cnp.yaml": `
apiVersion: policy.networking.k8s.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: first}
spec:
  tier: Admin
  priority: 1
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}
  ingress:
  - {action: Accept, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: bad}}}}], protocols: [{udp: {destinationPort: {number: 8080}}}]}
  - {action: Pass, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: good}}}}]}
  - {action: Deny, from: [{namespaces: {}}]}
`})
		for _, place := range []string{"", "far"} {
			s.reaches("accepted", s.Pod(place+"bad").Host, "udp", 8080, lab.Answered)
			s.reaches("denied", s.Pod(place+"bad").Host, "tcp", 8080, lab.Silent)
			s.reaches("passed on", s.Pod(place+"good").Host, "tcp", 8080, lab.Answered)
			s.reaches("passed on", s.Pod(place+"good").Host, "udp", 8080, lab.Silent)
		}
		s.reaches("no pod", s.World, "udp", 8080, lab.Answered)
		s.reaches("probes of the node", s.Node, "tcp", 8080, lab.Answered)

		s.apply(map[string]string{"np.yaml": "", "cnp.yaml": ""})
		s.reaches("without policies", s.Pod("farbad").Host, "tcp", 8080, lab.Answered)
		s.reaches("without policies", s.World, "udp", 8081, lab.Answered)
	})
}

// TestIngressAndEgress: a connection between pods of one node needs both of its ends' rules.
func TestIngressAndEgress(t *testing.T) {
	staged(t, onEach, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGood), "good.yaml": egressOf("good", toWebOnly), "bad.yaml": egressOf("bad", toWebOnly)}))
		s.reaches("both allow", s.Pod("good").Host, "tcp", 8080, lab.Answered)
		s.reaches("the destination denies", s.Pod("bad").Host, "tcp", 8080, lab.Silent)
		s.reaches("the destination denies the port", s.Pod("good").Host, "tcp", 8081, lab.Silent)
		s.apply(map[string]string{"good.yaml": egressOf("good", " []")})
		if got := s.Pod("good").Probe("tcp", netip.AddrPortFrom(s.Pod("web").Addr4, 8080)); got == lab.Answered {
			t.Errorf("the source denies: %s", got)
		}
		s.reaches("another node", s.Pod("fargood").Host, "tcp", 8080, lab.Answered)

		// A connection that rules for ingress admitted ends when a policy of Namegate's own isolates its source.
		s.apply(map[string]string{"good.yaml": ""})
		lines := []*line{s.toWeb("good", "tcp", 8080), s.lineTo("web", "tcp", s.Pod("farbad").Host, s.Pod("farbad").Addr4)}
		s.apply(map[string]string{"good.yaml": policy("good", "podSelector: {matchLabels: {app: good}}")})
		s.podNext("the source is isolated", lines[:1], lines[1:])
	})
}

// toWeb opens a connection to a port of web that has an echo server, and tries it.
func (s *peerStage) toWeb(pod, network string, port uint16) *line {
	s.t.Helper()
	l := &line{name: fmt.Sprintf("%s's %s to web", pod, network), client: &end{}, server: &end{}}
	c, err := s.Pod(pod).Dial(network, netip.AddrPortFrom(s.Pod("web").Addr4, port).String(), lab.Limit)
	fatal.If(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	l.conn, l.client.write, l.server.write = c, c.Write, c.Write
	go l.server.hears(c.Read) // the echo
	s.podsReceived("at first", []*line{l})
	return l
}

// TestIngressOfOpenConnections: rules for ingress decide about new connections, and a connection to a pod that is gone
// is a new one to the next pod of its address.
func TestIngressOfOpenConnections(t *testing.T) {
	staged(t, onEach, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{}))
		var lines []*line
		for _, from := range []string{"good", "bad", "fargood", "farbad"} {
			for _, network := range []string{"tcp", "udp"} {
				lines = append(lines, s.toWeb(from, network, 8080), s.lineTo(from, network, s.Pod("web").Host, s.Pod("web").Addr6))
			}
		}
		own := []*line{s.lineTo("web", "tcp", s.Pod("bad").Host, s.Pod("bad").Addr4), s.line("web", "udp", netip.MustParseAddr("198.51.100.1"))}
		goOn := func(when string) {
			t.Helper()
			s.podsReceived(when, lines)
			s.goesOn(when, own...)
		}
		s.apply(map[string]string{"np.yaml": ingress("np", fromGood)})
		goOn("behind a NetworkPolicy")
		s.reaches("a new connection", s.Pod("bad").Host, "tcp", 8080, lab.Silent)
		s.apply(map[string]string{"np.yaml": ingress("np", " []")})
		goOn("behind rules that allow nothing")
		s.reaches("a new connection", s.Pod("good").Host, "tcp", 8080, lab.Silent)
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		fatal.If(t, s.agent.Start())
		goOn("behind another agent")
		s.reaches("a new connection", s.Pod("fargood").Host, "tcp", 8080, lab.Silent)
		fatal.If(t, s.agent.Upgrade())
		goOn("behind the next agent")
		s.reaches("a new connection", s.Pod("bad").Host, "tcp", 8080, lab.Silent)
		s.reaches("the node", s.Node, "tcp", 8080, lab.Answered)
		s.apply(map[string]string{"np.yaml": ""})
		goOn("without rules")
		s.apply(map[string]string{"np.yaml": ingress("np", fromGood)})
		goOn("behind rules once more")

		// Another pod has the address now: the lab keeps the sockets.
		next := strings.ReplaceAll(s.pods["web"].manifest(), s.Pod("web").Name, "next-web")
		next = strings.Replace(next, "name: web\n", "name: next\n", 1)
		s.apply(map[string]string{"pod-web.yaml": "", "pod-next.yaml": next})
		s.podNext("to the next pod of the address", lines[4:8], own)
	})
}

// TestIngressForged: a source that is not the sender's own opens nothing.
func TestIngressForged(t *testing.T) {
	staged(t, onEach, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGood)}))
		web := s.pods["web"]
		arrived := func(proto byte, from, to netip.Addr) int {
			return web.sniffer.SawFlow(lab.Arrival{From: from, To: to, Protocol: proto, Port: 8080})
		}
		for _, from := range []string{"good", "fargood"} {
			for i, source := range []netip.Addr{s.Pod(from).Addr4, s.Pod(from).Addr6} {
				to := []netip.Addr{web.Addr4, web.Addr6}[i]
				before := arrived(6, source, to)
				if err := s.Pod("bad").Forge("tcp", source.String(), netip.AddrPortFrom(to, 8080)); err != nil {
					t.Error(err)
				}
				fatal.If(t, web.sniffer.SettleAt(web.Addr4, s.Node))
				if n := arrived(6, source, to) - before; n != 0 {
					t.Errorf("%d packets with the source %s arrived", n, source)
				}
			}
		}
		for i, source := range []string{"192.168.77.2", "fd00:77::2"} {
			to := []netip.Addr{web.Addr4, web.Addr6}[i]
			before := arrived(17, netip.MustParseAddr(source), to)
			if err := s.Pod("bad").Forge("udp", source, netip.AddrPortFrom(to, 8080)); err != nil {
				t.Error(err)
			}
			fatal.If(t, web.sniffer.SettleAt(web.Addr4, s.Node))
			if n := arrived(17, netip.MustParseAddr(source), to) - before; n != 0 {
				t.Errorf("%d packets with the source %s arrived", n, source)
			}
		}
		s.reaches("with its own source", s.Pod("good").Host, "tcp", 8080, lab.Answered)
	})
}

// TestIngressLostTables: without the tables of rules for ingress nothing new is admitted, and the agent makes them again.
func TestIngressLostTables(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGood)}))
		kept := s.toWeb("good", "tcp", 8080)
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		run(t, s.Node, "nft", "delete", "table", "inet", "namegate")
		s.reaches("without the table", s.Pod("bad").Host, "tcp", 8080, lab.Silent)
		s.reaches("without the table", s.Pod("farbad").Host, "udp", 8080, lab.Silent)
		s.podsReceived("without the table", []*line{kept})
		s.reaches("the node", s.Node, "tcp", 8080, lab.Answered)
		fatal.If(t, s.agent.Start())
		s.podsReceived("with another agent", []*line{kept})
		s.reaches("with another agent", s.Pod("good").Host, "tcp", 8080, lab.Answered)
		s.reaches("with another agent", s.Pod("bad").Host, "tcp", 8080, lab.Silent)
		run(t, s.Node, "nft", "delete", "chain", "inet", "namegate", "ingress-forward")
		until := time.Now().Add(eventLimit)
		for !strings.Contains(run(t, s.Node, "nft", "list", "table", "inet", "namegate"), "chain ingress-forward") {
			if time.Now().After(until) {
				t.Fatal("the chain is not made again")
			}
			time.Sleep(20 * time.Millisecond)
		}
		s.reaches("after the repair", s.Pod("fargood").Host, "tcp", 8080, lab.Answered)
		s.reaches("after the repair", s.Pod("farbad").Host, "tcp", 8080, lab.Silent)
	})
}

// TestIngressOfHostPorts: a port of the node that is led to a pod, as of hostPort, NodePort and externalTrafficPolicy
// Local, keeps the source of its client, for which the pod's rules are asked; the pod itself comes from its own address.
func TestIngressOfHostPorts(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		node4, node6 := netip.MustParseAddr("192.168.77.1"), netip.MustParseAddr("fd00:77::1")
		web := s.pods["web"]
		for _, proto := range []string{"tcp", "udp"} {
			for from, to := range map[netip.Addr]netip.Addr{node4: web.Addr4, node6: web.Addr6} {
				s.services = append(s.services, lab.Service{Addr: from, Protocol: proto, Port: 8090, To: []netip.AddrPort{netip.AddrPortFrom(to, 8080)}})
			}
		}
		fatal.If(t, s.SetServices(s.services...))
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGood)}))
		for _, to := range []netip.Addr{node4, node6} {
			at := netip.AddrPortFrom(to, 8090)
			for from, c := range map[*lab.Host]struct {
				network string
				want    lab.Outcome
			}{
				s.World: {"udp", lab.Answered}, s.Pod("good").Host: {"tcp", lab.Answered}, s.Pod("fargood").Host: {"tcp", lab.Answered},
				s.Pod("bad").Host: {"tcp", lab.Silent}, s.Pod("farbad").Host: {"udp", lab.Silent}, web.Host: {"tcp", lab.Answered},
			} {
				diff.Error(t, c.want, from.ProbeFor(c.network, at, lab.PatienceFor(c.want)), from.Name, c.network, "to", at)
			}
			diff.Error(t, lab.Silent, s.World.Probe("tcp", at), "the world's TCP to", at)
		}
	})
}
