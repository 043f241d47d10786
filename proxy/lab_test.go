package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
	"github.com/namegate/namegate/testkit/wiretest"
)

const labConfig = `. {
    forward . 198.51.100.53
    cluster cluster.local 10.1.0.0/16 10.96.0.0/12
    search corp.test
    rebind allow ingress.test 10.96.7.0/24
    nat64 2001:db8:64::/96
    limits {
        rate_per_pod 1000000
        burst_per_pod 1000000
    }
}`

// The pods of the lab. All but free are selected.
var labPods = []policy.Pod{
	labPod("web", "10.1.0.2", "2001:db8:1::2"),
	labPod("quiet", "10.1.0.3"),
	labPod("strict", "10.1.0.4"),
	labPod("watched", "10.1.0.5"),
	labPod("free", "10.1.0.6"),
	labPod("both", "10.1.0.7"),
	labPod("dead", "10.1.0.8"),
}

func labPod(name string, ips ...string) policy.Pod {
	p := policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: name, UID: "uid-" + name}, Labels: map[string]string{"app": name}}
	for _, ip := range ips {
		p.IPs = append(p.IPs, netip.MustParseAddr(ip))
	}
	return p
}

const labPolicies = `
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  egress:
  - matches: [{name: www.example.org}, {pattern: "*.wild.test"}, {name: db.shop.svc.cluster.local}, {name: app.ingress.test}]
    ports: [{protocol: TCP, port: 443}]
---
metadata: {name: quiet, namespace: shop}
spec:
  podSelector: {matchLabels: {app: quiet}}
  egress: [{matches: [{name: www.example.org}]}]
  dns: {unmatched: NXDomain}
---
metadata: {name: strict, namespace: shop}
spec:
  podSelector: {matchLabels: {app: strict}}
  egress: [{matches: [{name: www.example.org}]}]
  dns: {unmatched: Refuse}
---
metadata: {name: watched, namespace: shop}
spec:
  podSelector: {matchLabels: {app: watched}}
  egress: [{matches: [{name: www.example.org}]}]
  enforcement: Audit
---
metadata: {name: both-enforced, namespace: shop}
spec:
  podSelector: {matchLabels: {app: both}}
  egress: [{matches: [{name: one.test}], ports: [{protocol: TCP, port: 80}]}, {matches: [{name: one.test}], ports: [{port: 53, protocol: UDP}]}]
  ttl: {minSeconds: 10, maxSeconds: 100, graceSeconds: 5}
---
metadata: {name: both-audit, namespace: shop}
spec:
  podSelector: {matchLabels: {app: both}}
  egress: [{matches: [{name: two.test}]}]
  enforcement: Audit
---
metadata: {name: dead, namespace: shop}
spec:
  podSelector: {matchLabels: {app: dead}}
  egress: [{matches: [{pattern: "**"}]}]
`

func policiesOf(t testing.TB, texts string) (all []*v1alpha1.FQDNNetworkPolicy) {
	t.Helper()
	for text := range strings.SplitSeq(texts, "---") {
		var p v1alpha1.FQDNNetworkPolicy
		fatal.If(t, yaml.UnmarshalStrict([]byte(text), &p))
		all = append(all, &p)
	}
	return all
}

func compiled(t testing.TB, texts string, pods []policy.Pod) *policy.Snapshot {
	t.Helper()
	snap := compile.New().Compile(compile.Input{
		Policies:   policiesOf(t, texts),
		Namespaces: map[string]map[string]string{"shop": {}},
		Pods:       pods,
	})
	if len(snap.Problems) > 0 {
		t.Fatalf("problems: %v", snap.Problems)
	}
	return snap
}

// noon is the moment of every test with a still clock.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// ownRecord is a copy of a record, which is lent.
func ownRecord(r audit.Record) audit.Record {
	r.Matches, r.Chain, r.Answers = slices.Clone(r.Matches), slices.Clone(r.Chain), slices.Clone(r.Answers)
	for i := range r.Answers {
		r.Answers[i].Openings = slices.Clone(r.Answers[i].Openings)
	}
	return r
}

// repeats are the decisions that a DecisionLog has prepared.
type repeats struct{ prepared sync.Map }

func (r *repeats) Prepare(rec *audit.Record) *audit.Prepared {
	p := (*audit.Log)(nil).Prepare(rec)
	r.prepared.Store(p, ownRecord(*rec))
	return p
}

