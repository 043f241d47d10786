package scenarios

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// changeStage has a client without allowed destinations, and pods on both nodes: one with
// the label db=yes, one that gets it and one that never has it.
type changeStage struct {
	*peerStage
	clientPod          *peerPod
	dbs, comers, never []*peerPod
}

// The rules of the client's NetworkPolicy of the stage.
var toDB = egress("np", "\n- to: [{podSelector: {matchLabels: {db: \"yes\"}}}]")

func newChangeStage(t *testing.T, kind nodeKind) *changeStage {
	t.Helper()
	s := &changeStage{peerStage: newPeerStage(t, kind)}
	s.clientPod = s.peerStage.client("client", 10)
	for i, place := range unionPlaces {
		remote := place == "remote"
		s.dbs = append(s.dbs, s.server("db-"+place, 20+i, remote, map[string]string{"db": "yes"}, 8080))
		s.comers = append(s.comers, s.server("comer-"+place, 30+i, remote, map[string]string{"db": "no"}, 8080))
		s.never = append(s.never, s.server("never-"+place, 40+i, remote, nil, 8080))
	}
	return s
}

// lines opens lines from the client to pods, every way.
func (s *changeStage) lines(pods ...*peerPod) (out []*line) {
	s.t.Helper()
	for _, p := range pods {
		for _, network := range []string{"tcp", "udp"} {
			for _, to := range []netip.Addr{p.Addr4, p.Addr6} {
				out = append(out, s.lineTo("client", network, p.Host, to))
			}
		}
	}
	return out
}

// oneWay sends datagrams to a pod that never answers, by one socket.
type oneWay struct {
	to   *peerPod
	conn net.Conn
}

// oneWays are the ways from the client to pods, in both families.
func (s *changeStage) oneWays(pods ...*peerPod) (out []oneWay) {
	s.t.Helper()
	for _, p := range pods {
		for _, to := range []netip.Addr{p.Addr4, p.Addr6} {
			silent, err := p.ListenPacket("udp", netip.AddrPortFrom(to, 0).String())
			fatal.If(s.t, err)
			c := s.dial("client", silent.LocalAddr())
			s.t.Cleanup(func() { c.Close(); silent.Close() })
			out = append(out, oneWay{p, c})
		}
	}
	return out
}

// hear asserts whether data sent now arrive.
func (s *changeStage) hear(when string, ways []oneWay, number uint32, want bool) {
	s.t.Helper()
	for i, w := range ways {
		token := lab.Token(0x10000 + number<<8 + uint32(i))
		_, _ = w.conn.Write(token) // returns an earlier refusal, or this one
		_, _ = w.conn.Write(token)
		fatal.If(s.t, w.to.sniffer.SettleAt(w.to.Addr4, s.Node))
		if n := w.to.sniffer.SawToken(token); (n > 0) != want {
			s.t.Errorf("%s: %d datagrams to %s arrived", when, n, w.conn.RemoteAddr())
		}
	}
}

// reach expects an outcome of new connections to pods.
func (s *changeStage) reach(want lab.Outcome, pods ...*peerPod) {
	s.t.Helper()
	for _, p := range pods {
		s.both("client", "tcp", p.Addr4.String(), p.Addr6.String(), 8080, want)
	}
}

func addressesOf(pods []*peerPod) (out []string) {
	for _, p := range pods {
		out = append(out, netip.AddrPortFrom(p.Addr4, 8080).String(), netip.AddrPortFrom(p.Addr6, 8080).String())
	}
	return out
}

