package proxy

import (
	"bytes"
	"context"
	"maps"
	"math"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/fatal"
)

// endpoint is where the tests' queries arrive.
var endpoint = netip.MustParseAddr("169.254.20.53")

// configWith returns the lab's configuration with further lines.
func configWith(t testing.TB, lines ...string) *corefile.Config {
	t.Helper()
	c, err := corefile.Parse("Corefile", strings.Replace(labConfig, "limits {", strings.Join(lines, "\n")+"\nlimits {", 1))
	fatal.If(t, err)
	return c
}

// labClock is a clock that a test moves, as time since noon.
type labClock struct{ at atomic.Int64 }

func (c *labClock) now() time.Time       { return noon.Add(time.Duration(c.at.Load())) }
func (c *labClock) pass(d time.Duration) { c.at.Add(int64(d)) }

// kernel is a Granter that knows the deadline of each grant, and can be made to forget
// grants or to fail.
type kernelFake struct {
	mu     sync.Mutex
	open   map[opening]time.Time
	writes int // grants that were not covered
	calls  int
	fails  error
	epoch  uint64 // counts forgotten grants
}

type opening struct {
	pod   policy.PodRef
	name  fqdn.Name
	ports policy.PortSet
	rule  policy.RuleID
	addr  netip.Addr
}

func (l *kernelFake) Grant(_ context.Context, grants []policy.Grant) error {
	covered := l.Covered(grants)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if l.fails != nil {
		return l.fails
	}
	if !covered {
		l.writes++
	}
	if l.open == nil {
		l.open = map[opening]time.Time{}
	}
	for _, g := range grants {
		for _, a := range g.Addrs {
			o := opening{g.Pod, g.Name, g.Ports, g.Rule, a}
			if l.open[o].Before(g.Deadline) {
				l.open[o] = g.Deadline
			}
		}
	}
	return nil
}

func (l *kernelFake) Share() int { return math.MaxInt }

func (l *kernelFake) GrantThen(grants []policy.Grant, then GrantCallback) {
	then.Granted(l.Grant(context.Background(), grants), false)
}

func (l *kernelFake) Covered(grants []policy.Grant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range grants {
		for _, a := range g.Addrs {
			if until, ok := l.open[opening{g.Pod, g.Name, g.Ports, g.Rule, a}]; !ok || until.Before(g.Deadline) {
				return false
			}
		}
	}
	return true
}

// until returns when the last opening of the address to the pod ends.
func (l *kernelFake) until(p policy.PodRef, a netip.Addr) (last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o, until := range l.open {
		if o.pod == p && o.addr == a && until.After(last) {
			last = until
		}
	}
	return last
}

// forget closes everything that which returns true for.
func (l *kernelFake) forget(which func(opening) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	maps.DeleteFunc(l.open, func(o opening, _ time.Time) bool { return which(o) })
}

func (l *kernelFake) Epoch() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

func (l *kernelFake) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = err
}

// cacheLab is a lab with a clock, a fake kernel and a log of lines.
type cacheLab struct {
	lab
	labClock
	kernel *kernelFake
	lines  lines
	config *corefile.Config
}

// lines is the last record as the log writes it.
type lines struct {
	repeats
	mu   sync.Mutex
	all  []audit.Record
	keep bool
}