// of is the record of a decision that is repeated.
func (r *repeats) of(p *audit.Prepared, at time.Time, from netip.Addr, latency time.Duration) audit.Record {
	v, _ := r.prepared.Load(p)
	rec := v.(audit.Record)
	rec.Time, rec.Address, rec.Latency, rec.Cache, rec.TCP = at, from, latency, audit.CacheHit, false
	return rec
}

// recorder is a DecisionLog that keeps.
type recorder struct {
	repeats
	mu   sync.Mutex
	recs []audit.Record
}

func (r *recorder) Repeat(p *audit.Prepared, at time.Time, from netip.Addr, latency time.Duration) {
	r.Write(r.repeats.of(p, at, from, latency))
}

func (r *recorder) Write(rec audit.Record) {
	rec = ownRecord(rec)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recs = append(r.recs, rec)
}

func (r *recorder) last(t testing.TB) audit.Record {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.recs) == 0 {
		t.Fatal("nothing was logged")
	}
	return r.recs[len(r.recs)-1]
}

// memory is a resolver that answers from a table: "name TYPE" to records in
// zone-file form, or to a response code in capitals. "+" puts a record into the
// additional section, "~" into the authority section. A name that no key has is NXDOMAIN, a
// type that a name has not is NODATA.
type memory struct {
	mu    sync.Mutex
	table map[string][]string
	asked []string
}

func (m *memory) resolve(a wire.Query) (found, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := a.Name.String() + " " + dns.TypeToString[a.Type]
	m.asked = append(m.asked, key)
	r := new(dns.Msg).SetReply(newQuery(answer.Presentation(a.Name), a.Type))
	texts, ok := m.table[key]
	if !ok && !m.exists(a.Name.String()) {
		r.Rcode = dns.RcodeNameError
	}
	if slices.Contains(texts, "error") {
		return found{}, errors.New("nobody answers")
	}
	if err := wiretest.Fill(r, texts...); err != nil {
		return found{}, err
	}
	wire, err := r.Pack()
	if err != nil {
		return found{}, err
	}
	back := new(dns.Msg)
	if err := back.Unpack(wire); err != nil {
		return found{}, err
	}
	return found{back, netip.MustParseAddrPort("198.51.100.53:53")}, nil
}

// exists tells whether the table has the name with any type. m.mu is held.
func (m *memory) exists(name string) bool {
	for key := range m.table {
		if strings.HasPrefix(key, name+" ") {
			return true
		}
	}
	return false
}

func (m *memory) wasAsked(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.asked, key)
}

// lab is a server with the lab's pods and policies, a still clock and an
// upstream in memory.
type lab struct {
	t       testing.TB
	s       *Server
	granter *granttest.Granter
	log     *recorder
	up      *memory
}

func newLab(t testing.TB, table map[string][]string) *lab {
	t.Helper()
	c, err := corefile.Parse("Corefile", labConfig)
	fatal.If(t, err)
	l := &lab{t: t, granter: &granttest.Granter{}, log: &recorder{}, up: &memory{table: table}}
	l.s, err = New(Options{Config: c, Granter: l.granter, Log: l.log, Now: func() time.Time { return noon }})
	fatal.If(t, err)
	l.s.source, l.s.timeouts.running = fromLoopback, true // on a still clock no grant is late
	l.s.Publish(compiled(t, labPolicies, labPods))
	l.use(c, l.up)
	l.s.SetCluster(Cluster{
		Nodes:    []netip.Addr{netip.MustParseAddr("192.0.2.250")},
		Services: []netip.Addr{netip.MustParseAddr("203.0.113.250")},
	})
	return l
}

// resolver answers calls; the tests' upstreams are such.
type resolver interface {
	resolve(a wire.Query) (found, error)
}

// found is an upstream's answer.
type found struct {
	msg  *dns.Msg
	from netip.AddrPort
}

// resolving has calls answered by a resolver, each on a goroutine of its own.
type resolving struct {
	s *Server
	resolver
}

// Start implements upstreams.
func (r resolving) Start(a wire.Query, to upstream.Responder, _ *upstream.Batch) {
	to.(*call).remove() // identical questions are asked as often as they come
	r.s.do(func() {
		var got found
		err := upstream.ErrFault
		r.s.protect("a query to the upstreams", func() { got, err = r.resolve(a) })
		to.Done(upstream.Answer{Msg: got.msg, From: got.from}, err)
	})
}

