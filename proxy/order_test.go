package proxy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// clusterPolicy is a cluster policy by its name and its spec, which selects every pod.
func clusterPolicy(t testing.TB, name, spec string) *v1alpha1.ClusterFQDNNetworkPolicy {
	t.Helper()
	return policytest.ClusterPolicy(t, name, "{subject: {namespaces: {}}, "+spec+"}")
}

// inOrder is the snapshot of the lab's pod strict, with cluster policies and further ones.
func inOrder(t testing.TB, policies []*v1alpha1.FQDNNetworkPolicy, cluster ...*v1alpha1.ClusterFQDNNetworkPolicy) *policy.Snapshot {
	t.Helper()
	snap := compile.New().Compile(compile.Input{
		Policies: policies, ClusterPolicies: cluster,
		Namespaces: map[string]map[string]string{"shop": {}}, Pods: labPods[2:3],
	})
	if len(snap.Problems) > 0 {
		t.Fatalf("problems: %v", snap.Problems)
	}
	return snap
}

// strictPod is the address of the pod that the tests of ordered rules ask for.
const strictPod = "10.1.0.4"

// entries are what the kernel has, a line for each rule, port set and address.
func (l *kernelFake) entries() (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o, until := range l.open {
		letter := "-" // of the Namespace tier
		if o.rule != "" {
			letter = string(o.rule[:1])
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s +%v", letter, o.name, o.addr, o.ports, until.Sub(noon)))
	}
	slices.Sort(lines)
	return lines
}

// reason returns the extended error of a reply, "" for none.
func reason(r *dns.Msg) string {
	if opt := r.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				return fmt.Sprintf("%d %s", e.InfoCode, e.ExtraText)
			}
		}
	}
	return ""
}

func withOPT(m *dns.Msg) *dns.Msg { return m.SetEdns0(1232, false) }

// orderCase is one rule of a cluster policy, and how the question comes.
type orderCase struct {
	tier, action, ports, denied string
	covered                     string // www.test is the question, edge.test an alias, srv.test the name that led to it
	when                        string
}

func orderCases() (all []orderCase) {
	for _, tier := range []string{"Admin", "Baseline"} {
		for _, action := range []string{"Accept", "Deny", "Pass"} {
			for _, ports := range []string{"any", "tcp/443"} {
				for _, denied := range []string{"NXDomain", "Refuse", "Resolve"} {
					for _, covered := range []string{"www.test", "edge.test", "srv.test"} {
						for _, when := range []string{"fresh", "cached", "repeated", "joined"} {
							all = append(all, orderCase{tier, action, ports, denied, covered, when})
						}
					}
				}
			}
		}
	}
	return all
}

// orderWant is what becomes of the question.
type orderWant struct {
	verdict audit.Verdict
	rcode   int
	answer  []string
	open    []string // the addresses of entries
	letter  string   // of the rule's ID
	end     time.Duration
}

var orderTable = map[string][]string{"www.test A": {"www.test. 600 IN CNAME edge.test.", "edge.test. 600 IN A 192.0.2.1", "edge.test. 600 IN A 10.96.0.1"}}

// want is by the words of the documents.
func (c orderCase) want() orderWant {
	w := orderWant{
		verdict: audit.Unmatched, answer: []string{"www.test. 600 CNAME edge.test.", "edge.test. 600 A 192.0.2.1", "edge.test. 600 A 10.96.0.1"},
		open: []string{"192.0.2.1", "10.96.0.1"}, letter: strings.ToLower(c.action[:1]), end: 24*time.Hour + 10*time.Minute,
	}
	switch {
	case c.covered == "edge.test" && c.action != "Deny": // a rule that accepts or passes looks at no alias
		w.open = nil
	case c.action == "Accept":
		w.verdict, w.answer, w.open, w.end = audit.Allowed, w.answer[:2], w.open[:1], 11*time.Minute
	case c.action == "Deny" && c.ports == "any" && c.denied == "Resolve":
		w.verdict = audit.NameDenied
	case c.action == "Deny" && c.ports == "any":
		w.verdict, w.answer, w.open = audit.NameDenied, nil, nil
		w.rcode = map[string]int{"NXDomain": dns.RcodeNameError, "Refuse": dns.RcodeRefused}[c.denied]
	}
	return w
}

// TestRulesInOrder: one rule of a cluster policy alone. The kernel has the entries of the rule
// before the answer leaves, and a denied answer leaves nothing.
func TestRulesInOrder(t *testing.T) {
	for _, c := range orderCases() {
		t.Run(strings.Join([]string{c.tier, c.action, c.ports, c.denied, c.covered, c.when}, " "), c.run)
	}
}

