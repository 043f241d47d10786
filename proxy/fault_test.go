package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// faultCase is one way of a query. prepare is before the fault can happen, ask while
// it can; it returns how many of its queries got SERVFAIL.
type faultCase struct {
	name    string
	prepare func(l *faultLab, n string)
	ask     func(l *faultLab, n string) (failed int)
	least   int // steps that there are at least
}

// over asks once over the network as from the pod.
func over(network, pod string, edit func(*dns.Msg)) func(*faultLab, string) int {
	return func(l *faultLab, n string) int {
		a := asked{client(l.t, network, "127.0.0."+pod, l.at), newQuery(n, dns.TypeA)}
		if network == "tcp" { // the connection is not a step of its query
			fatal.Await(l.t, "the connection is not served", func() bool { return l.s.Stats().Connections == 1 })
		}
		if edit != nil {
			edit(a.query)
		}
		l.arm(l.fault)
		l.putOn(a)
		if l.good(a) {
			return 0
		}
		return 1
	}
}

// keep has a name kept, with a reply to give again to the pod.
func keep(pod string) func(*faultLab, string) {
	return func(l *faultLab, n string) {
		for range 3 {
			if !l.good(l.put("udp", pod, n)) {
				l.t.Fatalf("%s is not answered", n)
			}
		}
	}
}

// unknown publishes a snapshot without the pod strict, whose queries wait then.
func unknown(l *faultLab, _ string) {
	l.s.Publish(compiled(l.t, socketPolicies, without("strict")))
}

// askUnknown asks as the pod that is not known yet, and lets it be known, or its time end.
func askUnknown(network string, known bool) func(*faultLab, string) int {
	return func(l *faultLab, n string) (failed int) {
		a := asked{client(l.t, network, "127.0.0.4", l.at), newQuery(n, dns.TypeA)}
		if network == "tcp" {
			fatal.Await(l.t, "the connection is not served", func() bool { return l.s.Stats().Connections == 1 })
		}
		l.arm(l.fault)
		l.putOn(a)
		fatal.Await(l.t, "it is not parked", func() bool { _, hits := l.hits(); return hits > 0 || l.parkedNow() == 1 })
		if known {
			l.s.Publish(compiled(l.t, socketPolicies, labPods))
		}
		l.timers.end() // of a query that a fault at its identification left waiting
		if !l.good(a) {
			failed++
		}
		l.s.Publish(compiled(l.t, socketPolicies, labPods))
		return failed
	}
}

// joined has a second query, and a third over TCP, join the call of the first.
func joined(l *faultLab, n string) (failed int) {
	gate := make(chan struct{})
	l.gate.Store(&gate)
	last := asked{client(l.t, "tcp", "127.0.0.3", l.at), newQuery(n, dns.TypeA)}
	fatal.Await(l.t, "the connection is not served", func() bool { return l.s.Stats().Connections == 1 })
	before := l.s.Stats().Coalesced
	l.arm(l.fault)
	come := func(more uint64) {
		fatal.Await(l.t, "it does not join", func() bool { _, hits := l.hits(); return hits > 0 || l.s.Stats().Coalesced == before+more })
	}
	first := l.put("udp", "4", n)
	fatal.Await(l.t, "there is no call", func() bool { _, hits := l.hits(); return hits > 0 || l.s.Stats().InFlight == 1 })
	second := l.put("udp", "2", n)
	come(1)
	l.putOn(last)
	come(2)
	l.gate.Store(nil)
	close(gate)
	for _, a := range []asked{first, second, last} {
		if !l.good(a) {
			failed++
		}
	}
	return failed
}

// askNearlyOver queries a cached answer that has nearly expired.
func askNearlyOver(l *faultLab, n string) int {
	l.clock.Add(int64(20 * time.Second))
	return over("udp", "2", nil)(l, n)
}

func option(m *dns.Msg) {
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_NSID{Code: dns.EDNS0NSID}}
}

var faultCases = []faultCase{
	{"kept", keep("2"), over("udp", "2", nil), 5},
	{"kept, nobody's policy", keep("6"), over("udp", "6", nil), 4},
	{"kept, TCP", keep("2"), over("tcp", "2", nil), 8},
	{"forwarded", nil, over("udp", "4", nil), 14},
	{"forwarded, nobody's policy", nil, over("udp", "6", nil), 12},
	{"forwarded anew", nil, over("udp", "4", option), 12},
	{"forwarded, TCP", nil, over("tcp", "4", nil), 12},
	{"on another way after its reply", nil, func(l *faultLab, n string) int { return over("udp", "4", nil)(l, "atwo"+n) }, 14},
	{"forwarded over TCP", nil, func(l *faultLab, n string) int { return over("udp", "4", nil)(l, "along"+n) }, 18},
	{"parked", unknown, askUnknown("udp", true), 10},
	{"parked, TCP", unknown, askUnknown("tcp", true), 10},
	{"parked until its time is over", unknown, askUnknown("udp", false), 5},
	{"joined", nil, joined, 30},
	{"prefetched", keep("2"), askNearlyOver, 9},
	{"refused by the kernel", func(l *faultLab, _ string) {
		l.granter.tells(func(_ []policy.Grant, then GrantCallback) { then.Granted(errKernelBusy, false) })
	},
		func(l *faultLab, n string) int {
			failed := over("udp", "4", nil)(l, n)
			l.granter.then.Store(nil)
			return failed
		}, 12},
}