func (l *lines) Write(r audit.Record) {
	r = ownRecord(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.keep {
		l.all = l.all[:0]
	}
	l.all = append(l.all, r)
}

func (l *lines) Repeat(p *audit.Prepared, at time.Time, from netip.Addr, latency time.Duration) {
	l.Write(l.of(p, at, from, latency))
}

func lineOf(t testing.TB, r audit.Record) string {
	t.Helper()
	var out bytes.Buffer
	log := audit.To(&out, audit.Options{Node: "node-1"})
	log.Write(r)
	fatal.If(t, log.Close(context.Background()))
	return out.String()
}

// newCacheLab makes the lab with the configuration's further lines; without any it
// keeps answers for up to an hour.
func newCacheLab(t testing.TB, table map[string][]string, more ...string) *cacheLab {
	t.Helper()
	if len(more) == 0 {
		more = []string{"cache"}
	}
	l := bareCacheLab(t, configWith(t, more...))
	l.up = &memory{table: table}
	l.use(l.config, l.up)
	l.s.Publish(compiled(t, labPolicies, labPods))
	l.s.SetCluster(labCluster)
	return l
}

var labCluster = Cluster{Nodes: addrsOf("192.0.2.250"), Services: addrsOf("203.0.113.250")}

// bareCacheLab has no pods, and no upstream.
func bareCacheLab(t testing.TB, c *corefile.Config) *cacheLab {
	t.Helper()
	l := &cacheLab{kernel: new(kernelFake), config: c}
	l.t = t
	var err error
	if l.s, err = New(Options{Config: c, Granter: l.kernel, Log: &l.lines, Now: l.now}); err != nil {
		t.Fatal(err)
	}
	l.s.source, l.s.timeouts.running = fromLoopback, true // a grant is late when the test says so
	l.s.after = func(time.Duration, func()) func() bool { return func() bool { return true } }
	t.Cleanup(func() { _ = l.s.Close(context.Background()) })
	return l
}

// reconfigure applies another configuration; the resolver stays.
func (l *cacheLab) reconfigure(more ...string) {
	l.t.Helper()
	l.config = configWith(l.t, more...)
	l.use(l.config, l.up)
}

func (l *cacheLab) who(from string) identity { return l.s.identify(mustAddr(from), endpoint) }

// fromPacketCache returns the reply that the packet gets from the socket's reader, nil for
// none.
func (l *cacheLab) fromPacketCache(from string, packet []byte) []byte {
	q, ok := wire.ParseQuery(packet)
	if !ok {
		return nil
	}
	who := l.who(from)
	var out [mmsg.PacketBytes]byte
	n, _ := l.s.cached(&q, &who, l.now(), out[:])
	if n == 0 {
		return nil
	}
	return out[:n]
}

// slowly returns the reply to the packet without the packet cache.
func (l *cacheLab) decidedAgain(from string, packet []byte, tcp bool) []byte {
	return l.s.handle(packet, l.who(from), tcp)
}

// any queries as a client does: from the packet cache if it has a reply, else by a full
// query.
func (l *cacheLab) any(from string, m *dns.Msg) (r *dns.Msg, hit bool) {
	l.t.Helper()
	packet := packed(l.t, m)
	if wire := l.fromPacketCache(from, packet); wire != nil {
		return parsed(l.t, wire), true
	}
	return parsed(l.t, l.decidedAgain(from, packet, false)), false
}

// reply is the reply of any.
func (l *cacheLab) reply(from string, m *dns.Msg) *dns.Msg {
	l.t.Helper()
	r, _ := l.any(from, m)
	return r
}

// gives asks and compares the answer section.
func (l *cacheLab) gives(from, qname string, qtype uint16, want ...string) *dns.Msg {
	l.t.Helper()
	r, _ := l.any(from, newQuery(qname, qtype))
	equal(l.t, "the answer to "+qname, data(r.Answer), want)
	return r
}

// upstreamAsked returns how often the upstream was asked since the last call.
func (l *cacheLab) upstreamAsked() int {
	l.up.mu.Lock()
	defer l.up.mu.Unlock()
	n := len(l.up.asked)
	l.up.asked = nil
	return n
}

// says changes the upstream's answers.
func (l *cacheLab) says(key string, records ...string) {
	l.up.mu.Lock()
	defer l.up.mu.Unlock()
	l.up.table[key] = records
}

// settle waits for the renewals under way.
func (l *cacheLab) settle() {
	l.t.Helper()
	fatal.Await(l.t, "the end of the renewals", func() bool { return l.answers().renewals.inFlight() == 0 })
}

// inFlight returns how many renewals there are.
func (f *renewals) inFlight() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all)
}
