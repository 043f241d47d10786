package scenarios

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

var (
	upgrades    = flag.Int("upgrades", 3, "how many agents follow each other in TestUpgrade")
	upgradeRate = flag.Int("upgrade-rate", 1000, "how many queries a second TestUpgrade sends meanwhile")
)

// upgradeEvery is how long each agent serves.
const upgradeEvery = 2 * time.Second

// upgradeAnswer has an answer to every question for an A record: names like b12 have
// an address of their own.
func upgradeAnswer(query *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(query)
	name, ip, n := query.Question[0].Name, net.IPv4(198, 51, 100, 1), 0
	if query.Question[0].Qtype != dns.TypeA {
		return r
	}
	if _, err := fmt.Sscanf(name, "b%d.", &n); err == nil {
		ip = net.IPv4(198, 18, byte(n>>8), byte(n))
	}
	r.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: ip}}
	return r
}

// TestUpgrade: agents follow each other under load without an effect: no query is lost,
// each answer's address is open immediately, and denied stays denied.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	needed(t, "dnsperf")
	for _, d := range []string{iptables, nftables} { // two labs at a time: each has a load of its own
		t.Run(d, func(t *testing.T) { onEach(t, upgradeUnderLoad, d) })
	}
}

func upgradeUnderLoad(t *testing.T, kind nodeKind) {
	s := newStageOf(t, kind)
	s.startForLoad("")
	s.resolve("b", "www.example.org", dns.TypeA)
	for round := 1; ; round++ {
		still := s.standstill()
		err := s.upgradesUnderLoad()
		longest, stillErr := still()
		if err == nil || stillErr != nil || longest < standstillLimit || round == upgradeRounds {
			if err = errors.Join(err, stillErr); err != nil {
				t.Errorf("%v\nthe machine stood still for %v at most\n%s", err, longest, s.agent.Log())
			}
			return
		}
		t.Logf("again, as the machine stood still for %v meanwhile: %v", longest, err)
	}
}

// upgradeRounds is how often upgrades are tried on a machine that stands still meanwhile.
const upgradeRounds = 3

// upgradesUnderLoad has agents follow each other, and returns what was lost meanwhile.
func (s *stage) upgradesUnderLoad() error {
	stop := make(chan struct{})
	probes := s.watchfully("b", []string{"198.51.100.1:80"}, []string{"198.51.100.2:80"})
	others := begin(func() error { return s.asks(stop) })
	length := time.Duration(*upgrades+1) * (upgradeEvery + time.Second)
	printed := begin(func() error { return s.load(length, *upgradeRate) })
	var err error
	for range *upgrades {
		time.Sleep(upgradeEvery)
		if err = s.agent.Upgrade(); err != nil {
			break
		}
	}
	err = errors.Join(err, <-printed, probes.verdict())
	close(stop)
	return errors.Join(err, <-others)
}

// standstillLimit is how long the machine may stand still without an effect on queries and
// connections: TCP sends its first packet again after a second, as the agent does a query.
const standstillLimit = time.Second

// standstill measures how long the machine stands still at most: by a flow of the node's own,
// which no agent has to do with.
func (s *stage) standstill() (end func() (time.Duration, error)) {
	s.t.Helper()
	c, err := s.Node.Dial("udp", "198.51.100.1:80", lab.Limit)
	fatal.If(s.t, err)
	stop, longest := make(chan struct{}), time.Duration(0)
	flow := begin(func() error {
		defer c.Close()
		for last := time.Now(); ; last = time.Now() {
			if got := lab.Echo(c, lab.Limit); got != lab.Answered {
				return fmt.Errorf("the node's own flow: %s", got)
			}
			select {
			case <-stop:
				return nil
			case <-time.After(10 * time.Millisecond):
			}
			longest = max(longest, time.Since(last))
		}
	})
	return func() (time.Duration, error) {
		close(stop)
		err := <-flow
		return longest, err
	}
}