// TestAFaultAtAConnectionCostsThat, and no other.
func TestAFaultAtAConnectionCostsThat(t *testing.T) {
	l := newFaultLab(t)
	l.arm(1)
	c := client(t, "tcp", "127.0.0.2", l.at)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is not closed: %v", err)
	}
	if step, _ := l.hits(); step != "connection" || l.s.Stats().Panics != 1 {
		t.Errorf("a fault at %q, %d are counted", step, l.s.Stats().Panics)
	}
	l.disarm()
	diff.Equal(t, nothingHeld, l.left())
	if !l.good(l.put("tcp", "2", "next.example.org")) {
		t.Error("the next is not answered")
	}
}

// TestAFaultCostsAQueryAServfail: at each step of a query on each way, and nothing
// else. Every query gets a reply, and nothing is held when it has come. The same
// with a second fault at the next step, which may be the reply that tells of the first.
func TestAFaultCostsAQueryAServfail(t *testing.T) {
	for i, c := range faultCases {
		for again := range 2 {
			t.Run(fmt.Sprintf("%s, %d more", c.name, again), func(t *testing.T) {
				l := newFaultLab(t)
				l.again = again
				l.failAtEachStep(c, fmt.Sprintf("a%d-", i))
			})
		}
	}
}

// failAtEachStep has a case fail at one step after another, until there is none.
func (l *faultLab) failAtEachStep(c faultCase, prefix string) {
	t, failures := l.t, 0
	for fault := 1; !t.Failed(); fault++ {
		n := fmt.Sprintf("%s%d.example.org", prefix, fault)
		if c.prepare != nil {
			c.prepare(l, n)
		}
		diff.MustEqual(t, nothingHeld, l.left(), "before")
		l.fault = fault
		faults := l.s.Stats().Panics
		failed := c.ask(l, n)
		failures += failed
		left := l.left()
		l.disarm()
		step, hits := l.hits()
		diff.MustEqual(t, nothingHeld, left, "after a fault at step", fault, step)
		diff.Equal(t, uint64(hits), l.s.Stats().Panics-faults, "faults counted at step", fault, step)
		if hits > 0 && failed > hits {
			t.Errorf("%d faults from step %d (%s) cost %d queries their answer", hits, fault, step, failed)
		}
		if !l.good(l.put("udp", "2", "next-"+n)) || !l.good(l.put("tcp", "2", n)) {
			t.Errorf("after a fault at step %d (%s) the next queries fail", fault, step)
		}
		diff.MustEqual(t, nothingHeld, l.left(), "after the queries that follow")
		if l.s.clients.Watchdog.Hung(l.s.elapsed()+time.Hour, time.Second) || l.s.clients.Watchdog.Hung(l.s.elapsed()+2*time.Hour, time.Second) {
			t.Errorf("after a fault at step %d (%s) the proxy takes itself for hung", fault, step)
		}
		if hits == 0 {
			t.Logf("%d steps, of which %d faults cost an answer: %s", fault-1, failures, strings.Join(l.steps, ", "))
			if fault <= c.least {
				t.Errorf("only %d steps", fault-1)
			}
			if failures == 0 {
				t.Error("no fault cost an answer")
			}
			return
		}
	}
}

// TestWarmSurvivesAFault: a fault in one question ends that question alone.
func TestWarmSurvivesAFault(t *testing.T) {
	l := newLab(t, nil)
	l.use(l.s.setup.Load().config, faulty{})
	strict := l.s.snapshot.Load().ViewOf(labPods[2].PodRef)
	err := l.s.Warm(context.Background(), []*policy.View{strict})
	if err == nil || !strings.Contains(err.Error(), "www.example.org for pod shop/strict: a fault") || l.s.Stats().Panics != 2 {
		t.Errorf("error %v, stats %+v", err, l.s.Stats())
	}
}

// TestFailedAnswerHasNoAddress: an upstream's error for an allowed name reaches the pod
// without the addresses in it, which are not granted.
func TestFailedAnswerHasNoAddress(t *testing.T) {
	for _, rcode := range []string{"SERVFAIL", "REFUSED", "NOTIMP", "FORMERR", "NXDOMAIN", "YXDOMAIN"} {
		l := newLab(t, map[string][]string{"www.example.org A": {rcode, "www.example.org. 60 IN A " + forged, "+ns.test. 60 IN A " + forged}})
		r := l.ask("10.1.0.2", "www.example.org", dns.TypeA)
		if dns.RcodeToString[r.Rcode] != rcode || strings.Contains(r.String(), forged) || len(l.granter.Grants()) != 0 {
			t.Errorf("%s: %v, granted %v", rcode, r, l.granted())
		}
	}
}
