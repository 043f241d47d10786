package scenarios

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/lab"
)

// switchGrants is how many addresses are open when the dataplane changes.
const switchGrants = 1000

// TestSwitchOfDataplanes: an agent with the other dataplane takes over under load: no query is
// lost, what is open stays open, what is denied stays denied, connections go on, and nothing
// of the other dataplane is left.
func TestSwitchOfDataplanes(t *testing.T) {
	needed(t, false, "dnsperf")
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
	s.startForLoad(from)
	s.runs(from)
	s.resolve("b", "www.example.org", dns.TypeA)
	udp, err := s.Pod("b").Dial("udp", netip.AddrPortFrom(lab.Resolver4, 53).String(), lab.Limit)
	fatal.If(t, err)
	defer udp.Close()
	var granted []netip.Addr
	for i := range switchGrants {
		fatal.If(t, udp.SetDeadline(time.Now().Add(lab.Limit)))
		r, err := exchange(udp, fmt.Sprintf("b%d.wild.example.org", 30000+i), dns.TypeA)
		fatal.If(t, err)
		granted = append(granted, addresses(r)...)
	}
	kept := []*line{s.line("b", "tcp", netip.MustParseAddr("198.51.100.1")), s.line("b", "udp", granted[0])}
	s.goesOn("before the switch", kept...)
	stop := make(chan struct{})
	var others sync.WaitGroup
	probes := s.vigil("b", []string{"198.51.100.1:80"}, []string{"198.51.100.2:80"})
	others.Go(func() { s.asks(stop) })
	printed := begin(func() error { return s.load(2*upgradeEvery + 2*time.Second) })
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
	s.runs(to)
	s.goesOn("after the switch", kept...)
	for i := 0; i < len(granted); i += 50 {
		s.expect("b", "tcp", netip.AddrPortFrom(granted[i], 80).String(), lab.Answered)
	}
	s.expect("b", "tcp", "198.51.100.2:80", lab.Refused)
	s.nothingLeftOf(from)
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
		looks, words = [][]string{{"nft", "list", "ruleset"}}, []string{"namegate-net", "set grants-", "map pods", "chain pod-"}
	}
	for _, look := range looks {
		fatal.Await(s.t, fmt.Sprintf("nothing of %s in %s", dataplane, look[0]), func() bool {
			out, err := s.Node.Run(look[0], look[1:]...)
			fatal.If(s.t, err)
			return !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(out, w) })
		})
	}
}
