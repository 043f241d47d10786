package proxy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/policytest"
)

// orderTwin is the proxy by the code in the design, at one moment.
type orderTwin struct {
	rcode   int
	verdict audit.Verdict
	would   audit.Verdict
	addrs   []string
	open    map[string]time.Duration // rule, ports, address: the lifetime
	outside int                      // of them, of addresses outside that a name of the cluster is denied
}

// orderLead is a name that leads to another.
type orderLead struct {
	until   time.Time
	lasting bool // a rule denies or passes it
}

// srvTTL is of the records that lead to other names.
const srvTTL = 3000 * time.Second

// query is a question with the names that led the pod to it at the moment now.
func (w *orderWorld) query(name string, now time.Time) policy.Query {
	q := policy.Query{Name: policytest.Name(name), InCluster: ofCluster(name)}
	for by, l := range w.led[name] {
		switch {
		case !l.until.After(now):
		case ofCluster(by) && !q.InCluster:
			q.Aliases = append(q.Aliases, policytest.Name(by))
		default:
			q.Via = append(q.Via, policytest.Name(by))
		}
	}
	slices.SortFunc(q.Via, func(a, b fqdn.Name) int {
		first := func(n fqdn.Name) string {
			return map[bool]string{true: "0", false: "1"}[w.led[name][n.String()].lasting] + string(n)
		}
		return strings.Compare(first(a), first(b))
	})
	return q
}

// lead notes which names a question for SRV records leads to.
func (w *orderWorld) lead(v *policy.View, name string, now time.Time) {
	q := w.query(name, now)
	d := policy.Decide(v, q)
	if d.Reply != policy.Resolve {
		return
	}
	if now.Sub(w.asked[name]) >= srvTTL {
		w.asked[name] = now
	}
	if !slices.ContainsFunc(d.Matches, func(m *policy.Match) bool { return !m.Audit && m.Pattern.Matches(q.Name) }) {
		return
	}
	for _, to := range w.hosts[name] {
		if to == name || ofCluster(to) && !q.InCluster {
			continue
		}
		if w.led[to] == nil {
			w.led[to] = map[string]orderLead{}
		}
		w.led[to][name] = orderLead{w.asked[name].Add(srvTTL), slices.ContainsFunc(d.Matches, func(m *policy.Match) bool {
			return !m.Audit && !m.Accepts() && m.Pattern.Matches(q.Name)
		})}
	}
}

// ask is what becomes of a question.
func (w *orderWorld) ask(v *policy.View, l *cacheLab, name string) (out orderTwin) {
	q := w.query(name, l.now())
	at := slices.IndexFunc(w.chain[name], func(n string) bool { return !ofCluster(n) })
	if before := policy.Decide(v, q); !q.InCluster || at < 0 || before.Reply != policy.Resolve {
		return w.askAs(v, q, before, name, name)
	}
	// The outside name is the question.
	to := w.chain[name][at]
	out2 := w.query(to, l.now())
	for _, n := range append([]string{name}, w.chain[name][:at]...) {
		out2.Aliases = append(out2.Aliases, policytest.Name(n))
	}
	out2.Aliases = append(append(out2.Aliases, q.Via...), q.Aliases...)
	before := policy.Decide(v, out2)
	if before.Reply == policy.Resolve && !before.Allowed() && !v.OrderInForce() {
		return w.askAs(v, out2, before, to, name) // nothing is asked for what opens nothing
	}
	return w.askAs(v, out2, before, to, to)
}

