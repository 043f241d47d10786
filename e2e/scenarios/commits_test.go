package scenarios

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	netlink "github.com/google/nftables"
	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

var (
	commitsFor = flag.Duration("commits-for", 12*time.Second, "how long another program commits in TestCommitsOfAnotherProgram")
	commitRate = flag.Int("commits-rate", 1500, "how many changes of nftables a second it makes")
)

const (
	// keptNames are granted at the beginning, and are not asked for again.
	keptNames = 200
	// commitUpgrades is how many agents follow each other meanwhile: each reads all grants back.
	commitUpgrades = 2
	// commitElements are in the other program's set before it empties it: a change that deletes
	// waits for an RCU grace period.
	commitElements = 20_000
)

const commitPolicies = `
apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: denied}
spec:
  tier: Admin
  priority: 1
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}}
  egress:
  - action: Deny
    matches: [{pattern: "*.denied.test"}]
  dns: {denied: Resolve}
  ttl: {minSeconds: 1, maxSeconds: 2, graceSeconds: 1, reuseSeconds: 1, inUse: Expire}
---
apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: accepted}
spec:
  tier: Admin
  priority: 2
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}}
  egress:
  - action: Accept
    matches: [{pattern: "*.accepted.test"}]
  ttl: {minSeconds: 1, maxSeconds: 2, graceSeconds: 1, inUse: Expire}
---
apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: rotating, namespace: shop}
spec:
  podSelector: {matchLabels: {app: client}}
  ttl: {minSeconds: 1, maxSeconds: 2, graceSeconds: 1, inUse: Expire}
  egress:
  - matches: [{pattern: "*.rotating.test"}]
    ports: [{protocol: TCP, port: 80}]
---
apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: kept, namespace: shop}
spec:
  podSelector: {matchLabels: {app: other}}
  ttl: {minSeconds: 7200, maxSeconds: 7200}
  egress:
  - matches: [{pattern: "*.kept.test"}]
    ports: [{protocol: TCP, port: 80}]
`

// commitWorld answers with eight addresses of a range of the domain, and names of kept.test
// with one of their own.
func commitWorld(query *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(query)
	if query.Question[0].Qtype != dns.TypeA {
		return r
	}
	labels, n := dns.SplitDomainName(query.Question[0].Name), 0
	_, _ = fmt.Sscanf(labels[0], "n%d", &n)
	answer := func(ttl uint32, ip net.IP) {
		r.Answer = append(r.Answer, &dns.A{Hdr: dns.RR_Header{Name: query.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}, A: ip})
	}
	if labels[1] == "kept" {
		answer(7200, net.IPv4(198, 19, 255, byte(n)))
		return r
	}
	for i := range rotatingAnswer {
		at := n*rotatingAnswer + i
		switch labels[1] {
		case "rotating":
			answer(1, net.IPv4(198, 18, byte(at>>8)&127, byte(at)))
		case "accepted":
			answer(1, net.IPv4(198, 18, byte(at>>8)|128, byte(at)))
		default: // another one each time: a set holds 65,535
			answer(1, net.IPv4(203, byte(at>>16), byte(at>>8), byte(at)))
		}
	}
	return r
}

// TestCommitsOfAnotherProgram: another program changes nftables all the time in the same
// network namespace, which holds up the kernel's own collection of ended elements, and lets
// no listing end without a change. Grants come and go meanwhile: each answer's addresses are
// open or denied at once, no set is full, and no listing misses a grant, which the next agent
// would lose and a comparison would write again.
func TestCommitsOfAnotherProgram(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		var err error
		// Without an agent no query is answered, by a resolver that opens nothing.
		s.agent, err = s.NewAgent(agentBinary, t.TempDir(), strings.Replace(withLimits(fast), "    grant timeout", "    failclosed\n    grant timeout", 1))
		fatal.If(t, err)
		s.outside.SetAnswer(commitWorld)
		s.start(map[string]string{
			"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
			"b.yaml": s.Pod("b").Manifest("shop", "b", map[string]string{"app": "other"}),
			"p.yaml": commitPolicies,
		})
		var kept []netip.Addr
		for i := range keptNames {
			kept = append(kept, s.resolve("b", fmt.Sprintf("n%d.kept.test", i), dns.TypeA)...)
		}
		before, err := s.agent.Status()
		fatal.If(t, err)
		if len(before.Problems) > 0 {
			t.Fatalf("the policies have problems: %v", before.Problems)
		}
		over := make(chan struct{})
		var others sync.WaitGroup
		var commits atomic.Int64
		others.Go(func() { s.commits(over, &commits) })
		var all comings
		for domain, want := range map[string]lab.Outcome{"rotating": lab.Answered, "accepted": lab.Answered, "denied": lab.Refused} {
			others.Go(func() { s.comings(domain, want, over, &all) })
		}
		began := time.Now()
		for range commitUpgrades {
			time.Sleep(*commitsFor / (commitUpgrades + 1))
			s.repairs(before.Enforcer.Repairs)
			fatal.If(t, s.agent.Upgrade())
			before.Enforcer.Repairs = 0
			s.open("after an upgrade", kept)
		}
		time.Sleep(*commitsFor / (commitUpgrades + 1))
		close(over)
		others.Wait()
		length := time.Since(began)
		s.repairs(0)
		s.open("at the end", kept)
		t.Logf("%d commits in %v, %.0f/s; %s", commits.Load(), length.Round(time.Second), float64(commits.Load())/length.Seconds(), &all)
		if commits.Load() < int64(length.Seconds())*int64(*commitRate)/10 || all.answers() == 0 || all.late > all.answers()/2 {
			t.Error("this proves nothing")
		}
		// A machine that is too busy answers some questions too late.
		if all.failed > all.answers()/10 {
			t.Errorf("%d questions have no answer; the log's reasons: %v", all.failed, s.failures())
		}
		said := s.agent.Log() + fmt.Sprint(s.failures())
		for _, word := range []string{"is full", "too many open files", "changed during each listing", "which do not end before their time"} {
			if strings.Contains(said, word) {
				t.Errorf("the logs have %q", word)
			}
		}
	})
}

