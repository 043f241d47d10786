package proxy

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// lateKernel keeps the grants of its calls, and a copy of their content at that time.
type lateKernel struct {
	mu    sync.Mutex
	held  [][]policy.Grant
	then  []GrantCallback
	whole []string
}

func (k *lateKernel) hold(grants []policy.Grant, then GrantCallback) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held, k.then, k.whole = append(k.held, grants), append(k.then, then), append(k.whole, fmt.Sprint(grants))
}

// TestKernelThatHangs: SERVFAIL in time, the log has the reason, and resources in the
// kernel's hands are not reused meanwhile.
func TestKernelThatHangs(t *testing.T) {
	l := newSocketLab(t, false)
	k := new(lateKernel)
	l.granter.tells(k.hold)
	c := configWith(t)
	c.GrantTimeout = 400 * time.Millisecond
	l.asks(c, nil, startScript(t, one("192.0.2.1", "192.0.2.2")))
	conn := client(t, "udp", "127.0.0.2", l.listen())
	const queries = 10
	for i := range queries {
		began := time.Now()
		r := exchange(t, conn, newQuery(fmt.Sprintf("n%d.example.org", i), dns.TypeA))
		if took := time.Since(began); r.Rcode != dns.RcodeServerFailure || len(r.Answer) != 0 || took < c.GrantTimeout {
			t.Fatalf("after %v: %v", took, r)
		}
	}
	if s := l.settled(); s.GrantFailures != queries || s.Failed != queries || s.Grants != 0 {
		t.Errorf("%+v", s)
	}
	r := l.log.of(policytest.Name("n7.example.org"))
	if len(r) != 1 || r[0].Verdict != audit.Failed || !strings.Contains(r[0].Error, "in time") || r[0].Rcode != dns.RcodeServerFailure || len(r[0].Answers) != 2 || r[0].Answers[0].Openings != nil {
		t.Errorf("logged %+v", r)
	}
	// More queries would use released resources too early.
	l.granter.then.Store(nil)
	for i := range queries {
		if r := exchange(t, conn, newQuery(fmt.Sprintf("m%d.example.org", i), dns.TypeA)); len(r.Answer) != 2 {
			t.Fatalf("%v", r)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, grants := range k.held {
		if now := fmt.Sprint(grants); now != k.whole[i] {
			t.Errorf("lent grants were\n%s\nand became\n%s", k.whole[i], now)
		}
	}
	for _, then := range k.then {
		then.Granted(nil, false) // late
		then.Granted(nil, false) // and again
	}
	if r := exchange(t, conn, newQuery("late.example.org", dns.TypeA)); len(r.Answer) != 2 {
		t.Errorf("after late news: %v", r)
	}
	if s := l.settled(); s.Grants != queries+1 || s.Queries != 2*queries+1 || s.Panics != 0 {
		t.Errorf("%+v", s)
	}
}

// TestKernelFaults: for every behaviour of the kernel's side there is one reply, without
// any address that was not acknowledged.
func TestKernelFaults(t *testing.T) {
	for what, f := range map[string]struct {
		then   func(grants []policy.Grant, then GrantCallback)
		fails  bool
		panics uint64
	}{
		"tells at once":           {then: func(_ []policy.Grant, then GrantCallback) { then.Granted(nil, false) }},
		"tells another goroutine": {then: func(_ []policy.Grant, then GrantCallback) { go then.Granted(nil, false) }},
		"fails at once":           {then: func(_ []policy.Grant, then GrantCallback) { then.Granted(errKernelBusy, false) }, fails: true},
		"fails twice": {then: func(_ []policy.Grant, then GrantCallback) {
			then.Granted(errKernelBusy, true)
			then.Granted(nil, false)
		}, fails: true},
		"panics":                   {then: func([]policy.Grant, GrantCallback) { panic("a fault for the test") }, fails: true, panics: 1},
		"panics after it has told": {then: func(_ []policy.Grant, then GrantCallback) { then.Granted(nil, false); panic("a fault for the test") }, panics: 1},
		"panics and tells": {then: func(_ []policy.Grant, then GrantCallback) {
			defer time.AfterFunc(20*time.Millisecond, func() { then.Granted(nil, false) })
			panic("a fault for the test")
		}, fails: true, panics: 1},
	} {
		t.Run(what, func(t *testing.T) {
			l := newSocketLab(t, false)
			l.granter.tells(f.then)
			l.asks(configWith(t), nil, startScript(t, one("192.0.2.1")))
			conn := client(t, "udp", "127.0.0.2", l.listen())
			for i := range 5 {
				r := exchange(t, conn, newQuery(fmt.Sprintf("n%d.example.org", i), dns.TypeA))
				if (r.Rcode == dns.RcodeServerFailure) != f.fails || len(r.Answer) == 1 == f.fails {
					t.Fatalf("%v", r)
				}
			}
			fatal.Await(t, "the count of faults", func() bool { return l.s.Stats().Panics == 5*f.panics })
			s := l.settled()
			if failures := map[bool]uint64{true: 5}[f.fails]; s.Queries != 5 || s.Failed != failures || s.GrantFailures != failures {
				t.Errorf("%+v", s)
			}
			r := l.log.of(policytest.Name("n4.example.org"))
			if len(r) != 1 || (r[0].Verdict == audit.Failed) != f.fails || len(r[0].Answers) != 1 || (r[0].Answers[0].Openings == nil) != f.fails {
				t.Errorf("logged %+v", r)
			}
		})
	}
}

// TestLogThatPanics: the reader of an upstream's socket survives it.
func TestLogThatPanics(t *testing.T) {
	l := newSocketLab(t, false)
	l.s.log = panicLog{}
	l.asks(configWith(t), nil, startScript(t, one("192.0.2.1")))
	conn := client(t, "udp", "127.0.0.2", l.listen())
	for i := range 3 {
		if r := exchange(t, conn, newQuery(fmt.Sprintf("n%d.example.org", i), dns.TypeA)); len(r.Answer) != 1 {
			t.Fatalf("%v", r)
		}
	}
	l.granter.tells(func(_ []policy.Grant, then GrantCallback) { then.Granted(errKernelBusy, false) })
	if r := exchange(t, conn, newQuery("x.example.org", dns.TypeA)); r.Rcode != dns.RcodeServerFailure {
		t.Fatalf("%v", r)
	}
	fatal.Await(t, "the count of faults", func() bool { return l.s.Stats().Panics == 4 })
	l.settled()
}

type panicLog struct{}

func (panicLog) Write(audit.Record) { panic("a fault for the test") }

// TestNoAddressBeforeTheAcknowledgement: in a storm in which the kernel's side returns immediately,
// late, never, and with errors, no client gets an address that is not open, or another
// client's answer.
func TestNoAddressBeforeTheAcknowledgement(t *testing.T) {
	const clients, queries = 12, 150
	l := newSocketLab(t, false)
	l.granter.tells(func(grants []policy.Grant, then GrantCallback) {
		tell := func() { then.Granted(l.granter.acknowledge(grants), false) }
		switch grants[0].Name[1] % 5 {
		case 0:
			tell()
		case 1:
			go tell()
		case 2:
			time.AfterFunc(time.Duration(len(grants[0].Name))*time.Millisecond, tell)
		case 3:
			go then.Granted(errKernelBusy, false)
		case 4:
			if grants[0].Name[2]%3 == 0 {
				return // never
			}
			go tell()
		}
	})
	c := configWith(t, "cache")
	c.GrantTimeout = 300 * time.Millisecond
	l.asks(c, nil, startScript(t, func(q *dns.Msg, _ bool) [][]byte {
		n := q.Question[0].Name // it determines the address
		return [][]byte{says(q, nil, fmt.Sprintf("%s 60 IN A 198.51.100.%d", n, n[0])), nil}
	}))
	at := l.listen()
	var wg sync.WaitGroup
	for k := range clients {
		pod := 2 + k%3
		conn := client(t, "udp", fmt.Sprintf("127.0.0.%d", pod), at)
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(k), 3))
			for range queries {
				n := fmt.Sprintf("a%c%c%d.example.org", 'a'+rng.IntN(26), 'a'+rng.IntN(26), rng.IntN(3))
				n = n[1:2] + n[:1] + n[2:]
				if pod == 4 {
					n = "a" + n // what strict may ask
				}
				r := exchange(t, conn, newQuery(n, dns.TypeA))
				if r.Rcode == dns.RcodeServerFailure {
					continue
				}
				if len(r.Answer) != 1 || r.Answer[0].Header().Name != n+"." || r.Answer[0].(*dns.A).A[3] != n[0] {
					t.Errorf("asked %s, told %v", n, r)
					return
				}
				a, _ := fqdn.ParseName(n)
				if !l.granter.isOpen(labPods[pod-2].Name, a, mustAddr(fmt.Sprintf("198.51.100.%d", n[0]))) {
					t.Errorf("%s was told before it was open", n)
				}
			}
		})
	}
	wg.Wait()
	s := l.settled()
	if s.Queries != clients*queries || s.Panics != 0 || s.RepliesLost != 0 || s.Allowed == 0 || s.Failed == 0 || s.Allowed+s.Failed != s.Queries {
		t.Errorf("%+v", s)
	}
	if n := len(l.log.recs); n != clients*queries {
		t.Errorf("%d records", n)
	}
	if n := len(l.s.setup.Load().resolver.calls.all); n != 0 {
		t.Errorf("%d calls are left", n)
	}
}

// TestEndLetsGo: what goes back to the pool holds on to nothing that is big.
func TestEndLetsGo(t *testing.T) {
	var g granted
	v := &policy.View{}
	d := policy.Decision{Matches: []*policy.Match{{Ports: "tcp/443", TTL: policy.TTL{Max: time.Hour}}}}
	made(&g, v, policytest.Name("www.example.org"), d, addresses("192.0.2.1", "192.0.2.2"))
	if len(g.grants) != 1 || len(g.answers) != 2 {
		t.Fatalf("%+v", g)
	}
	g.reset()
	if !reflect.DeepEqual(g.grants[:1][0], policy.Grant{}) || g.answers[:1][0].Openings != nil || g.openings[:1][0].By != nil {
		t.Errorf("it holds on to %+v, %+v", g.grants[:1], g.answers[:1])
	}
	if len(g.grants)+len(g.answers)+len(g.addrs)+len(g.openings)+len(g.opened) != 0 {
		t.Errorf("%+v", g)
	}
}
