package scenarios

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

var (
	switchGrants = flag.Int("switch-grants", 10_000, "how many addresses, 65,536 at most, are open when TestSwitchOfDataplanes changes the dataplane")
	switchRate   = flag.Int("switch-rate", 5000, "how many queries a second it sends meanwhile")
)

const (
	switchPods = 8 // share the addresses: a pod has room for 4,096
	// switchAnswered is how many addresses an answer for a name like g12 has.
	switchAnswered = 10
)

// switchAnswer is upgradeAnswer, and has addresses of its own for each name like g12.
func switchAnswer(query *dns.Msg) *dns.Msg {
	r, n := upgradeAnswer(query), 0
	if _, err := fmt.Sscanf(query.Question[0].Name, "g%d.", &n); err != nil || len(r.Answer) == 0 {
		return r
	}
	header := *r.Answer[0].Header()
	r.Answer = nil
	for at := n * switchAnswered; at < (n+1)*switchAnswered; at++ {
		r.Answer = append(r.Answer, &dns.A{Hdr: header, A: net.IPv4(198, 19, byte(at>>8), byte(at))})
	}
	return r
}

// TestSwitchOfDataplanes: an agent with the other dataplane takes over under load: no query is
// lost, what is open stays open, what is denied stays denied, connections go on, and nothing
// of the other dataplane is left.
func TestSwitchOfDataplanes(t *testing.T) {
	needed(t, "dnsperf")
	for from, to := range map[string]string{"iptables": "nftables", "nftables": "iptables"} {
		t.Run(from+" to "+to, func(t *testing.T) {
			for _, network := range networks { // one at a time: each is asked as fast as in an upgrade
				t.Run(string(network), func(t *testing.T) { switchDataplane(t, network, from, to) })
			}
		})
	}
}

func switchDataplane(t *testing.T, network lab.Network, from, to string) {
	s := newStage(t, network)
	var pods []string
	for i := range switchPods {
		pods = append(pods, fmt.Sprintf("g%d", i))
		s.addPod(pods[i], 10+i)
	}
	s.startForLoad(from, pods...)
	s.outside.SetAnswer(switchAnswer)
	s.runs(from)
	s.resolve("b", "www.example.org", dns.TypeA)
	granted := s.grants(pods)
	if is, err := s.agent.Status(); err != nil || is.Enforcer.Grants < *switchGrants {
		t.Fatalf("%d grants, %v, want %d", is.Enforcer.Grants, err, *switchGrants)
	}
	kept := []*line{s.line("b", "tcp", netip.MustParseAddr("198.51.100.1")), s.line(pods[0], "udp", granted[pods[0]][0])}
	s.goesOn("before the switch", kept...)
	stop := make(chan struct{})
	var others sync.WaitGroup
	probes := s.vigil("b", []string{"198.51.100.1:80"}, []string{"198.51.100.2:80"})
	asked := begin(func() error { return s.asks(stop) })
	for i, p := range pods {
		others.Go(func() { s.walks(p, granted[p], granted[pods[(i+1)%len(pods)]], stop) })
	}
	printed := begin(func() error { return s.load(2*upgradeEvery+2*time.Second, *switchRate) })
	time.Sleep(upgradeEvery)
	fatal.If(t, s.agent.SetDataplane(to))
	if err := s.agent.Upgrade(); err != nil {
		t.Error(err)
	}
	if err := <-printed; err != nil {
		t.Error(err)
	}
	probes(from + " to " + to)
	close(stop)
	others.Wait()
	if err := <-asked; err != nil {
		t.Error(err)
	}
	s.runs(to)
	s.goesOn("after the switch", kept...)
	s.allOpen(granted)
	s.expect("b", "tcp", "198.51.100.2:80", lab.Refused)
	s.nothingLeftOf(from)
}

// grants has pods ask for names until all addresses are granted, each to one pod.
func (s *stage) grants(pods []string) map[string][]netip.Addr {
	granted := map[string][]netip.Addr{}
	for i, p := range pods {
		udp, err := s.Pod(p).Dial("udp", netip.AddrPortFrom(lab.Resolver4, 53).String(), lab.Limit)
		fatal.If(s.t, err)
		for n := i; n < *switchGrants/switchAnswered; n += len(pods) {
			r, err := lab.Exchange(udp, fmt.Sprintf("g%d.wild.example.org", n), dns.TypeA, lab.Limit)
			fatal.If(s.t, err)
			granted[p] = append(granted[p], lab.Addresses(r)...)
		}
		udp.Close()
		if want := *switchGrants / len(pods); len(granted[p]) < want-switchAnswered {
			s.t.Fatalf("pod %s has %d addresses, want about %d", p, len(granted[p]), want)
		}
	}
	return granted
}

// walks has a pod connect to its addresses and to another pod's, one after another.
func (s *stage) walks(pod string, own, others []netip.Addr, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
		s.expect(pod, "tcp", netip.AddrPortFrom(own[rand.IntN(len(own))], 80).String(), lab.Answered)
		s.expect(pod, "tcp", netip.AddrPortFrom(others[rand.IntN(len(others))], 80).String(), lab.Refused)
	}
}

// allOpen asserts that each pod reaches all of its addresses.
func (s *stage) allOpen(granted map[string][]netip.Addr) {
	var all sync.WaitGroup
	for p, addrs := range granted {
		all.Go(func() {
			for _, a := range addrs {
				s.expect(p, "tcp", netip.AddrPortFrom(a, 80).String(), lab.Answered)
			}
		})
	}
	all.Wait()
}

// runs asserts the dataplane of the agent.
func (s *stage) runs(dataplane string) {
	s.t.Helper()
	if is, err := s.agent.Status(); err != nil || is.Dataplane.Name != dataplane {
		s.t.Errorf("dataplane %+v, %v, want %s", is.Dataplane, err, dataplane)
	}
}

// nothingLeftOf asserts that the kernel soon holds nothing that only a dataplane has.
func (s *stage) nothingLeftOf(dataplane string) {
	s.t.Helper()
	looks, words := [][]string{{"iptables-save"}, {"ip6tables-save"}, {"ipset", "list", "-n"}}, []string{"NAMEGATE", "NG4-", "NG6-"}
	if dataplane == "nftables" {
		looks, words = [][]string{{"nft", "list", "ruleset"}}, []string{"namegate-net", "grants-", "-bare-"}
	}
	for _, look := range looks {
		fatal.Await(s.t, fmt.Sprintf("nothing of %s in %s", dataplane, look[0]), func() bool {
			out := run(s.t, s.Node, look[0], look[1:]...)
			return !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(out, w) })
		})
	}
}