// startForLoad starts an agent that lets one pod ask as fast as all pods of a node, with a
// dataplane, "" for the stage's, and with other pods than a and b that ask too.
func (s *stage) startForLoad(dataplane string, pods ...string) {
	s.t.Helper()
	// One pod sends the queries of all pods of a node: it may have as many in flight.
	s.agentWith(withLimits(fast + "\n        queries_per_pod 4096"))
	if dataplane != "" {
		fatal.If(s.t, s.agent.SetDataplane(dataplane))
	}
	s.outside.SetAnswer(upgradeAnswer)
	files := map[string]string{
		"policy.yaml": policy("all", "podSelector: {matchLabels: {app: client}}\negress:\n- matches: [{pattern: \"*.wild.example.org\"}, {name: www.example.org}]\ndns: {unmatched: NXDomain}"),
	}
	for _, p := range append([]string{"a", "b"}, pods...) {
		files[p+".yaml"] = s.Pod(p).Manifest("shop", p, map[string]string{"app": "client"})
	}
	s.start(files)
}

// inFlight bounds the queries of a load that wait for an answer. Where the machine is too slow
// for the rate, no more wait than the receive buffer of the world's resolver has room for.
const inFlight = 200

// load asks from pod a for new names at a constant rate.
func (s *stage) load(length time.Duration, rate int) error {
	count := int(length.Seconds()) * rate
	data, err := s.questions(count, func(i int) string { return fmt.Sprintf("n%d.wild.example.org", i) })
	if err != nil {
		return err
	}
	out, err := s.Pod("a").Run("dnsperf", strings.Fields(fmt.Sprintf("-s %s -d %s -Q %d -q %d -c 8 -t 5", lab.Resolver4, data, rate, inFlight))...)
	if err != nil {
		return err
	}
	good := counted(out, "NOERROR")
	s.t.Logf("%d queries at %d/s, attained %s/s, %d lost", count, rate, attained.FindStringSubmatch(out)[1], count-good)
	printFigure("upgrade.lost_queries", count-good, "queries", fmt.Sprintf("%s, %s, %d/s", s.t.Name(), s.Network, rate))
	if good != count {
		return fmt.Errorf("%d of %d queries are lost:\n%s\nthe log's reasons: %v", count-good, count, out, s.failures())
	}
	return nil
}

// printFigure prints a figure of the design as a JSON line, as the benchmarks do.
func printFigure(name string, value int, unit, state string) {
	fmt.Printf("{\"figure\":%q,\"value\":%d,\"unit\":%q,\"state\":%q}\n", name, value, unit, state)
}

// perfCodes finds response codes in dnsperf's output: "Response codes: NOERROR 3 (50.00%), …".
var perfCodes = regexp.MustCompile(`([A-Z]+) (\d+) \(`)

func counted(out, rcode string) int {
	for _, m := range perfCodes.FindAllStringSubmatch(out, -1) {
		if n, err := strconv.Atoi(m[2]); m[1] == rcode && err == nil {
			return n
		}
	}
	return 0
}

// failures counts the reasons for which decisions failed, numbers aside.
func (s *stage) failures() map[string]int {
	lines, err := s.agent.AuditLines()
	if err != nil {
		return map[string]int{err.Error(): 1}
	}
	out := map[string]int{}
	for _, l := range lines {
		if reason, ok := l["error"].(string); ok {
			out[digits.ReplaceAllString(reason, "0")]++
		}
	}
	return out
}

// attained finds the rate of queries in the output of dnsperf.
var attained = regexp.MustCompile(`Queries per second: +(\S+)`)

var digits = regexp.MustCompile("[0-9]+")