// TestPeersComeAndGo: a label, a pod's end and a NetworkPolicy's end add and remove
// peers; connections to removed peers are cut, and no others.
func TestPeersComeAndGo(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newChangeStage(t, kind)
		s.zone.add("steady.example.org. 60 IN A 198.51.100.1\nsteady.example.org. 60 IN AAAA 2001:db8:1::1")
		s.start(s.manifests(map[string]string{"p.yaml": allowNames("p", "client", "steady"), "np.yaml": toDB}))
		s.asksFor("client", "steady")
		named := s.everyWay("client", "steady")
		dbs := s.lines(s.dbs...)
		s.reach(lab.Refused, s.comers...)
		s.reach(lab.Refused, s.never...)
		stop := s.vigil("client", append(addressesOf(s.dbs), steadyAllowed...), append(addressesOf(s.never), steadyDenied...))

		label := func(value string) {
			t.Helper()
			for _, p := range s.comers {
				s.relabel(p.name, map[string]string{"db": value})
			}
		}
		for i, next := range []func(string, []*line, []*line){s.serverNext, s.podNext} {
			label("yes")
			s.reach(lab.Answered, s.comers...)
			comers, oneWay := s.lines(s.comers...), s.oneWays(s.comers...)
			s.hear("while the label is there", oneWay, uint32(10*i), true)
			label("no")
			next("after the label went", comers, append(dbs, named...))
			s.hear("after the label went", oneWay, uint32(10*i+1), false)
			s.reach(lab.Refused, s.comers...)

			label("yes")
			comers = s.lines(s.comers...)
			gone := map[string]string{}
			for _, p := range s.comers {
				gone["pod-"+p.name+".yaml"] = ""
			}
			s.apply(gone)
			next("after the pods' end", comers, append(dbs, named...))
			s.reach(lab.Refused, s.comers...)
		}
		stop("while peers come and go")

		s.apply(map[string]string{"np.yaml": ""})
		half := len(dbs) / 2
		s.serverNext("after the NetworkPolicy's end", dbs[:half], named)
		s.podNext("after the NetworkPolicy's end", dbs[half:], named)
		s.reach(lab.Refused, s.dbs...)
		for _, word := range ofPeers[kind.dataplane] {
			if text := s.kernelText(); strings.Contains(text, word) {
				t.Errorf("%s of peers that nobody asks is left:\n%s", word, text)
			}
		}
	})
}

// TestNetworkPolicyNarrows: a NetworkPolicy that allows less cuts the connections that no
// policy allows any more.
func TestNetworkPolicyNarrows(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newChangeStage(t, kind)
		files := s.manifests(map[string]string{"p.yaml": policy("p", selectsClient), "np.yaml": egress("np", toAll)})
		files["second.yaml"] = egress("second", "\n- to: [{ipBlock: {cidr: 198.51.100.0/24}}, {ipBlock: {cidr: \"2001:db8:1::/64\"}}]\n  ports: [{protocol: UDP}, {protocol: TCP}]")
		s.start(files)
		dbs, others, kept := s.lines(s.dbs...), s.lines(s.comers...), s.everyWay("client", "kept")
		s.apply(map[string]string{"np.yaml": toDB})
		half := len(others) / 2
		s.serverNext("after every destination became one label", others[:half], append(dbs, kept...))
		s.podNext("after every destination became one label", others[half:], append(dbs, kept...))
		// The same peers with ports that the lines have not.
		s.apply(map[string]string{"np.yaml": toDB + "    ports: [{port: 8080}]\n"})
		s.serverNext("after the ports were narrowed", dbs[:half], kept)
		s.podNext("after the ports were narrowed", dbs[half:], kept)
		s.reach(lab.Answered, s.dbs...)
		s.apply(map[string]string{"second.yaml": "", "np.yaml": egress("np", " []")})
		s.serverNext("after nothing is allowed any more", kept, nil)
		s.reach(lab.Refused, s.dbs...)
	})
}