// askAs is ask for a question as the name that is decided, with the answer for another.
func (w *orderWorld) askAs(v *policy.View, q policy.Query, before policy.Decision, name, answer string) (out orderTwin) {
	replies := map[policy.Unmatched]int{policy.NXDomain: dns.RcodeNameError, policy.Refuse: dns.RcodeRefused}
	after := before
	if before.Reply == policy.Resolve && name == answer {
		for _, c := range w.chain[name] {
			q.Aliases = append(q.Aliases, policytest.Name(c))
		}
		after = policy.Decide(v, q)
	}
	guarded := q.Name // the guard's
	if names := w.accepted(after); len(names) > 0 && !slices.Contains(names, guarded) {
		guarded = names[0]
	}
	addrs, free := w.addrs[answer], []string(nil)
	opens := func(n fqdn.Name, a string) bool { return strings.HasPrefix(a, "10.96.") == ofCluster(n.String()) }
	for _, a := range addrs {
		if opens(guarded, a) {
			free = append(free, a)
		}
	}
	say := func(d policy.Decision) audit.Verdict {
		switch {
		case d.Denied != nil:
			return audit.NameDenied
		case d.Allowed() && after.Reply == policy.Resolve && len(addrs) > 0 && len(free) == 0:
			return audit.Blocked
		case d.Allowed():
			return audit.Allowed
		case d.Reply != policy.Resolve:
			return audit.Refused
		}
		return audit.Unmatched
	}
	would := q
	would.Would = true
	out.verdict, out.would, out.rcode = say(after), say(policy.Decide(v, would)), replies[after.Reply]
	enforced := slices.ContainsFunc(slices.Collect(v.Rules.All()), func(r *policy.Rule) bool { return !r.Audit })
	if out.would == out.verdict && enforced {
		out.would = audit.None
	}
	if out.rcode != dns.RcodeSuccess {
		return out
	}
	if out.rcode = replies[0]; len(addrs) == 0 && !slices.Contains(orderNames, answer) {
		out.rcode = dns.RcodeNameError // the upstream's: it has no such name
	}
	out.open = map[string]time.Duration{}
	out.addrs = addrs
	if after.Allowed() {
		out.addrs = free
	}
	enter := func(m *policy.Match, to []string, lasts time.Duration) {
		for _, a := range to {
			out.open[fmt.Sprintf("%s %s %s", m.Rule.ID, m.Ports, a)] = lasts
		}
	}
	for _, m := range after.Matches {
		n := coveredBy(q, m)
		switch {
		case m.Audit:
		case m.Accepts() && n != guarded && slices.ContainsFunc(free, func(a string) bool { return !opens(n, a) }):
		case m.Accepts():
			enter(m, free, 90*time.Second) // at least
		case q.InCluster: // Pass, and Deny, which counts for the others too
			enter(m, free, 24*time.Hour)
		default:
			enter(m, addrs, 24*time.Hour)
		}
	}
	if q.InCluster {
		rest := slices.DeleteFunc(slices.Clone(addrs), func(a string) bool { return opens(q.Name, a) })
		for _, m := range deniedOutside(v, q) {
			enter(m, rest, 24*time.Hour)
			out.outside += len(rest)
		}
	}
	return out
}

// deniedOutside are the matches of the rules that deny a name of the cluster addresses outside,
// for which no rule accepts or passes it, up to the first for all ports.
func deniedOutside(v *policy.View, q policy.Query) (out []*policy.Match) {
	admin, baseline, namespace, _ := v.OrderedRules()
	if namespace {
		baseline = nil
	}
	for _, r := range slices.Concat(admin, baseline) {
		var own []*policy.Match
		for _, m := range r.Matches {
			if r.Action == policy.Deny && slices.ContainsFunc(slices.Concat([]fqdn.Name{q.Name}, q.Via, q.Aliases), m.Pattern.Matches) {
				own = append(own, m)
			}
		}
		if all := len(own) > 0 && r.Ports == policy.AnyPort; all && r.DNSDenied != policy.Resolve {
			return own // of a name that is denied, the others do not matter
		} else if out = append(out, own...); all {
			return out
		}
	}
	return out
}

// accepted are the names that the matches of a decision accept, in the order of rules.
func (w *orderWorld) accepted(d policy.Decision) (names []fqdn.Name) {
	for _, m := range d.Matches {
		if !m.Audit && m.Accepts() {
			names = append(names, coveredBy(d.Query, m))
		}
	}
	return names
}

// coveredBy is the name that a match covers: the question's, else the first that led to it.
func coveredBy(q policy.Query, m *policy.Match) fqdn.Name {
	for _, n := range append([]fqdn.Name{q.Name}, q.Via...) {
		if m.Pattern.Matches(n) {
			return n
		}
	}
	return ""
}

