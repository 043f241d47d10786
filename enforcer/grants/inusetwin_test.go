package grants

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// TestUseTwin: over random steps of time, answers, ends of queries, packets, connections, policies
// and restarts, the addresses that are open and the names that are in use are those of a model.
func TestUseTwin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const rounds, steps = 20, 500
	seen := map[string]int{}
	for round := range rounds {
		w := newUseTwin(t, rand.New(rand.NewPCG(seed, uint64(round))))
		for i := range steps {
			did := w.step()
			seen[strings.Fields(did)[0]]++
			if w.past = append(w.past, did); len(w.past) > 30 {
				w.past = w.past[1:]
			}
			if w.check(); t.Failed() {
				t.Fatalf("round %d, step %d:\n%s", round, i, strings.Join(w.past, "\n"))
			}
		}
		for what, n := range w.m.seen {
			seen[what] += n
		}
	}
	t.Log(seen)
	for _, what := range []string{"renewed", "by-connection", "unanswered", "ended-unused", "ended-asked", "ended-lacking", "reuse-over", "restart", "policy"} {
		if seen[what] == 0 {
			t.Errorf("no step saw %q", what)
		}
	}
}

// twinReuse is reuseSeconds of the policy.
const twinReuse = 150

type useTwin struct {
	*usingNode
	r      *rand.Rand
	m      *useModel
	asked  []policy.NameInUse // whose queries are in flight
	mode   string             // of the policy: Renew, Expire, or "" for none
	active map[netip.Addr]bool
	past   []string
}

func newUseTwin(t testing.TB, r *rand.Rand) *useTwin {
	w := &useTwin{r: r, active: map[netip.Addr]bool{}}
	w.usingNode = using(t, v1alpha1.TTL{})
	least := int64(4)
	if r.IntN(2) == 0 {
		least = 30
	}
	w.m = &useModel{least: least, addrs: map[netip.Addr]*modelAddr{}, connections: map[netip.Addr]time.Time{}, seen: map[string]int{}}
	w.setPolicy("Renew")
	return w
}

func (w *useTwin) setPolicy(mode string) {
	if mode == "Renew" && !w.m.renews {
		w.m.judge(w.Now())
	}
	w.mode, w.m.renews = mode, mode == "Renew"
	if mode == "" {
		w.node.apply([]policy.Pod{w.pod}, pol("allow", "tcp/443 other.example.org"))
		w.m.addrs = map[netip.Addr]*modelAddr{}
		return
	}
	least, grace, reuse := w.m.least, w.m.grace(), int64(twinReuse)
	w.apply(v1alpha1.TTL{MinSeconds: &least, GraceSeconds: &grace, ReuseSeconds: &reuse, InUse: v1alpha1.InUse(mode)})
}

func (w *useTwin) name() string { return string('a'+rune(w.r.IntN(3))) + ".example.net" }

func (w *useTwin) addr() netip.Addr {
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + w.r.IntN(4))})
}

func (w *useTwin) some(of []netip.Addr) (out []netip.Addr) {
	for _, a := range of {
		if w.r.IntN(2) == 0 {
			out = append(out, a)
		}
	}
	return out
}

// step does one thing to the table and to the model, and says which.
func (w *useTwin) step() string {
	switch k := w.r.IntN(20); {
	case k < 7:
		d := 1 + w.r.IntN(20)
		w.tick(d)
		return fmt.Sprintf("pass %d s", d)
	case k < 10 && w.mode != "":
		name, ttl, addrs := w.name(), []uint32{0, 40, 200}[w.r.IntN(3)], w.some([]netip.Addr{w.addr(), w.addr()})
		w.grantTo(name, ttl, addrs)
		return fmt.Sprintf("answer %s %d %v", name, ttl, addrs)
	case k < 12:
		a := w.addr()
		w.use(a.String())
		w.m.packet(w.Now(), a)
		return fmt.Sprintf("packet %s", a)
	case k < 14:
		a := w.addr()
		w.active[a] = !w.active[a]
		return fmt.Sprintf("connection %s active %v", a, w.active[a])
	case k < 18 && len(w.asked) > 0:
		i := w.r.IntN(len(w.asked))
		in := w.asked[i]
		w.asked = slices.Delete(w.asked, i, i+1)
		return w.end(in)
	case k == 18 && w.r.IntN(3) == 0:
		w.setPolicy([]string{"Renew", "Renew", "Expire", ""}[w.r.IntN(4)])
		return "policy " + w.mode
	case k == 19 && w.r.IntN(3) == 0:
		off := w.r.IntN(500)
		w.Pass(time.Duration(off) * time.Second)
		w.traffic()
		mode := w.mode
		w.restart()
		w.m.restart(w.Now())
		w.asked = nil
		w.setPolicy(mode)
		return fmt.Sprintf("restart after %d s", off)
	}
	w.tick(1)
	return "pass 1 s"
}

func (w *useTwin) traffic() {
	w.connections = nil
	for a, active := range w.active {
		if active {
			w.m.connections[a] = w.Now()
		}
	}
	for a, last := range w.m.connections {
		w.connections = append(w.connections, w.connect(a.String(), w.Now().Sub(last)))
	}
}

