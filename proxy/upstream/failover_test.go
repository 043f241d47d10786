package upstream

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

// group is a forward whose upstreams a test changes.
type group struct {
	f     *Zone
	z     *corefile.Zone
	stats *Counters
	ups   map[*upstreamtest.Server]*upstream
}

func newGroup(t testing.TB) *group {
	z := patient()
	z.Services = []policy.ServiceRef{{Namespace: "kube-system", Name: "kube-dns"}}
	f := newZone()
	g := &group{f: f, stats: &f.pool.stats, z: &z, ups: map[*upstreamtest.Server]*upstream{}}
	t.Cleanup(func() {
		for _, u := range g.ups {
			u.close()
		}
	})
	return g
}

func (g *group) set(first, last []*upstreamtest.Server) {
	used := map[*upstreamtest.Server]*upstream{}
	pick := func(list []*upstreamtest.Server) (ups []*upstream) {
		for _, s := range list {
			if used[s] = g.ups[s]; used[s] == nil {
				used[s] = newUpstream(s.Addr, g.f.pool)
			}
			ups = append(ups, used[s])
		}
		return ups
	}
	g.f.set(g.z, pick(first), pick(last))
	for s, u := range g.ups {
		if used[s] == nil {
			u.close()
		}
	}
	g.ups = used
}

// asked runs one query; the channel has its answer's address or its error.
func (g *group) asked(t testing.TB) <-chan string {
	out := make(chan string, 1)
	a := askFor(t, "www.example.org")
	go func() {
		got, err := g.f.resolve(a)
		switch {
		case err != nil:
			out <- err.Error()
		case len(got.Msg.Answer) == 1:
			out <- got.Msg.Answer[0].(*dns.A).A.String()
		default:
			out <- dns.RcodeToString[got.Msg.Rcode]
		}
	}()
	return out
}

// TestLastResort: the Service's own address is asked when no endpoint has
// answered, and by then at once.
func TestLastResort(t *testing.T) {
	good, resort := upstreamtest.Start(t, upstreamtest.Honest("192.0.2.1")), upstreamtest.Start(t, upstreamtest.Honest("192.0.2.99"))
	closed, mute, no := upstreamtest.Start(t, upstreamtest.Silent), upstreamtest.Start(t, upstreamtest.Silent), upstreamtest.Start(t, upstreamtest.Rcode(dns.RcodeServerFailure))
	closed.Stop() // after the others have their ports
	for _, tt := range []struct {
		name    string
		timeout time.Duration // short where an upstream is mute
		first   []*upstreamtest.Server
		want    string
	}{
		{"an endpoint answers", time.Minute, []*upstreamtest.Server{good}, "192.0.2.1"},
		{"the second does", time.Second, []*upstreamtest.Server{closed, mute, good}, "192.0.2.1"},
		{"nobody is there", time.Minute, []*upstreamtest.Server{closed, closed}, "192.0.2.99"},
		{"nobody answers", time.Second, []*upstreamtest.Server{mute}, "192.0.2.99"},
		{"no endpoint", time.Minute, nil, "192.0.2.99"},
		{"an endpoint says no: the Service leads to no other", time.Second, []*upstreamtest.Server{mute, no}, "SERVFAIL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGroup(t)
			g.z.Timeout = tt.timeout
			g.set(tt.first, []*upstreamtest.Server{resort})
			before := resort.UDP.Load()
			diff.Equal(t, tt.want, <-g.asked(t))
			diff.Equal(t, tt.want == "192.0.2.99", resort.UDP.Load() > before, "the last resort was asked")
		})
	}
}

// TestTimeIsKeptForTheLastResort: more endpoints than tries fit into the deadline
// are silent.
func TestTimeIsKeptForTheLastResort(t *testing.T) {
	var mute []*upstreamtest.Server
	for range 8 {
		mute = append(mute, upstreamtest.Start(t, upstreamtest.Silent))
	}
	g := newGroup(t)
	g.z.Timeout, g.z.Deadline = 2*time.Second, 3800*time.Millisecond // of which the last resort has 1.8 s
	g.set(mute, []*upstreamtest.Server{upstreamtest.Start(t, upstreamtest.Honest("192.0.2.99"))})
	diff.Equal(t, "192.0.2.99", <-g.asked(t))
}