// use makes the server ask the resolver.
func (l *lab) use(c *corefile.Config, r resolver) {
	next := l.s.configured(c)
	for _, z := range next.zones {
		z.upstreams = resolving{l.s, r}
	}
	l.s.store(next)
}

// answers are those that pods get.
func (l *lab) answers() *answers { return l.s.setup.Load().answers[0] }

// inHand is the replier of a query whose reply a test waits for.
type inHand struct {
	tcp    bool
	packet []byte
	over   chan struct{}
}

func (h *inHand) reply(packet []byte, _ bool) { h.packet = append([]byte(nil), packet...) }
func (h *inHand) stream() bool                { return h.tcp }
func (h *inHand) done(*query)                 { close(h.over) }

// handle returns the reply to a packet that IsQuery, nil for silence, without the packet
// cache.
func (s *Server) handle(packet []byte, who identity, tcp bool) []byte {
	h := &inHand{tcp: tcp, over: make(chan struct{})}
	if !who.known {
		return wire.ErrorReply(packet, dns.RcodeRefused)
	}
	s.newQuery(packet, &who, h, s.now()).run()
	<-h.over
	return h.packet
}

// fromLoopback takes 127.0.0.N for the pod with 10.1.0.N, N of 2 to 9: no pod can
// have an address from which a test can send.
func fromLoopback(from netip.Addr) netip.Addr {
	a := plainSource(from)
	if b := a.As16(); a.Is4() && b[12] == 127 && b[15] >= 2 && b[15] <= 9 {
		return netip.AddrFrom4([4]byte{10, 1, 0, b[15]})
	}
	return a
}

// send gives the server a query as from the address and returns the reply.
func (l *lab) send(from string, m *dns.Msg) *dns.Msg {
	l.t.Helper()
	who := l.s.identify(netip.MustParseAddr(from), netip.MustParseAddr("169.254.20.53"))
	r := parsed(l.t, l.s.handle(packed(l.t, m), who, false))
	if r.Id != m.Id || !r.Response {
		l.t.Fatalf("the reply has id %d and response %v, the query id %d", r.Id, r.Response, m.Id)
	}
	return r
}

func (l *lab) ask(from, qname string, qtype uint16) *dns.Msg {
	l.t.Helper()
	return l.send(from, newQuery(qname, qtype))
}

// wantCode fails the test if a reply has another response code.
func wantCode(t testing.TB, rcode int, r *dns.Msg, at ...any) {
	t.Helper()
	if r.Rcode != rcode {
		t.Errorf("%s\nwant %s, got %v", fatal.Words(at), dns.RcodeToString[rcode], r)
	}
}

// wantAnswer fails the test if the answer of a reply has another number of records.
func wantAnswer(t testing.TB, records int, r *dns.Msg, at ...any) {
	t.Helper()
	if len(r.Answer) != records {
		t.Errorf("%s\nwant %d records, got %v", fatal.Words(at), records, r)
	}
}

// granted returns the grants that the fake got, a line a grant.
func (l *lab) granted() []string {
	var lines []string
	for _, g := range l.granter.Grants() {
		lines = append(lines, fmt.Sprintf("%s %s %v %s +%v", g.Pod.Name, g.Name, g.Addrs, g.Ports, g.Deadline.Sub(noon)))
	}
	return lines
}

// data returns the records of a section as short text: "name type data", with
// the TTL in front.
func data(rrs []dns.RR) []string {
	var lines []string
	for _, rr := range rrs {
		if rr.Header().Rrtype == dns.TypeOPT {
			continue
		}
		lines = append(lines, strings.Join(strings.Fields(strings.ReplaceAll(rr.String(), "\tIN\t", "\t")), " "))
	}
	return lines
}

func equal(t testing.TB, what string, got, want []string) {
	t.Helper()
	diff.Error(t, want, got, what)
}

// The words of the tests.
var (
	newQuery = wiretest.Query
	packed   = wiretest.Packed
	parsed   = wiretest.Parsed
)

func itoa(i int) string { return fmt.Sprint(i) }

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrsOf(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, mustAddr(s))
	}
	return out
}

// soa is the record beside a denial, but for its minimum.
const soa = "~test. 300 IN SOA ns.test. admin.test. 1 2 3 4 "
