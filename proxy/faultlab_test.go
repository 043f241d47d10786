package proxy

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/fatal"
)

// faultLab lets a fault happen at one step of a query.
type faultLab struct {
	*socketLab
	at     netip.AddrPort
	clock  atomic.Int64 // what has passed beside real time
	timers *timers
	gate   atomic.Pointer[chan struct{}] // the upstream waits for it, if there is one

	mu    sync.Mutex
	armed bool
	steps []string
	fault int // the step at which it happens
	again int // 1: there is a second one at the next step
}

func newFaultLab(t *testing.T) *faultLab {
	l := &faultLab{socketLab: newSocketLab(t, false)}
	l.s.now = func() time.Time { return time.Now().Add(time.Duration(l.clock.Load())) }
	l.s.faultAt, l.s.granter = l.step, always{l.granter}
	l.timers = l.lab.timers()
	up := startScript(t, func(q *dns.Msg, tcp bool) [][]byte {
		if gate := l.gate.Load(); gate != nil {
			<-*gate
		}
		if strings.HasPrefix(q.Question[0].Name, "atwo") { // which the socket does not read
			return [][]byte{says(q, nil, q.Question[0].Name+" 60 IN A 192.0.2.1", "ads.test. 60 IN A 192.0.2.2")}
		}
		if strings.HasPrefix(q.Question[0].Name, "along") && !tcp { // which is asked for over TCP
			return [][]byte{says(q, func(r *dns.Msg) { r.Truncated = true })}
		}
		return one("192.0.2.1")(q, tcp)
	})
	l.asks(configWith(t, "cache 1h {\nprefetch 1 1m 90%\n}"), nil, up)
	l.s.SetCluster(Cluster{Nodes: socketCluster.Nodes, Services: socketCluster.Services, Hold: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}})
	l.at = l.listen()
	return l
}

// step counts, and panics at the steps that are chosen.
func (l *faultLab) step(name string) {
	l.mu.Lock()
	hit := false
	if l.armed {
		l.steps = append(l.steps, name)
		hit = len(l.steps) >= l.fault && len(l.steps) <= l.fault+l.again
	}
	l.mu.Unlock()
	if hit {
		panic("a fault for the test at " + name)
	}
}

// arm chooses the step at which the next query is to fail, counted from 1.
func (l *faultLab) arm(fault int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed, l.steps, l.fault = true, nil, fault
}

// hits tells how many faults have happened, and where the first one; disarm ends the
// counting.
func (l *faultLab) hits() (step string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.steps) < l.fault {
		return "", 0
	}
	return l.steps[l.fault-1], 1 + min(l.again, len(l.steps)-l.fault)
}

func (l *faultLab) disarm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = false
}

// holdings is all that queries hold, in words: nothing of it is left when none is
// under way. A connection whose query does not end stays.
func (l *faultLab) holdings() string {
	s := l.s
	s.calls.mu.Lock()
	calls := len(s.calls.all)
	s.calls.mu.Unlock()
	s.parked.mu.Lock()
	held := s.parked.all
	s.parked.mu.Unlock()
	return fmt.Sprintf("%d queries, %d held, %d calls, %d at the upstreams, %d renewals, %d jobs, %d connections",
		s.clients.InFlight(), held, calls, s.forwards.InFlight(), l.answers().renewals.inFlight(), l.busy(), s.Stats().Connections)
}

// busy counts the goroutines that have a job.
func (l *faultLab) busy() int {
	stacks := make([]byte, 8<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), fmt.Sprintf("proxy.(*Server).job(%p", l.s))
}

const nothingHeld = "0 queries, 0 held, 0 calls, 0 at the upstreams, 0 renewals, 0 jobs, 0 connections"

// left has the resources that are held at the end.
func (l *faultLab) left() (left string) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if left = l.holdings(); left == nothingHeld || time.Now().After(end) {
			return left
		}
	}
}

// asked is a pod's query and its reply.
type asked struct {
	conn  *dns.Conn
	query *dns.Msg
}

// put sends a question as from the pod.
func (l *faultLab) put(network, pod, qname string) asked {
	a := asked{client(l.t, network, "127.0.0."+pod, l.at), newQuery(qname, dns.TypeA)}
	l.putOn(a)
	return a
}

func (l *faultLab) putOn(a asked) {
	fatal.If(l.t, a.conn.WriteMsg(a.query))
}

// good tells whether the question is answered, and not with SERVFAIL, the only other
// reply that there may be.
func (l *faultLab) good(a asked) bool {
	l.t.Helper()
	defer a.conn.Close()
	r, err := a.conn.ReadMsg()
	switch {
	case err != nil:
		l.t.Errorf("%v: no reply: %v", a.query.Question, err)
		return false
	case r.Id != a.query.Id || r.Question[0] != a.query.Question[0]:
		l.t.Errorf("%v: another's reply: %v", a.query.Question, r)
		return false
	case r.Rcode == dns.RcodeServerFailure && len(r.Answer) == 0:
		return false
	case r.Rcode != dns.RcodeSuccess || len(r.Answer) != 1:
		l.t.Errorf("%v: %v", a.query.Question, r)
	}
	return true
}