// TestServiceWithoutAddress: SERVFAIL's error within the deadline names the
// Service, and an endpoint that comes meanwhile answers.
func TestServiceWithoutAddress(t *testing.T) {
	g := newGroup(t)
	g.z.Deadline = 120 * time.Millisecond
	g.set(nil, nil)
	began := time.Now()
	if got := <-g.asked(t); !strings.Contains(got, "kube-dns.kube-system") || !strings.Contains(got, errNoAddress.Error()) {
		t.Error(got)
	}
	if took := time.Since(began); took < g.z.Deadline || took > time.Minute {
		t.Errorf("took %v", took)
	}

	g.z.Deadline = 2 * time.Minute
	answer := g.asked(t)
	select {
	case got := <-answer:
		t.Fatalf("nobody answered %s", got)
	case <-time.After(20 * time.Millisecond):
	}
	g.set([]*upstreamtest.Server{upstreamtest.Start(t, upstreamtest.Honest("192.0.2.1"))}, nil)
	diff.Equal(t, "192.0.2.1", <-answer)
}

// TestPauseEndsWithAChange: a query that rests does not sleep through new upstreams.
func TestPauseEndsWithAChange(t *testing.T) {
	g := newGroup(t)
	g.z.Deadline = 10 * time.Minute
	g.set(nil, nil)
	r := new(request)
	g.f.begin(r, askFor(t, "www.example.org"), newWaiter())
	r.pause = 10 * time.Minute
	began, rested := time.Now(), make(chan struct{})
	go func() { defer close(rested); r.rest() }()
	up := upstreamtest.Start(t, upstreamtest.Honest("192.0.2.1"))
	g.set([]*upstreamtest.Server{up}, nil)
	<-rested
	if time.Since(began) > time.Minute {
		t.Errorf("rested %v", time.Since(began))
	}
	r.round()
	if u, resort := r.choose(); u != g.ups[up] || resort {
		t.Errorf("goes on at %v", u)
	}
}

// TestUpstreamThatListensLater: the only endpoint comes back before the deadline.
func TestUpstreamThatListensLater(t *testing.T) {
	up := upstreamtest.Start(t, upstreamtest.Honest("192.0.2.1"))
	old := upstreamtest.Start(t, upstreamtest.Silent)
	old.Stop()
	g := newGroup(t)
	g.z.Deadline = 2 * time.Minute
	g.set([]*upstreamtest.Server{old}, nil)
	answer := g.asked(t)
	fatal.Await(t, "it was never tried", func() bool { return g.stats.Failures.Load() > 1 })
	g.set([]*upstreamtest.Server{up}, nil)
	diff.Equal(t, "192.0.2.1", <-answer)
	if n := g.stats.Failures.Load(); n > 20 {
		t.Errorf("%d tries: it does not rest between the rounds", n)
	}
}

// TestUpstreamRemovedInFlight: the answer of a removed upstream still counts if it arrives
// soon; if not, another upstream is asked long before the try would have ended.
func TestUpstreamRemovedInFlight(t *testing.T) {
	removed := func(answers bool) (got string, after time.Duration) {
		gate, reached := make(chan struct{}), make(chan struct{}, 8)
		leaving := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
			reached <- struct{}{}
			<-gate
			return upstreamtest.Honest("192.0.2.1")(q, tcp)
		})
		other := upstreamtest.Start(t, upstreamtest.Honest("192.0.2.2"))
		g := newGroup(t)
		g.z.Timeout, g.z.Deadline = 5*time.Minute, 10*time.Minute
		g.set([]*upstreamtest.Server{leaving}, nil)
		answer := g.asked(t)
		<-reached
		began := time.Now()
		g.set([]*upstreamtest.Server{other}, nil)
		if answers {
			close(gate)
		}
		got, after = <-answer, time.Since(began)
		if !answers {
			close(gate)
		}
		diff.Equal(t, 0, g.stats.Failures.Load(), "failures of one that was sent away")
		return got, after
	}
	if got, after := removed(false); got != "192.0.2.2" || after > time.Minute {
		t.Errorf("it does not answer: %s after %v", got, after)
	}
	// On a slow machine the answer may come later than soon, and another upstream's counts.
	fatal.Await(t, "its answer never counts", func() bool { got, _ := removed(true); return got == "192.0.2.1" })
}