// TestSelectedPodKeepsPeers: a pod that becomes selected, by its first policy or by its
// node's first agent, keeps its connections to peers and loses the others.
func TestSelectedPodKeepsPeers(t *testing.T) {
	t.Parallel()
	for _, comes := range []string{"policy", "agent"} {
		t.Run(comes, func(t *testing.T) {
			t.Parallel()
			eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
				s := newChangeStage(t, kind)
				s.service(1, servicePort, s.dbs[0], 8080) // a node that translates knows connections
				first, then := map[string]string{"np.yaml": toDB}, map[string]string{"p.yaml": policy("p", selectsClient)}
				if comes == "policy" {
					s.start(s.manifests(first))
				} else {
					fatal.If(t, s.Ready())
				}
				dbs, never := s.lines(s.dbs...), s.lines(s.never...)
				if comes == "policy" {
					stop := s.vigil("client", addressesOf(s.dbs), nil)
					s.apply(then)
					stop("while the pod becomes selected")
				} else { // new connections may be refused until the first rules are whole
					maps.Copy(then, first)
					s.start(s.manifests(then))
				}
				half := len(never) / 2
				s.serverNext("after the selection", never[:half], dbs)
				s.podNext("after the selection", never[half:], dbs)
				s.reach(lab.Refused, s.never...)
				s.reach(lab.Answered, s.dbs...)
			})
		})
	}
}

// TestRepliesAdmitNothing: a selected pod's replies on another's connection do not admit
// that connection, also if the selected pod might have opened it itself.
func TestRepliesAdmitNothing(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newChangeStage(t, kind)
		s.clientPod.labels = map[string]string{"app": "free"} // unselected at first
		db := s.dbs[0]                                        // on this node
		s.start(s.manifests(map[string]string{
			"db.yaml": policy("db", "podSelector: {matchLabels: {db: \"yes\"}}"),
			"np.yaml": networkPolicy("np", "podSelector: {matchLabels: {db: \"yes\"}}\npolicyTypes: [Egress]\negress: [{}]"),
			"p.yaml":  policy("p", selectsClient),
		}))
		toDB, others := s.lines(db), s.lines(s.never[1])
		s.goesOn("before the client is selected", toDB...)
		s.noneAdmitted([]netip.Addr{s.clientPod.Addr4, s.clientPod.Addr6})
		s.relabel("client", map[string]string{"app": "client"})
		half := len(toDB) / 2
		s.serverNext("after the client was selected", append(toDB[:half:half], others[:half]...), nil)
		s.podNext("after the client was selected", append(toDB[half:], others[half:]...), nil)
	})
}

// TestPeersWithoutAgent: an agent's end changes nothing, the next one cuts connections to
// peers removed meanwhile, and no allowed connection is lost.
func TestPeersWithoutAgent(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(s *changeStage, files map[string]string) error{
		"killed":   killedBetween,
		"upgraded": func(s *changeStage, files map[string]string) error { return s.agent.Upgrade() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
				s := newChangeStage(t, kind)
				for _, p := range s.comers {
					p.labels = map[string]string{"db": "yes"}
				}
				s.start(s.manifests(map[string]string{"p.yaml": policy("p", selectsClient), "np.yaml": toDB}))
				dbs, comers := s.lines(s.dbs...), s.lines(s.comers...)
				stop := s.vigil("client", addressesOf(s.dbs), addressesOf(s.never))
				away := map[string]string{}
				for _, p := range s.comers {
					p.labels = nil
					away["pod-"+p.name+".yaml"] = p.manifest()
				}
				fatal.If(t, next(s, away))
				if name == "killed" {
					half := len(comers) / 2
					s.serverNext("after the next agent", comers[:half], dbs)
					s.podNext("after the next agent", comers[half:], dbs)
					s.reach(lab.Refused, s.comers...)
				} else {
					s.goesOn("after the upgrade", slices.Concat(dbs, comers)...)
				}
				stop("while agents follow each other")
			})
		})
	}
}

// killedBetween kills the agent, changes the folder, and starts the next.
func killedBetween(s *changeStage, files map[string]string) error {
	if err := s.agent.Stop(syscall.SIGKILL); err != nil {
		return err
	}
	s.reach(lab.Answered, s.dbs...)
	s.reach(lab.Refused, s.never...)
	if err := s.agent.Write(files); err != nil {
		return err
	}
	return s.agent.Start()
}