// tick lets seconds pass, and compares the names in use of each.
func (w *useTwin) tick(seconds int) {
	for range seconds {
		w.Clock.Pass(time.Second)
		w.traffic()
		w.inUse = nil
		if err := w.table.Expire(); err != nil {
			w.t.Fatal(err)
		}
		want := w.m.tick(w.Now())
		if got := w.inUse; fmt.Sprint(got) != fmt.Sprint(want) {
			w.t.Errorf("in use %v, want %v", got, want)
		}
		w.asked = append(w.asked, w.inUse...)
		w.check()
	}
}

func (w *useTwin) grantTo(name string, ttl uint32, addrs []netip.Addr) {
	if len(addrs) == 0 {
		return
	}
	w.answer(w.pod, name, ttl, join(addrs))
	w.m.answer(w.Now(), name, ttl, addrs)
}

func join(addrs []netip.Addr) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

// end ends a query as the proxy does: an answer holds some addresses, or there is none.
func (w *useTwin) end(in policy.NameInUse) string {
	w.traffic()
	if w.r.IntN(4) == 0 {
		w.table.Keep(&in, in.Due, false)
		w.m.keep(w.Now(), in, in.Due, false)
		return fmt.Sprintf("unanswered-query %v", in)
	}
	held, left := w.some(in.Held), slices.Clone(in.Due)
	if w.mode == "" { // the proxy closes the name
		return "closed-query"
	}
	w.grantTo(in.Name.String(), []uint32{0, 40}[w.r.IntN(2)], held)
	left = slices.DeleteFunc(left, func(a netip.Addr) bool { return slices.Contains(held, a) })
	if len(left) > 0 {
		w.table.Keep(&in, left, true)
		w.m.keep(w.Now(), in, left, true)
	}
	return fmt.Sprintf("answered-query %v holds %v", in, held)
}

// check compares the addresses that are open.
func (w *useTwin) check() {
	var got []netip.Addr
	for _, e := range w.entries(w.pod, false) {
		got = append(got, e.Addr)
	}
	if want := w.m.open(w.Now()); !slices.Equal(got, want) {
		w.t.Errorf("open %v, want %v", got, want)
	}
}

// useModel is what is open, by the words of docs/semantics.md. It goes through everything at each
// second.
type useModel struct {
	renews      bool
	least       int64 // minSeconds
	addrs       map[netip.Addr]*modelAddr
	connections map[netip.Addr]time.Time // the last packet of each
	listed      time.Time                // when connections were
	listing     map[netip.Addr]time.Time
	seen        map[string]int
}

type modelAddr struct {
	names   map[string]*modelName
	written map[string]modelName // as the kernel's comment has them
	ends    time.Time            // in the kernel
	packets int                  // in the kernel
	known   int                  // when they were listed last
	used    time.Time            // when a listing told of more
}

type modelName struct {
	until  time.Time
	since  time.Time // zero: an earlier agent's
	held   time.Time // zero: the last answer holds it
	judged bool      // it is to be judged at until
	asked  bool
}

