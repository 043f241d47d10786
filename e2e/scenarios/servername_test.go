package scenarios

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// What destinations see of relayed connections.
const nodeSeen4, nodeSeen6 = " 192.168.77.1", " fd00:77::1"

// www4 and www6 are the echo at the address of www and cdn.
const www4, www6 = "198.51.100.1:8444", "[2001:db8:1::1]:8444"

// claims are what the lines of the log say of connections: "POD DESTINATION REASON SERVERNAME".
func (s *stage) claims() (out []string) {
	s.t.Helper()
	lines, err := s.agent.AuditLines()
	fatal.If(s.t, err)
	for _, l := range lines {
		if l["kind"] == "flow" {
			to := l["destination"].(map[string]any)
			name, _ := l["server_name"].(string)
			out = append(out, fmt.Sprint(l["pod"].(map[string]any)["name"], " ", to["address"], " ", l["reason"], " ", name))
		}
	}
	return out
}

// awaitClaim waits for a line about a connection.
func (s *stage) awaitClaim(want string) {
	s.t.Helper()
	for until := time.Now().Add(eventLimit); !slices.Contains(s.claims(), want); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			s.t.Errorf("no line %q among %q", want, s.claims())
			return
		}
	}
}

// TestServerNames: a connection that a rule with serverName opens needs a name that its pod holds by such a rule; the
// destination sees the node. A denied one is reset, nothing of it arrives, and the log has the claimed name.
func TestServerNames(t *testing.T) {
	staged(t, onRouted, newServerNameStage, func(t *testing.T, s *serverNameStage) {
		world := s.sniff(s.World, "eth0")
		for pod, names := range map[string][]string{"a": {"cdn.example.org", "never.example.org", ""}, "b": {"www.example.org"}} {
			for _, name := range names {
				s.greets(pod, www4, name, "")
				s.greets(pod, www6, name, "")
				s.awaitClaim(pod + " 198.51.100.1 serverName " + name)
				s.awaitClaim(pod + " 2001:db8:1::1 serverName " + name)
			}
		}
		c, err := s.Pod("a").Dial("tcp", www4, lab.Limit)
		fatal.If(t, err)
		defer c.Close()
		if got := lab.Echo(c, lab.Limit); got != lab.Refused {
			t.Errorf("a connection without TLS: %s", got)
		}
		s.expect("a", "tcp", "198.51.100.1:443", lab.Refused) // no port of the rule
		s.expect("a", "udp", www4, lab.Refused)
		s.expect("a", "tcp", "198.51.100.2:8444", lab.Refused)
		fatal.If(t, world.Settle(s.Node))
		for _, a := range []string{"198.51.100.1", "2001:db8:1::1", "198.51.100.2"} {
			if n := world.Saw(netip.MustParseAddr(a)); n > 0 {
				t.Errorf("%d packets of denied connections arrived at %s", n, a)
			}
		}
		s.greets("a", www4, "www.example.org", "www.example.org"+nodeSeen4)
		s.greets("a", www6, "www.example.org", "www.example.org"+nodeSeen6)
		s.greets("a", www4, "WWW.Example.Org", "WWW.Example.Org"+nodeSeen4)
		s.greets("b", www4, "cdn.example.org", "cdn.example.org"+nodeSeen4)
	})
}

// TestServerNameBesidePlainRule: a name that another rule opens without serverName is connected to directly, also at
// an address of a rule with it, and whatever the server name is.
func TestServerNameBesidePlainRule(t *testing.T) {
	staged(t, onRouted, newServerNameStage, func(t *testing.T, s *serverNameStage) {
		plain := policy("plain", "podSelector: {matchLabels: {app: client}}\negress:\n- matches: [{name: plain.example.org}]\n  ports: [{protocol: TCP, port: 8444}]")
		s.apply(map[string]string{"plain.yaml": plain})
		s.resolve("a", "plain.example.org", dns.TypeA)
		s.greets("a", "198.51.100.3:8444", "never.example.org", "never.example.org "+s.Pod("a").Addr4.String())
		s.greets("a", www4, "plain.example.org", "")
		s.apply(map[string]string{"plain.yaml": strings.ReplaceAll(plain, "plain.example.org", "cdn.example.org")})
		s.resolve("a", "cdn.example.org", dns.TypeA)
		c := s.opened("a", www4, "never.example.org")
		// What was open while the plain rule was there is not checked after it: it ends.
		s.apply(map[string]string{"plain.yaml": ""})
		s.isCut(c, "that a plain rule had opened")
		s.greets("a", www4, "never.example.org", "")
		s.greets("a", www4, "www.example.org", "www.example.org"+nodeSeen4)
	})
}

