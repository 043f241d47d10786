package proxy

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
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
		diff.Equal(t, k.whole[i], fmt.Sprint(grants), "lent grants afterwards")
	}
	for _, then := range k.then {
		then.Granted(nil, false) // late
		then.Granted(nil, false) // and again
	}
	wantAnswer(t, 2, exchange(t, conn, newQuery("late.example.org", dns.TypeA)), "after late news")
	if s := l.settled(); s.Grants != queries+1 || s.Queries != 2*queries+1 || s.Panics != 0 {
		t.Errorf("%+v", s)
	}
}

// TestKernelFaults: for every behaviour of the kernel's side there is one reply, without
// any address that was not acknowledged.
func TestKernelFaults(t *testing.T) {
	late := make(chan GrantCallback, 1) // is told when the reply has come
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
			late <- then
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
				if len(late) > 0 {
					(<-late).Granted(nil, false)
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

type panicLog struct{ DecisionLog }

func (panicLog) Write(audit.Record) { panic("a fault for the test") }