// open returns what the kernel has.
func (m *useModel) open(now time.Time) (out []netip.Addr) {
	for a, g := range m.addrs {
		if g.ends.After(now) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func (m *useModel) packet(now time.Time, a netip.Addr) {
	if g := m.addrs[a]; g != nil && g.ends.After(now) {
		g.packets++
	}
}

// end rounds a deadline up to a step of at most a quarter of the time and 64 s.
func (m *useModel) end(now, until time.Time) time.Time {
	for step := 64 * time.Second; ; step /= 2 {
		if step <= until.Sub(now)/4 {
			if cut := until.Truncate(step); cut.Before(until) {
				return cut.Add(step)
			}
			return until
		}
	}
}

func (m *useModel) grace() int64 {
	if m.least < 30 {
		return m.least
	}
	return 2 * m.least
}

func (m *useModel) life(ttl uint32) time.Duration {
	return time.Duration(max(int64(ttl), m.least)+m.grace()) * time.Second
}

func (m *useModel) answer(now time.Time, name string, ttl uint32, addrs []netip.Addr) {
	until := now.Add(m.life(ttl))
	open := func(a netip.Addr) bool {
		g := m.addrs[a]
		if g == nil || g.names[name] == nil {
			return false
		}
		n := g.names[name]
		return !n.asked && n.held.IsZero() && !n.until.Before(until)
	}
	if m.renews {
		until = m.end(now, until)
	}
	for _, a := range addrs {
		if open(a) {
			continue
		}
		if m.addrs[a] == nil {
			m.addrs[a] = &modelAddr{names: map[string]*modelName{}}
		}
		g := m.addrs[a]
		next := &modelName{until: until, since: now, judged: m.renews}
		switch old := g.names[name]; {
		case old == nil:
			g.forget(now)
		case !old.asked && old.until.After(until): // kept for longer by its use
			next.until = old.until
		}
		g.names[name] = next
		g.write(now)
		m.seen["renewed"]++
	}
}

// judge has open names judged from now on.
func (m *useModel) judge(now time.Time) {
	for _, g := range m.addrs {
		for _, n := range g.names {
			n.judged = n.judged || n.until.After(now) && !n.asked
		}
	}
}

// forget forgets names that are over.
func (g *modelAddr) forget(now time.Time) {
	maps.DeleteFunc(g.names, func(_ string, n *modelName) bool { return n.until.Before(now) && !n.judged })
}

func (g *modelAddr) write(now time.Time) {
	g.written, g.ends = map[string]modelName{}, now
	for name, n := range g.names {
		if g.written[name] = *n; n.until.After(g.ends) {
			g.ends = n.until
		}
	}
	g.ends = g.ends.Add(hold + time.Second)
}

// tick ends what is over at a moment, and returns the names in use.
func (m *useModel) tick(now time.Time) (out []policy.NameInUse) {
	var due []netip.Addr
	connections := false
	for a, g := range m.addrs {
		judged, over := false, true
		for _, n := range g.names {
			judged = judged || n.judged && !n.until.After(now)
			over = over && !n.until.After(now)
		}
		switch {
		case judged:
			due = append(due, a)
			if g.packets != g.known {
				g.known, g.used = g.packets, now
			}
			for _, n := range g.names {
				connections = connections || n.judged && !n.until.After(now) && !g.usedSince(n.since)
			}
		case over:
			delete(m.addrs, a)
		}
	}
	if connections {
		m.list(now)
	}
	asked := map[string]*policy.NameInUse{}
	for _, a := range due {
		g := m.addrs[a]
		for name, n := range g.names {
			if !n.judged || n.until.After(now) {
				continue
			}
			n.judged = false
			if !m.renews || !g.usedSince(n.since) && !m.active(a, n.since) {
				m.seen["ended-unused"]++
				continue
			}
			n.asked, n.until = true, now.Add(15*time.Second)
			if asked[name] == nil {
				asked[name] = &policy.NameInUse{Pod: pod("web").PodRef, Name: dns(name)}
			}
			asked[name].Due = append(asked[name].Due, a)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		in := asked[name]
		for a, g := range m.addrs {
			if n := g.names[name]; n != nil && !n.until.Before(now.Add(-time.Second)) {
				in.Held = append(in.Held, a)
			}
		}
		slices.SortFunc(in.Held, netip.Addr.Compare)
		slices.SortFunc(in.Due, netip.Addr.Compare)
		out = append(out, *in)
	}
	for _, g := range m.addrs {
		for _, n := range g.names {
			if n.asked && n.until.Equal(now) {
				m.seen["ended-asked"]++
			}
		}
	}
	return out
}

func (g *modelAddr) usedSince(since time.Time) bool {
	return g.used.After(since)
}

// list lists connections, if the last listing is 30 s old.
func (m *useModel) list(now time.Time) {
	if m.listing == nil || now.Sub(m.listed) >= 30*time.Second {
		m.listed, m.listing = now, maps.Clone(m.connections)
	}
}

func (m *useModel) active(a netip.Addr, since time.Time) bool {
	if since.After(m.listed) {
		since = m.listed.Add(-30 * time.Second)
	}
	last, there := m.listing[a]
	return there && !last.Before(since)
}

// keep is the end of a query without some of the addresses in use.
func (m *useModel) keep(now time.Time, in policy.NameInUse, left []netip.Addr, answered bool) {
	if answered {
		m.list(now)
	}
	for _, a := range left {
		g := m.addrs[a]
		if g == nil || g.names[in.Name.String()] == nil {
			continue
		}
		n := g.names[in.Name.String()]
		if n.asked {
			n.asked, n.until = false, now
		}
		held := n.held
		if held.IsZero() {
			if held = n.since; held.IsZero() {
				held = n.until
			}
		}
		reuse, life := twinReuse*time.Second, m.life(0)
		switch {
		case !m.renews:
			continue
		case !now.Before(held.Add(reuse)):
			m.seen["reuse-over"]++
			continue
		case answered && !m.active(a, n.since):
			m.seen["ended-lacking"]++
			continue
		}
		until := now.Add(max(life, 40*time.Second))
		if last := held.Add(reuse + life); last.Before(until) {
			until = last
		}
		if until = m.end(now, until); !until.After(n.until) {
			continue
		}
		*n = modelName{until: until, since: now, held: held, judged: true}
		g.write(now)
		if answered {
			m.seen["by-connection"]++
		} else {
			m.seen["unanswered"]++
		}
	}
}

// restart leaves what the kernel has.
func (m *useModel) restart(now time.Time) {
	m.listing = nil
	maps.DeleteFunc(m.addrs, func(_ netip.Addr, g *modelAddr) bool { return !g.ends.After(now) })
	for _, g := range m.addrs {
		g.names = map[string]*modelName{}
		for name, n := range g.written {
			g.names[name] = &modelName{until: n.until, held: n.held, judged: true}
		}
		if g.known, g.used = g.packets, (time.Time{}); g.packets > 0 {
			g.used = now
		}
	}
}