func (c orderCase) run(t *testing.T) {
	ports := map[string]string{"tcp/443": "ports: [{protocol: TCP, port: 443}], "}[c.ports]
	rule := fmt.Sprintf("tier: %s, priority: 1, egress: [{name: ours, action: %s, %smatches: [{name: %s}]}], dns: {denied: %s}", c.tier, c.action, ports, c.covered, c.denied)
	l := newCacheLab(t, orderTable)
	l.s.Publish(inOrder(t, nil, clusterPolicy(t, "only", rule)))
	l.s.followed.Add(labPods[2].PodRef, policytest.Name("www.test"), leadBy("srv.test", time.Hour), 0)
	w := c.want()
	r, rec := l.when(c.when)
	if r.Rcode != w.rcode || rec.Verdict != w.verdict || rec.Rcode != w.rcode || rec.Would != audit.None {
		t.Errorf("%s, logged %v would %v %d", dns.RcodeToString[r.Rcode], rec.Verdict, rec.Would, rec.Rcode)
	}
	equal(t, "the answer", data(r.Answer), w.answer)
	why := ""
	if w.answer == nil {
		why = "15 denied by a cluster policy (" + c.tier + ")"
	}
	diff.Equal(t, why, reason(r), "reason")
	if by := rec.Rule; (by != nil) != (w.verdict == audit.NameDenied) || by != nil && (by.Policy != "only" || by.Name != "ours" || by.Tier.String() != c.tier) {
		t.Errorf("by %+v", by)
	}
	var entries []string
	for _, a := range w.open {
		entries = append(entries, fmt.Sprintf("%s %s %s %s +%v", w.letter, c.covered, a, c.ports, w.end))
	}
	slices.Sort(entries)
	equal(t, "the entries", l.kernel.entries(), entries)
	for _, a := range rec.Answers {
		diff.Equal(t, w.verdict == audit.Allowed && a.Addr.String() == "192.0.2.1", len(a.Openings) > 0, a.Addr, "logged as granted")
	}
	if asked := l.up.wasAsked("www.test A"); c.when == "fresh" && asked == (w.answer == nil && c.covered != "edge.test") {
		t.Errorf("the upstream was asked: %v", asked)
	}
}

// when asks for www.test as the pod strict, and returns the reply and the record.
func (l *cacheLab) when(when string) (*dns.Msg, audit.Record) {
	l.t.Helper()
	question := withOPT(newQuery("www.test", dns.TypeA))
	switch when {
	case "cached": // by an answer to a client that no policy selects
		l.any("192.0.2.250", withOPT(newQuery("www.test", dns.TypeA)))
	case "repeated":
		_, rec := l.decided(question)
		l.any(strictPod, question)
		r, hit := l.any(strictPod, question)
		if hit != l.up.wasAsked("www.test A") {
			l.t.Errorf("the packet cache replied: %v", hit) // of a question that is denied itself no answer is kept
		}
		return r, rec
	case "joined":
		return l.joined(question)
	}
	return l.decided(question)
}

// decide is the reply of decided.
func (l *cacheLab) decide(question *dns.Msg) *dns.Msg {
	l.t.Helper()
	r, _ := l.decided(question)
	return r
}

// decided asks without the packet cache.
func (l *cacheLab) decided(question *dns.Msg) (*dns.Msg, audit.Record) {
	l.t.Helper()
	r := parsed(l.t, l.decidedAgain(strictPod, packed(l.t, question), false))
	return r, l.lines.all[0]
}

// joined asks while the call of another client for the same is in flight.
func (l *cacheLab) joined(question *dns.Msg) (r *dns.Msg, rec audit.Record) {
	l.t.Helper()
	hold := make(chan struct{})
	up := startScript(l.t, func(q *dns.Msg, _ bool) [][]byte {
		<-hold
		return [][]byte{says(q, nil, orderTable["www.test A"]...)}
	})
	l.live(zoneOf(up))
	var wg sync.WaitGroup
	wg.Go(func() { l.decidedAgain("192.0.2.250", packed(l.t, question), false) })
	fatal.Await(l.t, "the first query", func() bool { return up.UDP.Load() == 1 })
	wg.Go(func() { r, rec = l.decided(question) })
	fatal.Await(l.t, "the second query", func() bool { s := l.s.Stats(); return s.Coalesced == 1 || s.Denied == 1 })
	close(hold)
	wg.Wait()
	return r, rec
}