// TestUpstreamLeavesWithinTCP: as over UDP.
func TestUpstreamLeavesWithinTCP(t *testing.T) {
	gate, reached := make(chan struct{}), make(chan struct{}, 8)
	defer close(gate)
	leaving := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		if !tcp {
			return [][]byte{upstreamtest.Says(q, func(r *dns.Msg) { r.Truncated = true })}
		}
		reached <- struct{}{}
		<-gate
		return nil
	})
	g := newGroup(t)
	g.z.Timeout, g.z.Deadline = 5*time.Minute, 10*time.Minute
	g.set([]*upstreamtest.Server{leaving}, nil)
	answer := g.asked(t)
	<-reached
	began := time.Now()
	g.set([]*upstreamtest.Server{upstreamtest.Start(t, upstreamtest.Honest("192.0.2.2"))}, nil)
	if got := <-answer; got != "192.0.2.2" || time.Since(began) > time.Minute {
		t.Errorf("%s after %v", got, time.Since(began))
	}
}

// TestNoUpstreamIsAskedTwiceInARound: also where the upstreams change within it.
func TestNoUpstreamIsAskedTwiceInARound(t *testing.T) {
	g := newGroup(t)
	reached, changed := make(chan struct{}, 8), make(chan struct{})
	first := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		reached <- struct{}{}
		<-changed
		return upstreamtest.Rcode(dns.RcodeRefused)(q, tcp)
	})
	second, third := upstreamtest.Start(t, upstreamtest.Rcode(dns.RcodeRefused)), upstreamtest.Start(t, upstreamtest.Honest("192.0.2.3"))
	g.z.Timeout, g.z.Deadline = 5*time.Minute, 10*time.Minute
	g.set([]*upstreamtest.Server{first, second}, nil)
	answer := g.asked(t)
	<-reached
	g.set([]*upstreamtest.Server{first, second, third}, nil)
	close(changed)
	if got := <-answer; got != "192.0.2.3" || first.UDP.Load() != 1 || second.UDP.Load() != 1 {
		t.Errorf("%s, asked %d and %d times", got, first.UDP.Load(), second.UDP.Load())
	}
}

// TestSilentEndpointCostsAMoment: an endpoint that died without a word delays the
// first queries until it is found down, long before their try would have ended, and
// is asked last from then on.
func TestSilentEndpointCostsAMoment(t *testing.T) {
	dead := upstreamtest.Start(t, upstreamtest.Silent)
	g := newGroup(t)
	g.z.Timeout, g.z.Deadline, g.z.MaxFails = 5*time.Minute, 10*time.Minute, 2
	g.set([]*upstreamtest.Server{dead, upstreamtest.Start(t, upstreamtest.Honest("192.0.2.2"))}, nil)
	began := time.Now()
	for _, answer := range []<-chan string{g.asked(t), g.asked(t)} {
		diff.Equal(t, "192.0.2.2", <-answer)
	}
	if took := time.Since(began); took < retransmitAfter || took > time.Minute {
		t.Errorf("took %v", took)
	}
	if u := g.ups[dead]; !u.down(2) {
		t.Error("it is not down")
	}
	n := dead.UDP.Load()
	for range 5 {
		diff.Equal(t, "192.0.2.2", <-g.asked(t))
	}
	if more := dead.UDP.Load() - n; more > int64(time.Since(began)/probeEvery)+1 {
		t.Errorf("%d more packets than probes", more)
	}
}

