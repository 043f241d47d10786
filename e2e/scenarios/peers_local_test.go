package scenarios

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/lab"
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
	toAllPods  = "\n- to: [{namespaceSelector: {}}]"
	toAll      = "\n- {}"
	toNode     = "\n- to: [{ipBlock: {cidr: 192.168.77.1/32}}, {ipBlock: {cidr: \"fd00:77::1/128\"}}]"
	toAllButIt = "\n- to: [{ipBlock: {cidr: 0.0.0.0/0, except: [169.254.169.254/32]}}, {ipBlock: {cidr: \"::/0\", except: [\"fd00:ec2::254/128\"]}}]"
)

// TestNodeLocal: a pod reaches its own node by a rule for the node's address alone, and
// the node reaches the pod whatever is written.
func TestNodeLocal(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, kind nodeKind) {
		s := newPeerStage(t, kind)
		s.serves(s.Node, 8080)
		a := s.server("client", 10, false, map[string]string{"app": "client"}, 8080)
		s.start(s.manifests(map[string]string{"p.yaml": policy("p", selectsClient)}))
		probed := func(when string) {
			t.Helper()
			for _, to := range []netip.Addr{a.Addr4, a.Addr6} {
				for _, proto := range []string{"tcp", "udp", "icmp"} {
					if got := s.Node.ProbeFor(proto, netip.AddrPortFrom(to, 8080), lab.Limit); got != lab.Answered {
						t.Errorf("%s: the node's probe of %s by %s: %s", when, to, proto, got)
					}
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
	t.Parallel()
	onEach(t, func(t *testing.T, kind nodeKind) {
		s := newPeerStage(t, kind)
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

// TestMetadataByNetworkPolicy: a rule for everywhere is one for the metadata address
// too, and an exception is one.
func TestMetadataByNetworkPolicy(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, kind nodeKind) {
		s := newPeerStage(t, kind)
		fatal.If(t, s.World.IP("-6", "route", "add", "local", "fd00:ec2::254/128", "dev", "lo"))
		s.client("client", 10)
		s.start(s.manifests(map[string]string{"p.yaml": policy("p", selectsClient)}))
		for _, c := range []struct {
			rules               string
			metadata, elsewhere lab.Outcome
		}{
			{" []", lab.Refused, lab.Refused},
			{toAll, lab.Answered, lab.Answered},
			{"\n- ports: [{port: 80}]", lab.Answered, lab.Answered},
			{"\n- ports: [{port: 443}]", lab.Refused, lab.Refused},
			{toAllButIt, lab.Refused, lab.Answered},
			{toAllPods, lab.Refused, lab.Refused},
			// One policy's exceptions may be allowed by another.
			{toAllButIt + "\n- to: [{ipBlock: {cidr: 169.254.0.0/16}}, {ipBlock: {cidr: \"fd00:ec2::/32\"}}]", lab.Answered, lab.Answered},
		} {
			s.apply(map[string]string{"np.yaml": egress("np", c.rules)})
			s.both("client", "tcp", metadata(false).String(), metadata(true).String(), 80, c.metadata)
			s.both("client", "tcp", "198.51.100.9", "2001:db8:9::9", 80, c.elsewhere)
		}
	})
}

// TestNoPeers: pods on the host network, finished pods and companions' rules are no
// peers.
func TestNoPeers(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newPeerStage(t, kind)
		s.client("client", 10)
		s.serves(s.Node, 8080)
		ended, peer := s.server("ended", 20, true, map[string]string{"app": "server"}, 8080), s.server("peer", 21, true, map[string]string{"app": "server"}, 8080)
		companion := "podSelector: {matchLabels: {app: client}}\npolicyTypes: [Egress]\negress: [{}]"
		files := s.manifests(map[string]string{
			"p.yaml":  policy("p", selectsClient),
			"np.yaml": egress("np", toAllPods+"\n- to: [{podSelector: {}}]"),
			"host.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: host, namespace: shop, labels: {app: server}}\nspec: {hostNetwork: true, nodeName: node-a}\n" +
				"status: {phase: Running, podIPs: [{ip: 192.168.77.1}, {ip: \"fd00:77::1\"}]}\n",
			"by-name.yaml":  networkPolicy("namegate-dns-0123456789abcdef", companion),
			"by-label.yaml": strings.Replace(networkPolicy("labelled", companion), "namespace: shop}", "namespace: shop, labels: {app.kubernetes.io/managed-by: namegate}}", 1),
		})
		files["pod-ended.yaml"] = strings.Replace(files["pod-ended.yaml"], "phase: Running", "phase: Succeeded", 1)
		s.start(files)
		reach := func(to4, to6 netip.Addr, want lab.Outcome) {
			t.Helper()
			s.both("client", "tcp", to4.String(), to6.String(), 8080, want)
		}
		reach(peer.Addr4, peer.Addr6, lab.Answered)
		reach(ended.Addr4, ended.Addr6, lab.Refused)
		reach(netip.MustParseAddr("192.168.77.1"), netip.MustParseAddr("fd00:77::1"), lab.Refused)
		s.both("client", "tcp", "198.51.100.9", "2001:db8:9::9", 80, lab.Refused)
		named := 0
		for _, p := range s.status().Problems {
			if strings.Contains(p.Object, "namegate-dns-0123456789abcdef") || strings.Contains(p.Object, "shop/labelled") {
				named++
			}
		}
		if named != 2 {
			t.Errorf("problems %+v: who is left out is not told", s.status().Problems)
		}
		s.apply(map[string]string{"pod-ended.yaml": s.pods["ended"].manifest()})
		reach(ended.Addr4, ended.Addr6, lab.Answered)
	})
}