// TestProxyLikeItsTwin: on random policies in tiers, with kept answers, packets that the cache
// replies to, and a kernel that forgets, each reply has the response code, the addresses and
// the verdict of the design, and when it leaves every entry lives for as long as it has to,
// and no other is new.
func TestProxyLikeItsTwin(t *testing.T) {
	random := rand.New(rand.NewPCG(16, 6))
	pod := labPods[2].PodRef
	seen := map[string]int{}
	for n := range 500 {
		w := newOrderWorld(random)
		snap := w.snapshot(t)
		v := snap.ViewOf(pod)
		l := newCacheLab(t, w.table)
		l.s.Publish(snap)
		for range 25 {
			name := oneOf(w, orderNames...)
			switch w.IntN(6) {
			case 0:
				l.pass(time.Duration(w.IntN(700)) * time.Second)
			case 1:
				bit := byte(w.IntN(2))
				l.kernel.forget(func(o opening) bool { b := o.addr.As16(); return b[15]&1 == bit })
			case 2, 3:
				for range 3 {
					by := oneOf(w, orderNames...)
					l.any(strictPod, newQuery(by, dns.TypeSRV))
					w.lead(v, by, l.now())
				}
			}
			known := l.kernel.known()
			question := newQuery(name, dns.TypeA)
			var r *dns.Msg
			hit := false
			if w.IntN(4) == 0 {
				r, _ = l.decided(question)
			} else {
				r, hit = l.any(strictPod, question)
			}
			want := w.ask(v, l, name)
			var addrs []string
			for _, rr := range r.Answer {
				if a, ok := rr.(*dns.A); ok {
					addrs = append(addrs, a.A.String())
				}
			}
			at := fmt.Sprintf("world %d, %s, hit %v", n, name, hit)
			if r.Rcode != want.rcode || !slices.Equal(addrs, want.addrs) {
				t.Fatalf("%s: %s %v, want %+v", at, dns.RcodeToString[r.Rcode], addrs, want)
			}
			if rec := l.lines.all[0]; !hit && (rec.Verdict != want.verdict || rec.Would != want.would) {
				t.Fatalf("%s: %v would %v, want %v would %v", at, rec.Verdict, rec.Would, want.verdict, want.would)
			}
			now := l.now()
			has := map[string]time.Time{}
			for o, until := range l.kernel.known() {
				key := fmt.Sprintf("%s %s %s", o.rule, o.ports, o.addr)
				if until.After(has[key]) {
					has[key] = until
				}
				if _, wanted := want.open[key]; !wanted && until.After(known[o]) {
					t.Fatalf("%s: new entry %+v", at, o)
				}
				covers(t, v, o)
			}
			for key, lasts := range want.open {
				if has[key].Before(now.Add(lasts)) && !strings.HasPrefix(key, " ") && lasts == 24*time.Hour || !has[key].After(now) {
					t.Fatalf("%s: %q until %v, want %v more", at, key, has[key].Sub(now), lasts)
				}
			}
			seen[fmt.Sprintf("%v %v", want.verdict, hit)]++
			seen[fmt.Sprintf("would %v", want.would)]++
			seen[fmt.Sprintf("denied outside %t", want.outside > 0)]++
			if ofCluster(name) && slices.ContainsFunc(w.chain[name], func(n string) bool { return !ofCluster(n) }) {
				seen[fmt.Sprintf("left %v", want.verdict)]++
			}
			seen[fmt.Sprintf("led by %d", len(w.query(name, l.now()).Via))]++
		}
	}
	for _, what := range []string{"allowed true", "allowed false", "denied true", "denied false", "unmatched true", "unmatched false", "refused false",
		"blocked true", "blocked false", "would allowed", "would denied", "would refused", "would unmatched", "led by 1", "led by 2", "led by 3", "denied outside true", "left allowed", "left denied", "left refused", "left unmatched"} {
		if seen[what] < 10 {
			t.Errorf("%q was seen %d times: %v", what, seen[what], seen)
		}
	}
}

// known is a copy of what the kernel has.
func (l *kernelFake) known() map[opening]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.open)
}

// covers tells whether the rule or the port set of an entry covers its name by itself.
func covers(t *testing.T, v *policy.View, o opening) {
	t.Helper()
	for r := range v.Rules.All() {
		if r.Audit || r.ID != o.rule || r.Ports != o.ports {
			continue
		}
		if slices.ContainsFunc(r.Matches, func(m *policy.Match) bool { return m.Pattern.Matches(o.name) }) {
			return
		}
	}
	t.Fatalf("no rule %q covers %s", o.rule, o.name)
}