// TestServerNameAudited: an Audit policy logs what it would deny of connections that are led to the agent by where they
// really go, whether they are checked or not, and checks nothing itself.
func TestServerNameAudited(t *testing.T) {
	staged(t, onRouted, newServerNameStage, func(t *testing.T, s *serverNameStage) {
		s.apply(map[string]string{
			"deny.yaml": `apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: deny}
spec: {tier: Admin, priority: 1, enforcement: Audit, subject: {namespaces: {}}, egress: [{name: cdn, action: Deny, networks: [198.51.100.1/32]}]}
`,
			"watch.yaml": requires("watch", "watched", "www.example.org") + "  enforcement: Audit\n",
			"c.yaml":     s.addPod("c", 9).Manifest("shop", "c", map[string]string{"app": "watched"}),
		})
		s.resolve("c", "www.example.org", dns.TypeA)
		s.resolve("c", "www.example.org", dns.TypeAAAA)
		s.greets("a", www4, "www.example.org", "www.example.org"+nodeSeen4)
		s.greets("a", www6, "www.example.org", "www.example.org"+nodeSeen6)
		s.greets("c", www6, "never.example.org", "never.example.org "+s.Pod("c").Addr6.String())
		s.greets("c", www4, "never.example.org", "never.example.org "+s.Pod("c").Addr4.String())
		s.awaitClaim("a 198.51.100.1 rule ")
		s.awaitClaim("c 198.51.100.1 rule ")
		if got := s.claims(); slices.ContainsFunc(got, func(c string) bool { return strings.Contains(c, "2001:db8:1::1") }) {
			t.Errorf("lines %q", got)
		}
	})
}