// TestPeersAreCleanedUp: the kernel's peer sets are removed with the rest.
func TestPeersAreCleanedUp(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newChangeStage(t, kind)
		s.start(s.manifests(map[string]string{
			"p.yaml":  policy("p", selectsClient),
			"np.yaml": toDB + "  - to: [{ipBlock: {cidr: 0.0.0.0/0, except: [198.51.100.0/24]}}]\n  - ports: [{port: http}]\n",
		}))
		s.reach(lab.Answered, s.dbs...)
		for _, word := range ofPeers[kind.dataplane] {
			if text := s.kernelText(); !strings.Contains(text, word) {
				t.Errorf("no %s of peers in\n%s", word, text)
			}
		}
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		if out, err := s.Node.Run(agentBinary, "cleanup", "--config", s.agent.Dir+"/Corefile", "--socket", s.agent.Socket()); err != nil || out != "" {
			t.Fatalf("cleanup: %v %s", err, out)
		}
		if left := traces(s.kernelText()); left != "" {
			t.Errorf("left: %s", left)
		}
		s.reach(lab.Answered, s.never...)
	})
}

// TestPeersBesideFelix: what takes away and cuts is no rule of the other engine's to
// undo, though established packets leave mangle above ours.
func TestPeersBesideFelix(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newChangeStage(t, kind)
		np := parsed[networkingv1.NetworkPolicy](t, egress("np", toAll))
		s.withEngine(lab.Felix)
		s.obeys(np)
		s.start(s.manifests(map[string]string{"np.yaml": egress("np", toAll)}))
		dbs, comers, never := s.lines(s.dbs...), s.lines(s.comers...), s.lines(s.never...)
		s.apply(map[string]string{"p.yaml": policy("p", selectsClient)})
		s.goesOn("after the selection", slices.Concat(dbs, comers, never)...)
		s.apply(map[string]string{"np.yaml": toDB})
		s.serverNext("after the NetworkPolicy allows less", comers, dbs)
		s.podNext("after the NetworkPolicy allows less", never, dbs)
		s.reach(lab.Refused, s.comers...)
		s.reach(lab.Answered, s.dbs...)
	})
}

// TestPeersComeBack: what somebody takes out of the kernel is there again, and
// meanwhile denied is denied.
func TestPeersComeBack(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newChangeStage(t, kind)
		s.start(s.manifests(map[string]string{"p.yaml": policy("p", selectsClient), "np.yaml": toDB}))
		dbs := s.lines(s.dbs...)
		for _, shell := range map[string][]string{
			iptables: {
				`for s in $(ipset list -n | grep -E '^NG[46]-p-'); do ipset flush $s || exit 1; done; ipset list -n | grep -q '^NG4-p-'`,
				`for s in $(ipset list -n | grep -E '^NG4-p-'); do ipset add $s ` + s.never[0].Addr4.String() + ` || exit 1; done`,
				`for p in iptables ip6tables; do $p -t mangle -F NAMEGATE-PEERS || exit 1; done`,
			},
			nftables: {
				eachNamed("set", "peers-", "nft flush set inet namegate $n"),
				eachNamed("set", "peers-.*-4", "nft add element inet namegate $n { "+s.never[0].Addr4.String()+" }"),
				eachNamed("chain", "list-", "nft flush chain inet namegate $n"),
			},
		}[kind.dataplane] {
			before := s.status()
			if out, err := s.Node.Run("sh", "-c", shell); err != nil {
				t.Fatal(out, err)
			}
			fatal.If(t, s.agent.WaitFor("the repair", func(st lab.Status) bool { return st.Enforcer.Repairs > before.Enforcer.Repairs }))
			for _, to := range addressesOf(s.dbs) {
				s.eventually("client", to, lab.Answered)
			}
			s.reach(lab.Refused, s.never...)
			s.reach(lab.Refused, s.comers...)
			s.goesOn("after the repair", dbs...)
		}
	})
}
