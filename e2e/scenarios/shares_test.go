package scenarios

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	// sharePorts is the number of port sets that one pod may open, of which shareOpenings for one
	// name, and shareAddresses that of the addresses in an answer: the product of the latter is the number of grants of a query.
	sharePorts     = 256
	shareOpenings  = 64
	shareAddresses = 128
	// shareQueries is the number of queries at once of the pod that floods.
	shareQueries = 48
)

// anyName allows an app every name.
const anyName = `
podSelector: {matchLabels: {app: APP}}
egress:
- matches: [{pattern: "**"}]
`

// manyPorts returns policies of app a, each with the most rules, that open a set of ports for every name
// in each rule.
func manyPorts() map[string]string {
	files := map[string]string{}
	const rules = 64
	for i := range sharePorts / rules {
		var b strings.Builder
		b.WriteString("podSelector: {matchLabels: {app: a}}\negress:\n")
		for j := range rules {
			fmt.Fprintf(&b, "- matches: [{pattern: \"**\"}]\n  ports: [{protocol: TCP, port: %d}]\n", 80+i*rules+j)
		}
		files[fmt.Sprintf("ports-%d.yaml", i)] = policy(fmt.Sprintf("ports-%d", i), b.String())
	}
	return files
}

// many answers a query with the most addresses, which are of this query alone.
func (s *stage) many(names int) {
	for i := range names {
		s.zone.say(fmt.Sprintf("f%d.test", i), func(q *dns.Msg) *dns.Msg {
			r := new(dns.Msg).SetReply(q)
			for j := range shareAddresses {
				r.Answer = append(r.Answer, a(q.Question[0].Name, 600, netip.AddrFrom4([4]byte{198, 18, byte(i), byte(j)})))
			}
			return r
		})
	}
}

// inUse has pod a use an address, and ask for others until it has as many grants as it may.
func (s *stage) inUse() {
	s.t.Helper()
	s.zone.add("kept.test. 600 IN A 198.19.255.1")
	s.resolve("a", "kept.test", dns.TypeA)
	c, err := s.Pod("a").Dial("tcp", "198.19.255.1:81", lab.Limit)
	fatal.If(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	diff.MustEqual(s.t, lab.Answered, lab.Echo(c, lab.Limit), "the connection")
	for i := range 40 {
		name := fmt.Sprintf("e%d.test", i)
		s.zone.add(name + fmt.Sprintf(". 600 IN A 198.19.254.%d", i))
		s.resolve("a", name, dns.TypeA)
	}
}

// TestShareOfGrants: a pod that opens as many addresses on as many ports as it can neither delays
// nor ends what its neighbour asks, and the agent that follows is ready soon.
func TestShareOfGrants(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		files := manyPorts()
		files["a.yaml"] = s.Pod("a").Manifest("shop", "a", map[string]string{"app": "a"})
		files["b.yaml"] = s.Pod("b").Manifest("other", "b", map[string]string{"app": "b"})
		files["any-b.yaml"] = strings.Replace(policy("any-b", strings.Replace(anyName, "APP", "b", 1)), "namespace: shop", "namespace: other", 1)
		s.many(shareQueries)
		s.zone.add("warm.test. 600 IN A 198.51.100.5")
		for i := range 1000 {
			s.zone.add(fmt.Sprintf("n%d.test. 600 IN A 198.19.%d.%d", i, i/250, i%250))
		}
		s.start(files)
		s.resolve("b", "warm.test", dns.TypeA)
		s.inUse()
		var flood sync.WaitGroup
		for i := range shareQueries {
			flood.Go(func() {
				// A query that the pod's share refuses is the pod's own loss.
				_, _ = s.ask("a", "tcp", fmt.Sprintf("f%d.test", i), dns.TypeA)
			})
		}
		over := make(chan struct{})
		go func() { flood.Wait(); close(over) }()
		slowest, asked := time.Duration(0), 0
		for done := false; !done || asked < 100; asked++ {
			select {
			case <-over:
				done = true
			default:
			}
			began := time.Now()
			r, err := s.ask("b", "udp", fmt.Sprintf("n%d.test", asked%1000), dns.TypeA)
			slowest = max(slowest, time.Since(began))
			if err != nil || r.Rcode != dns.RcodeSuccess || len(lab.Addresses(r)) != 1 {
				t.Fatalf("the neighbour's query %d, after %v: %v, error %v", asked, time.Since(began), r, err)
			}
		}
		s.expect("a", "tcp", "198.19.255.1:81", lab.Answered) // an address in use stays open
		st := s.status()
		t.Logf("%d queries of the neighbour, the slowest took %v; %d grants, %d evicted", asked, slowest, st.Enforcer.Grants, st.Enforcer.Evicted)
		if st.Enforcer.Grants == 0 || st.Enforcer.Grants > 8192+2048 {
			t.Errorf("%d grants", st.Enforcer.Grants)
		}
		diff.Equal(t, 0, st.Enforcer.Repairs, "repairs without another writer")
		r, err := s.ask("a", "tcp", "f0.test", dns.TypeA)
		fatal.If(t, err)
		if n := len(lab.Addresses(r)); n != 8192/shareOpenings/2 {
			t.Errorf("the pod that floods is told %d addresses, want those that half of its share holds", n)
		} else {
			s.expect("a", "tcp", netip.AddrPortFrom(lab.Addresses(r)[n-1], 80).String(), lab.Answered)
		}
	})
}

