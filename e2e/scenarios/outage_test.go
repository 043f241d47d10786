package scenarios

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// refuseOthers distinguishes the agent's answers from the resolver's: only the agent
// refuses names without a match.
const refuseOthers = allowWWW + `
dns: {unmatched: Refuse}`

const (
	// switchTime is longer than the dead-man switch takes to act.
	switchTime = 4 * time.Second
	// outageLimit is the longest time without an answer while the switch acts, counted in
	// queries at their client's rate.
	outageLimit = 10 * time.Second
)

// client is a resolver's client in a pod that keeps one socket.
type client struct {
	t *testing.T
	c net.Conn
}

func (s *stage) client(pod string, resolver netip.Addr) *client {
	s.t.Helper()
	c, err := s.Pod(pod).Dial("udp", netip.AddrPortFrom(resolver, 53).String(), lab.Limit)
	fatal.If(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	return &client{s.t, c}
}

// rcode asks for a name that no policy matches, -1 for no answer in time.
func (c *client) rcode(patience time.Duration) int {
	r, err := lab.Exchange(c.c, "other.example.org", dns.TypeA, patience)
	if err != nil {
		return -1
	}
	return r.Rcode
}

// becomes waits until one of the client's answers has an rcode. A query may be lost
// meanwhile; a slow machine gets ever more time for one.
func (c *client) becomes(what string, rcode int) {
	c.t.Helper()
	start, patience, last := time.Now(), 300*time.Millisecond, 0
	for time.Since(start) < eventLimit {
		if last = c.rcode(patience); last == rcode {
			return
		}
		time.Sleep(50 * time.Millisecond)
		patience = min(2*patience, lab.Limit)
	}
	c.t.Errorf("%s: rcode %d after %v, want %d", what, last, eventLimit, rcode)
}

func outageStage(t *testing.T, kind nodeKind) (*stage, []*client) {
	s := newStageOf(t, kind)
	s.zone.add(`
		www.example.org. 60 IN A 198.51.100.1
		other.example.org. 60 IN A 198.51.100.2
		short.example.org. 1 IN A 198.51.100.3`)
	s.start(map[string]string{
		"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
	})
	// Sockets from before the pod is selected, with a connection tracked to the
	// resolver itself.
	early4, early6 := s.client("a", lab.Resolver4), s.client("a", lab.Resolver6)
	early4.becomes("an unselected pod asks", dns.RcodeSuccess)
	early6.becomes("an unselected pod asks", dns.RcodeSuccess)
	s.apply(map[string]string{"policy.yaml": policy("edges", edgesPolicy)})
	late := s.client("a", lab.Resolver4)
	clients := []*client{early4, early6, late}
	for _, c := range clients {
		c.becomes("a selected pod asks", dns.RcodeRefused)
	}
	s.resolve("a", "www.example.org", dns.TypeA)
	s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
	return s, clients
}

func (s *stage) enforced(when string) {
	s.t.Helper()
	s.t.Log(when)
	s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
	s.expect("a", "tcp", "198.51.100.2:80", lab.Refused)
	s.expect("a", "tcp", "[2001:db8::99]:80", lab.Refused)
}

// outage stops and restarts the agent while the pod probes and queries all the time.
// Meanwhile the hold extends a grant, and an exact name moves: when the agent is back the
// old grant ends and the new address is open, without a query of the pod.
func (s *stage) outage(what string, goes, comes func()) {
	s.t.Helper()
	asked := s.disturbed(what, outageLimit, []string{"other.example.org"}, func() {
		s.resolve("a", "short.example.org", dns.TypeA)
		granted := time.Now()
		goes()
		s.moves(600, "198.51.100.9", "short.example.org")    // open for as long as a slow machine looks for it
		time.Sleep(time.Until(granted.Add(3 * time.Second))) // the deadline is over
		s.expect("a", "tcp", "198.51.100.3:80", lab.Answered)
		s.expect("a", "tcp", "198.51.100.9:80", lab.Refused)
		comes()
		s.eventually("a", "198.51.100.9:80", lab.Answered)
		s.eventually("a", "198.51.100.3:80", lab.Refused)
	})
	if asked.rcodes[dns.RcodeSuccess] == 0 || asked.rcodes[dns.RcodeRefused] == 0 {
		s.t.Errorf("%s: answers by both the agent and the resolver: %+v", what, asked)
	}
}

// TestAgentStopped: after an agent is killed, or hangs, enforcement continues and queries
// go to the resolver, until it or the next one is there.
func TestAgentStopped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		goes, comes func(*stage) error
		each        eachOf
	}{
		"killed":  {func(s *stage) error { return s.agent.Stop(syscall.SIGKILL) }, func(s *stage) error { return s.agent.Start() }, onEach},
		"stopped": {func(s *stage) error { return s.agent.Signal(syscall.SIGSTOP) }, func(s *stage) error { return s.agent.Signal(syscall.SIGCONT) }, onRouted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.each(t, func(t *testing.T, kind nodeKind) {
				s, clients := outageStage(t, kind)
				becomes := func(when string, rcode int) {
					for _, client := range clients {
						client.becomes(when, rcode)
					}
					s.enforced(when)
				}
				s.outage(name, func() {
					fatal.If(t, c.goes(s))
					s.enforced("at once")
					becomes("while the agent is away", dns.RcodeSuccess)
				}, func() {
					fatal.If(t, c.comes(s))
					becomes("with an agent again", dns.RcodeRefused)
				})
			})
		})
	}
}