// isCut asserts that a connection ends for its client.
func (s *stage) isCut(c net.Conn, what string) {
	s.t.Helper()
	_ = c.SetDeadline(time.Now().Add(lab.Limit))
	for {
		if _, err := fmt.Fprintln(c, "more"); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if _, err := c.Read(make([]byte, 64)); errors.Is(err, os.ErrDeadlineExceeded) {
			s.t.Errorf("a connection %s goes on, or is silent", what)
			return
		} else if err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestRelayedConnectionIsCut: what takes the right to an address, or to a name, away from a pod ends its open
// connections at both ends, and no other.
func TestRelayedConnectionIsCut(t *testing.T) {
	deny := `apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: deny}
spec:
  tier: Admin
  priority: 1
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}}
  egress:
  - {action: Deny, networks: [198.51.100.0/24]}
`
	staged(t, onRouted, newServerNameStage, func(t *testing.T, s *serverNameStage) {
		back := map[string]string{"www.yaml": requires("www", "client", "www.example.org"), "a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}), "deny.yaml": ""}
		neighbour := s.opened("b", www4, "cdn.example.org")
		for what, change := range map[string]map[string]string{
			"of a revoked policy":                {"www.yaml": requires("www", "client", "else.example.org")},
			"of a pod without its label":         {"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "other"})},
			"to a network that an Admin denies":  {"deny.yaml": deny},
			"of a rule that another name shares": {"www.yaml": requires("www", "client", "cdn.example.org")},
		} {
			c, before := s.opened("a", www4, "www.example.org"), s.ended("www.example.org")
			s.apply(change)
			s.isCut(c, what)
			s.until("the end at the server of a connection "+what, func(int) bool { return s.ended("www.example.org") > before })
			s.greets("a", www4, "www.example.org", "")
			s.apply(back)
			s.resolve("a", "www.example.org", dns.TypeA)
			s.greets("a", www4, "www.example.org", "www.example.org"+nodeSeen4)
		}
		if got := lab.Echo(neighbour, lab.Limit); got != lab.Answered {
			t.Errorf("the connection of another pod: %s", got)
		}
	})
}

// relayPort is the port of the agent's listener.
const relayPort = 9955

// relays returns the addresses of the node that the agent took, each of which may be its listener's.
func (s *stage) relays() (out []netip.AddrPort) {
	s.t.Helper()
	for _, line := range strings.Split(run(s.t, s.Node, "ip", "-o", "addr", "show"), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		if p, err := netip.ParsePrefix(fields[3]); err == nil && (netip.MustParsePrefix("169.254.20.0/24").Contains(p.Addr()) || netip.MustParsePrefix("fd5c:7a1e:93b4::/48").Contains(p.Addr())) {
			out = append(out, netip.AddrPortFrom(p.Addr(), relayPort))
		}
	}
	return out
}

// notDialled asserts that no connection to the agent's listener is made but by the lead.
func (s *stage) notDialled(when string) {
	s.t.Helper()
	all := s.relays()
	var tries sync.WaitGroup
	for _, h := range []*lab.Host{s.Pod("a").Host, s.Pod("b").Host, s.Pod("free").Host, s.Node, s.World} {
		for _, to := range all {
			tries.Go(func() {
				if c, err := h.Dial("tcp", to.String(), lab.Patience); err == nil {
					s.t.Errorf("%s: %s connects to %s", when, h.Name, to)
					c.Close()
				}
			})
		}
	}
	tries.Wait()
	if len(all) < 4 {
		s.t.Errorf("%s: the node has the addresses %v alone", when, all)
	}
}

// TestServerNamesWithoutAgent: the listener admits what the kernel leads to it alone. Without an agent, what it would
// check is denied, and the next agent, which finds what the last one left, checks again.
func TestServerNamesWithoutAgent(t *testing.T) {
	staged(t, onRouted, newServerNameStage, func(t *testing.T, s *serverNameStage) {
		s.addPod("free", 9)
		fatal.If(t, s.Ready())
		fatal.If(t, s.World.IP("route", "add", "169.254.20.0/24", "via", "192.168.77.1"))
		s.greets("a", www4, "www.example.org", "www.example.org"+nodeSeen4)
		s.notDialled("with an agent")
		c := s.opened("a", www4, "www.example.org")
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		s.isCut(c, "of a killed agent")
		for _, to := range []string{www4, www6} {
			if c, _, err := s.hello("a", to, "www.example.org"); err == nil {
				t.Error("a connection without an agent")
				c.Close()
			}
		}
		s.notDialled("without an agent")
		left := len(s.relays())
		fatal.If(t, s.agent.Start())
		s.greets("a", www4, "www.example.org", "www.example.org"+nodeSeen4)
		s.greets("a", www6, "cdn.example.org", "")
		diff.Equal(t, left, len(s.relays()), "addresses of the agents")
		// Where no rule asks for it, nothing of it stays.
		s.apply(map[string]string{"www.yaml": "", "cdn.yaml": ""})
		s.until("the end of the listener's addresses", func(int) bool { return len(s.relays()) == left-2 })
		fatal.If(t, s.agent.Stop(syscall.SIGTERM))
		run(t, s.Node, agentBinary, "cleanup", "--config", s.agent.Dir+"/Corefile", "--socket", s.agent.Socket())
		diff.Equal(t, 0, len(s.relays()), "addresses after cleanup")
	})
}

// TestServerNamesInUpgrade: connections that begin while agents follow each other are not refused; those of before last
// until the grace of the previous agent ends, and then are reset.
func TestServerNamesInUpgrade(t *testing.T) {
	staged(t, onRouted, newServerNameStage, func(t *testing.T, s *serverNameStage) {
		stop, begun := make(chan struct{}), atomic.Int64{}
		var clients []<-chan error
		for range 8 {
			clients = append(clients, begin(func() error {
				for !ended(stop) {
					c, _, err := s.hello("a", www4, "www.example.org")
					if err != nil {
						return err
					}
					begun.Add(1)
					c.Close()
				}
				return nil
			}))
		}
		for range 2 {
			old, began := s.opened("a", www4, "www.example.org"), time.Now()
			upgraded := begin(s.agent.Upgrade) // which ends with the previous agent
			for since := began; time.Since(since) < 2*time.Second; time.Sleep(20 * time.Millisecond) {
				if got := lab.Echo(old, lab.Limit); got != lab.Answered {
					t.Fatalf("after %v, a connection of the previous agent: %s", time.Since(began), got)
				}
			}
			fatal.If(t, <-upgraded)
			if took := time.Since(began); took < 3*time.Second {
				t.Errorf("the previous agent ended after %v, with an open connection", took)
			}
			s.isCut(old, "of the previous agent after its end")
		}
		close(stop)
		for _, c := range clients {
			if err := <-c; err != nil {
				t.Errorf("one of %d connections was refused: %v", begun.Load(), err)
			}
		}
		t.Logf("%d connections began", begun.Load())
	})
}

// TestServerNameRevokedInUpgrade: a policy that is revoked while the previous agent serves its last connections ends them.
func TestServerNameRevokedInUpgrade(t *testing.T) {
	patient := func(t *testing.T, kind nodeKind) *serverNameStage { return serverNamesWith(t, kind, "grace 8s") }
	staged(t, onRouted, patient, func(t *testing.T, s *serverNameStage) {
		old, neighbour := s.opened("a", www4, "www.example.org"), s.opened("b", www4, "cdn.example.org")
		upgraded := begin(s.agent.Upgrade)
		s.until("the previous agent waits for its connections", func(int) bool { return strings.Contains(s.agent.Log(), "stay open") })
		s.apply(map[string]string{"www.yaml": requires("www", "client", "else.example.org")})
		s.isCut(old, "of the previous agent, whose policy is revoked")
		if got := lab.Echo(neighbour, lab.Limit); got != lab.Answered {
			t.Errorf("the connection of another pod: %s", got)
		}
		fatal.If(t, <-upgraded)
	})
}

// TestServerNameFlood: a pod that takes all hellos and connections that it can get costs its neighbour nothing, and its
// own further ones are logged.
func TestServerNameFlood(t *testing.T) {
	small := func(t *testing.T, kind nodeKind) *serverNameStage {
		return serverNamesWith(t, kind, "connections 40\n        connections_per_pod 20\n        hellos 16\n        hellos_per_pod 8")
	}
	staged(t, onRouted, small, func(t *testing.T, s *serverNameStage) {
		s.floods(func(over <-chan struct{}) { // hellos that never come
			for !ended(over) {
				var all sync.WaitGroup
				for range 40 {
					all.Go(func() {
						if c, err := s.Pod("b").Dial("tcp", www4, lab.Limit); err == nil {
							_, _ = c.Read(make([]byte, 1)) // up to the reset
							c.Close()
						}
					})
				}
				all.Wait()
			}
		})
		s.awaitClaim("b 198.51.100.1 limit ")
		for range 100 {
			s.greets("a", www4, "www.example.org", "www.example.org"+nodeSeen4)
		}
		for range 20 {
			s.opened("a", www4, "www.example.org")
		}
		s.greets("a", www4, "www.example.org", "")
		s.awaitClaim("a 198.51.100.1 limit ")
	})
}

// TestDomainFronting shows what serverName does not stop: inside TLS, a client may ask for another name that the same
// server has. Namegate sees the name that the client claims to the server, and not what it asks for then.
func TestDomainFronting(t *testing.T) {
	needed(t, "curl")
	staged(t, onRouted, newServerNameStage, func(t *testing.T, s *serverNameStage) {
		curl := func(host string, args ...string) (string, error) {
			args = append(args, "-sS", "--cacert", s.ca, "--resolve", host+":8443:198.51.100.1", "https://"+host+":8443/")
			return s.Pod("a").Run("curl", args...)
		}
		out, err := curl("www.example.org", "-H", "Host: cdn.example.org")
		if err != nil || !strings.HasPrefix(out, "www.example.org cdn.example.org 192.168.77.1 ") {
			t.Errorf("another name in the Host header: %q, %v", out, err)
		}
		if out, err := curl("cdn.example.org"); err == nil {
			t.Errorf("another server name: %q", out)
		}
	})
}