// TestSlowNameIsNoDoubt: an upstream that answers others meanwhile is not probed.
func TestSlowNameIsNoDoubt(t *testing.T) {
	var probes atomic.Int64
	gate := make(chan struct{})
	up := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		switch {
		case q.Question[0].Qtype == dns.TypeNS:
			probes.Add(1)
		case strings.HasPrefix(q.Question[0].Name, "slow"):
			<-gate
		}
		return upstreamtest.Honest("192.0.2.1")(q, tcp)
	})
	g := newGroup(t)
	g.z.MaxFails = 2
	g.set([]*upstreamtest.Server{up}, nil)
	done := make(chan error)
	slow := askFor(t, "slow.example.org")
	go func() { _, err := g.f.resolve(slow); done <- err }()
	pause, last := time.Duration(0), time.Now()
	for end := time.Now().Add(2 * retransmitAfter); time.Now().Before(end); time.Sleep(retransmitAfter / 20) {
		diff.MustEqual(t, "192.0.2.1", <-g.asked(t))
		pause, last = max(pause, time.Since(last)), time.Now()
	}
	// Where the machine stood still for long the upstream was silent indeed.
	if n := probes.Load(); n != 0 && pause < retransmitAfter/2 {
		t.Errorf("%d probes of an upstream that answers", n)
	}
	close(gate)
	if err := <-done; err != nil {
		t.Errorf("the slow name: %v", err)
	}
}

// TestImmediateFailuresDoNotCount: a try that fails immediately has cost no time, and
// does not count against the limit of tries.
func TestImmediateFailuresDoNotCount(t *testing.T) {
	u := newUpstream(loopback, new(Pool))
	defer u.close()
	f := newZone()
	f.set(&corefile.Zone{Timeout: time.Second, Deadline: 4 * time.Second}, []*upstream{u}, nil)
	for err, counts := range map[error]int{
		errDown: 0, errConns: 0, syscall.ECONNREFUSED: 0, syscall.ENETUNREACH: 0,
		os.ErrDeadlineExceeded: 1, errManyWrong: 1, errSockets: 1,
	} {
		r := new(request)
		f.begin(r, askFor(t, "www.example.org"), nil)
		r.try.u = u
		if r.note(fmt.Errorf("query: %w", err)); r.silent != counts {
			t.Errorf("%v: counts %d", err, r.silent)
		}
	}
}

// TestBoundsOfATry: TCP after UDP may take half a try's time more while another is
// there to ask; TCP alone has one.
func TestBoundsOfATry(t *testing.T) {
	u := newUpstream(loopback, new(Pool))
	defer u.close()
	for _, tt := range []struct {
		upstreams int
		force     bool
		udp, tcp  time.Duration
		share     time.Duration
	}{
		{1, false, time.Second, 4 * time.Second, 0},
		{2, false, time.Second, 4 * time.Second, time.Second / 2},
		{1, true, time.Second, time.Second, 0},
		{2, true, time.Second, time.Second, 0},
	} {
		f := newZone()
		z := corefile.Zone{Timeout: time.Second, Deadline: 4 * time.Second, ForceTCP: tt.force, MaxFails: 3, Probe: time.Minute}
		f.set(&z, []*upstream{u, u}[:tt.upstreams], nil)
		r := new(request)
		f.begin(r, askFor(t, "www.example.org"), nil)
		r.choose()
		by := r.limits()
		if by.udp.Sub(r.now) != tt.udp || by.tcp.Sub(r.now) != tt.tcp || by.share != tt.share || by.forceTCP != tt.force || by.maxFails != 3 || by.probe != time.Minute {
			t.Errorf("%+v: %v, %v", tt, by.udp.Sub(r.now), by.tcp.Sub(r.now))
		}
	}
}