// repairs asserts that the agent has repaired nothing, and evicted no grant.
func (s *stage) repairs(before uint64) {
	s.t.Helper()
	st, err := s.agent.Status()
	fatal.If(s.t, err)
	if st.Enforcer.Repairs != before || st.Enforcer.Evicted > 0 {
		s.t.Errorf("%d repairs, %d evicted", st.Enforcer.Repairs-before, st.Enforcer.Evicted)
	}
}

// open asserts that a pod reaches addresses.
func (s *stage) open(when string, addrs []netip.Addr) {
	s.t.Helper()
	for _, a := range addrs {
		if got := s.Pod("b").ProbeFor("tcp", netip.AddrPortFrom(a, 80), lab.PatienceFor(lab.Answered)); got != lab.Answered {
			s.t.Errorf("%s: %s: %s", when, a, got)
		}
	}
}

// commits changes a table of its own, each time in a transaction of one element.
func (s *stage) commits(over <-chan struct{}, count *atomic.Int64) {
	var conn *netlink.Conn
	table := &netlink.Table{Family: netlink.TableFamilyINet, Name: "busy"}
	set := &netlink.Set{Table: table, Name: "elements", KeyType: netlink.TypeInteger}
	err := s.Node.Do(func() (err error) {
		if conn, err = netlink.New(netlink.AsLasting()); err != nil {
			return err
		}
		conn.AddTable(table)
		if err := conn.AddSet(set, nil); err != nil {
			return err
		}
		return conn.Flush()
	})
	if err != nil {
		s.t.Error(err)
		return
	}
	defer conn.CloseLasting()
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	began := time.Now()
	for {
		select {
		case <-over:
			return
		case <-every.C:
		}
		due := int64(time.Since(began).Seconds() * float64(*commitRate))
		for n := count.Load(); n < due && n < count.Load()+100; n = count.Add(1) {
			if n%commitElements == commitElements-1 {
				conn.FlushSet(set)
			}
			err := conn.SetAddElements(set, []netlink.SetElement{{Key: binary.NativeEndian.AppendUint32(nil, uint32(n))}})
			if err == nil {
				err = conn.Flush()
			}
			if err != nil {
				s.t.Errorf("commit %d: %v", n, err)
				return
			}
		}
	}
}

// comings is how long answers took whose addresses were opened or denied.
type comings struct {
	mu           sync.Mutex
	took         []time.Duration
	late, failed int
}

func (c *comings) answers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.took)
}

func (c *comings) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.took)
	if len(c.took) == 0 {
		return "no answers"
	}
	at := func(part float64) time.Duration { return c.took[int(part*float64(len(c.took)-1))] }
	return fmt.Sprintf("%d answers, p50 %v, p99 %v, longest %v; %d questions without one, %d too late to connect",
		len(c.took), at(.5), at(.99), at(1), c.failed, c.late)
}

// comings asks for names of a domain and connects at once to an address of each answer.
func (s *stage) comings(domain string, want lab.Outcome, over <-chan struct{}, all *comings) {
	for n := 0; ; n++ {
		select {
		case <-over:
			return
		case <-time.After(30 * time.Millisecond):
		}
		asked := time.Now()
		m, err := s.ask("a", "udp", fmt.Sprintf("n%d.%s.test", n, domain), dns.TypeA)
		answered := time.Now()
		if err != nil || len(addresses(m)) != rotatingAnswer {
			all.mu.Lock()
			all.failed++
			all.mu.Unlock()
			continue
		}
		late := false
		if want == lab.Answered || n%4 == 0 { // a packet renews an entry that denies, and the rule has room for 8,192
			to := netip.AddrPortFrom(addresses(m)[rand.IntN(rotatingAnswer)], 80)
			got := s.Pod("a").ProbeFor("tcp", to, lab.PatienceFor(want))
			late = time.Since(asked) > time.Second && want == lab.Answered // the grant may have ended
			if got != want && !late {
				s.t.Errorf("question %d of %s: %s: %s, want %s", n, domain, to, got, want)
			}
		}
		all.mu.Lock()
		all.took = append(all.took, answered.Sub(asked))
		if late {
			all.late++
		}
		all.mu.Unlock()
	}
}