// TestOrderlyExitAndCleanup: cleanup removes everything, also where the programs of iptables
// and ipset are missing.
func TestOrderlyExitAndCleanup(t *testing.T) {
	t.Parallel()
	path, err := lab.OnlyPrograms(t.TempDir(), "nft")
	fatal.If(t, err)
	for name, c := range map[string]struct {
		path string
		each eachOf
	}{
		"all programs": {"PATH=" + os.Getenv("PATH"), onEach}, "nft alone": {path, onRouted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orderlyExitAndCleanup(t, c.path, c.each)
		})
	}
}

func orderlyExitAndCleanup(t *testing.T, path string, each eachOf) {
	each(t, func(t *testing.T, kind nodeKind) {
		s, clients := outageStage(t, kind)
		fatal.If(t, s.agent.Stop(syscall.SIGTERM))
		for _, c := range clients {
			// The first query: the agent was to end interception before its exit.
			diff.Equal(t, dns.RcodeSuccess, c.rcode(lab.Limit), "after an orderly exit: rcode")
		}
		s.enforced("after the agent's exit")
		if out, err := s.Node.Run("env", path, agentBinary, "cleanup", "--config", s.agent.Dir+"/Corefile", "--socket", s.agent.Socket()); err != nil || out != "" {
			t.Fatalf("cleanup: %v %s", err, out)
		}
		s.expect("a", "tcp", "198.51.100.2:80", lab.Answered)
		for _, look := range [][]string{
			{"iptables-save"}, {"ip6tables-save"}, {"ipset", "list", "-n"}, {"nft", "list", "ruleset"}, {"ip", "addr"},
			{"conntrack", "-L", "--mark", "0x40/0x40"},
		} {
			diff.Equal(t, "", traces(run(t, s.Node, look[0], look[1:]...)), look, "shows after cleanup")
		}
	})
}

// traces returns the first line of a program's print that shows something of ours.
func traces(out string) string {
	for line := range strings.Lines(out) {
		for _, word := range []string{"NAMEGATE", "namegate", "NG4-", "NG6-", "169.254.20.", "fd5c:7a1e:93b4", "mark=64"} {
			if strings.Contains(line, word) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

// linkLocals returns the addresses of `ip -6 -o addr show scope link`.
func linkLocals(out string) []string {
	var addrs []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		for i, f := range fields {
			if f == "inet6" && i+1 < len(fields) {
				a, _, _ := strings.Cut(fields[i+1], "/")
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