// asks has pod b ask new names over sockets that it keeps, UDP and TCP, and connect
// to each answer, at once and again at the end. It returns what went wrong.
func (s *stage) asks(stop <-chan struct{}) error {
	udp, err := s.Pod("b").Dial("udp", netip.AddrPortFrom(lab.Resolver4, 53).String(), lab.Limit)
	if err != nil {
		return err
	}
	defer udp.Close()
	var wrong []error
	open := func(to netip.AddrPort) {
		if got := s.Pod("b").ProbeFor("tcp", to, lab.Limit); got != lab.Answered {
			wrong = append(wrong, fmt.Errorf("pod b to %s: %s", to, got))
		}
	}
	answers := func(what string, r *dns.Msg, err error, rcode int) {
		if err != nil || r.Rcode != rcode {
			wrong = append(wrong, fmt.Errorf("%s: %w, %v", what, err, r))
		}
	}
	var answered []netip.AddrPort
	for i := 0; ; i++ {
		select {
		case <-stop:
			for _, to := range answered {
				open(to)
			}
			return errors.Join(wrong...)
		case <-time.After(10 * time.Millisecond):
		}
		_ = udp.SetDeadline(time.Now().Add(lab.Limit))
		r, err := lab.Exchange(udp, fmt.Sprintf("b%d.wild.example.org", i), dns.TypeA, lab.Limit)
		if err != nil || r.Rcode != dns.RcodeSuccess || len(r.Answer) != 1 {
			wrong = append(wrong, fmt.Errorf("question %d of a socket that is kept: %w, %v", i, err, r))
			continue
		}
		answered = append(answered, netip.AddrPortFrom(lab.Addresses(r)[0], 80))
		open(answered[len(answered)-1])
		if i%10 == 0 {
			// The resolver itself has an answer.
			r, err = s.ask("b", "udp", "never.example.org", dns.TypeA)
			answers("a name that is not allowed", r, err, dns.RcodeNameError)
			r, err = s.ask("b", "tcp", fmt.Sprintf("t%d.wild.example.org", i), dns.TypeA)
			answers(fmt.Sprintf("question %d over TCP", i), r, err, dns.RcodeSuccess)
		}
	}
}

// TestNetLostBetweenAgents: another program removes one net while no agent runs. The other one
// denies until the next agent's rules are in force, which may wait for names, and then both do.
func TestNetLostBetweenAgents(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add("www.example.org. 600 IN A 198.51.100.1")
		s.zone.say("dead.example.org", func(*dns.Msg) *dns.Msg { return nil })
		s.startClient(policy("www", strings.Replace(allowWWW, "[{name: www.example.org}]", "[{name: www.example.org}, {name: dead.example.org}]", 1)))
		s.resolve("a", "www.example.org", dns.TypeA)
		lost := []string{"nft delete table inet namegate", "nft delete table inet namegate-net", "nft flush set inet namegate-net selected4"}
		if kind.dataplane == iptables {
			lost = []string{"nft delete table inet namegate", "iptables -t mangle -F; iptables -t security -F"}
		}
		for _, shell := range lost {
			fatal.If(t, s.agent.Stop(syscall.SIGKILL))
			run(t, s.Node, "sh", "-c", shell)
			v := s.watchfully("a", nil, []string{"198.51.100.2:80"})
			time.Sleep(100 * time.Millisecond) // without an agent
			err := s.agent.Start()
			v.end()
			fatal.If(t, err)
			if passed := v.passed.Load(); passed > 0 {
				t.Errorf("%s: %d of %d denied connections passed", shell, passed, v.denied.Load())
			}
			if out, err := s.Node.Run("sh", "-c", "nft list table inet namegate"); err != nil || !strings.Contains(out, s.Pod("a").Addr4.String()) {
				t.Errorf("%s: the table is not as it was: %v\n%s", shell, err, out)
			}
			s.resolve("a", "www.example.org", dns.TypeA)
			s.eventually("a", "198.51.100.1:80", lab.Answered)
			s.expect("a", "tcp", "198.51.100.2:80", lab.Refused)
		}
	})
}