const passed = `
apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: passed}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress: [{action: Pass, matches: [{pattern: "**"}]}]
`

// TestShareOfARule: pods that have as many addresses for one rule as each may take no room of their
// neighbour's.
func TestShareOfARule(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		const pods, answers, each = 9, 8, 1024 // more than the 65,535 entries that a set may have which packets renew
		s := newStageOf(t, kind)
		s.agentWith(withLimits("addresses "+fmt.Sprint(each)), kind.args()...)
		files := map[string]string{"passed.yaml": passed, "any.yaml": policy("any", "podSelector: {}\negress: [{matches: [{pattern: '**'}]}]"), "b.yaml": s.Pod("b").Manifest("shop", "b", nil)}
		many := func(owner string) {
			for i := range answers {
				s.zone.say(fmt.Sprintf("%s-%d.test", owner, i), func(q *dns.Msg) *dns.Msg {
					r := new(dns.Msg).SetReply(q)
					for j := range each {
						r.Answer = append(r.Answer, a(q.Question[0].Name, 600, netip.AddrFrom4([4]byte{198, 18, byte((i*each + j) >> 8), byte(j)})))
					}
					return r
				})
			}
		}
		many("b")
		for p := range pods {
			name := fmt.Sprintf("p%d", p)
			files[name+".yaml"] = s.addPod(name, 20+p).Manifest("shop", name, nil)
			many(name)
		}
		s.start(files)
		var flood sync.WaitGroup
		for p := range pods {
			flood.Go(func() {
				for i := range answers {
					for range 20 { // a busy machine takes longer than an answer may
						if r, err := s.ask(fmt.Sprintf("p%d", p), "tcp", fmt.Sprintf("p%d-%d.test", p, i), dns.TypeA); err == nil && r.Rcode == dns.RcodeSuccess {
							break
						}
					}
				}
			})
		}
		flood.Wait()
		st := s.status()
		t.Logf("%d grants, %d entries of the rule", st.Enforcer.Grants, st.Enforcer.FullestRule)
		if st.Enforcer.FullestRule < 65536 {
			t.Errorf("the rule has %d entries: the test does not reach the bound of before", st.Enforcer.FullestRule)
		}
		for i := range 2 { // a write that was refused left room for less
			if r, err := s.ask("b", "tcp", fmt.Sprintf("b-%d.test", i), dns.TypeA); err != nil || len(lab.Addresses(r)) != each {
				t.Fatalf("query %d of the neighbour: %v, error %v", i, r, err)
			}
		}
		s.expect("b", "tcp", "198.18.0.1:80", lab.Answered)
	})
}
