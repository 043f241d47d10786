package suggest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/short"
)

// dial is one thing that a pod was denied: a name on a port.
type dial struct {
	name string
	port port
}

// world is a random log and its content.
type world struct {
	log   *Log
	names []string
	ports []port
	seen  map[string]map[dial]bool // by workload
}

func newWorld(t *testing.T, r *rand.Rand, names, ports, flows int) *world {
	w := &world{log: NewLog(), seen: map[string]map[dial]bool{}}
	for i := range names {
		w.names = append(w.names, fmt.Sprintf("n%d.d%d.example.org", i, i%5))
	}
	for range ports {
		w.ports = append(w.ports, port{[]policy.Protocol{policy.TCP, policy.UDP, policy.SCTP}[r.IntN(3)], uint16(1 + r.IntN(2*ports))})
	}
	for range flows {
		app := fmt.Sprintf("app=w%d", r.IntN(3))
		p := w.ports[r.IntN(len(w.ports))]
		line := audit.Line{
			V: 1, Kind: audit.KindFlow, Time: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), Verdict: "denied",
			Pod:      audit.LinePod{Namespace: "shop", Name: fmt.Sprintf("p%d", r.IntN(9)), Workload: app},
			Protocol: p.protocol.String(), Destination: &audit.LineDestination{Address: "192.0.2.1", Port: p.number}, Reason: audit.ReasonUnmatched,
		}
		for range 1 + r.IntN(2) {
			name := w.names[r.IntN(len(w.names))]
			line.Names = append(line.Names, audit.LineName{Name: strings.ToUpper(name[:1]) + name[1:]})
			if w.seen[app] == nil {
				w.seen[app] = map[dial]bool{}
			}
			w.seen[app][dial{name, p}] = true
		}
		fatal.If(t, w.log.Add(line))
	}
	return w
}

// readBack returns the policies that the printed suggestion holds.
func readBack(t *testing.T, s Suggestion) []v1alpha1.FQDNNetworkPolicy {
	t.Helper()
	var b strings.Builder
	fatal.If(t, s.Write(&b))
	var policies []v1alpha1.FQDNNetworkPolicy
	for doc := range strings.SplitSeq(b.String(), "---\n") {
		var p v1alpha1.FQDNNetworkPolicy
		fatal.If(t, yaml.UnmarshalStrict([]byte(doc), &p), "in", doc)
		policies = append(policies, p)
	}
	return policies
}

// allows tells what policies let a pod of a workload do.
func allows(policies []v1alpha1.FQDNNetworkPolicy, app string) func(dial) bool {
	pod := policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: "p"}, Labels: map[string]string{"app": strings.TrimPrefix(app, "app=")}}
	view := compile.New().Compile(compile.Input{Policies: policytest.Pointers(policies), Pods: []policy.Pod{pod}}).ViewOf(pod.PodRef)
	return func(d dial) bool {
		if view == nil {
			return false
		}
		n, err := fqdn.ParseName(d.name)
		if err != nil {
			return false
		}
		return slices.ContainsFunc(view.Decide(n).Matches, func(m *policy.Match) bool { return m.Ports.Contains(d.port.protocol, d.port.number) })
	}
}

// TestSuggestionAllowsExactlyTheLog: each workload may open its denied connections, and
// no other names and ports.
func TestSuggestionAllowsExactlyTheLog(t *testing.T) {
	for seed := range uint64(short.Rounds(15, 60, 600)) {
		r := rand.New(rand.NewPCG(seed, 6))
		w := newWorld(t, r, 1+r.IntN(150), 1+r.IntN(40), 1+r.IntN(600))
		s := w.log.Suggest(Options{})
		if !s.Whole() {
			t.Fatalf("seed %d: left out %q", seed, s.Warnings())
		}
		policies := readBack(t, s)
		names := map[string]bool{}
		for i := range policies {
			if problems := fqdnnp.Validate(&policies[i]); problems != nil {
				t.Fatalf("seed %d: %v", seed, problems)
			}
			if names[policies[i].Name] {
				t.Errorf("seed %d: two policies are called %s", seed, policies[i].Name)
			}
			names[policies[i].Name] = true
		}
		for app, seen := range w.seen {
			allowed := allows(policies, app)
			for _, name := range w.names {
				for _, p := range w.ports {
					if d := (dial{name, p}); allowed(d) != seen[d] {
						t.Fatalf("seed %d: %s %v: allowed %v, seen %v", seed, app, d, allowed(d), seen[d])
					}
				}
			}
		}
	}
}

// TestNothingCanBeTakenOut: without any match, or any port, something that was seen is
// not allowed.
func TestNothingCanBeTakenOut(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWorld(t, r, 1+r.IntN(8), 1+r.IntN(6), 1+r.IntN(30))
		policies := readBack(t, w.log.Suggest(Options{}))
		loses := func() bool {
			for app, seen := range w.seen {
				allowed := allows(policies, app)
				for d := range seen {
					if !allowed(d) {
						return true
					}
				}
			}
			return false
		}
		if loses() {
			t.Fatalf("seed %d: something is lost as it is", seed)
		}
		for i := range policies {
			for j := range policies[i].Spec.Egress {
				rule := &policies[i].Spec.Egress[j]
				for k := range rule.Matches {
					whole := rule.Matches
					rule.Matches = slices.Delete(slices.Clone(whole), k, k+1)
					if !loses() {
						t.Errorf("seed %d: match %d of rule %d of %s is for nothing", seed, k, j, policies[i].Name)
					}
					rule.Matches = whole
				}
				for k := range rule.Ports {
					whole, all := rule.Ports, rule.Matches
					if rule.Ports = slices.Delete(slices.Clone(whole), k, k+1); len(rule.Ports) == 0 {
						rule.Matches = nil // no ports at all would be every port
					}
					if !loses() {
						t.Errorf("seed %d: port %d of rule %d of %s is for nothing", seed, k, j, policies[i].Name)
					}
					rule.Ports, rule.Matches = whole, all
				}
			}
		}
	}
}

// TestFoldedSuggestionAllowsTheLog, by fewer matches, and nothing outside the parents.
func TestFoldedSuggestionAllowsTheLog(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 8))
		w := newWorld(t, r, 1+r.IntN(40), 1+r.IntN(5), 1+r.IntN(200))
		o := Options{Fold: 2 + r.IntN(3), Deep: r.IntN(2) == 0}
		policies := readBack(t, w.log.Suggest(o))
		for app, seen := range w.seen {
			allowed := allows(policies, app)
			for d := range seen {
				if !allowed(d) {
					t.Fatalf("seed %d: %s %v is lost", seed, app, d)
				}
				for _, outside := range []string{"example.org", "other.test", "a.b.n0.d0.example.org.test"} {
					if allowed(dial{outside, d.port}) {
						t.Fatalf("seed %d: %s is allowed", seed, outside)
					}
				}
			}
		}
	}
}

// TestBoundsOfThePolicy: what one rule or policy cannot hold goes into others.
func TestBoundsOfThePolicy(t *testing.T) {
	many := func(names, ports int) map[string]policy.PortSet {
		var ranges []policy.PortRange
		for i := range uint16(ports) {
			ranges = append(ranges, policy.PortRange{Protocol: policy.TCP, First: 1 + 2*i, Last: 1 + 2*i})
		}
		all := map[string]policy.PortSet{}
		for i := range names {
			all[fmt.Sprintf("n%d.test", i)] = policy.NewPortSet(ranges...)
		}
		return all
	}
	apart := map[string]policy.PortSet{}
	for i := range uint16(fqdnnp.MaxRules + 1) {
		apart[fmt.Sprintf("n%d.test", i)] = policy.NewPortSet(policy.PortRange{Protocol: policy.TCP, First: 1 + i, Last: 1 + i})
	}
	for _, c := range []struct {
		allowed         map[string]policy.PortSet
		rules, policies int
	}{
		{many(fqdnnp.MaxMatches, fqdnnp.MaxPorts), 1, 1},
		{many(fqdnnp.MaxMatches+1, fqdnnp.MaxPorts), 2, 1},
		{many(fqdnnp.MaxMatches, fqdnnp.MaxPorts+1), 2, 1},
		{many(fqdnnp.MaxMatches+1, fqdnnp.MaxPorts+1), 4, 1},
		{apart, fqdnnp.MaxRules + 1, 2},
	} {
		rules := Rules(c.allowed)
		w := &workload{workloadKey: workloadKey{namespace: "shop", selector: "app=cart"}, labels: map[string]string{"app": "cart"}}
		policies := w.policies("cart-egress", nil, rules)
		if len(rules) != c.rules || len(policies) != c.policies {
			t.Errorf("%d rules, want %d; %d policies, want %d", len(rules), c.rules, len(policies), c.policies)
		}
		for i := range policies {
			if problems := fqdnnp.Validate(&policies[i]); problems != nil {
				t.Error(problems)
			}
		}
	}
}

// TestNeedless: which names a pattern makes needless.
func TestNeedless(t *testing.T) {
	for _, c := range []struct {
		pattern  string
		set      policy.PortSet
		name     string
		ports    policy.PortSet
		needless bool
	}{
		{"*.example.org", "tcp/443", "a.example.org", "tcp/443", true},
		{"*.example.org", "any", "a.example.org", "tcp/443,udp/53", true},
		{"*.example.org", "tcp/443", "a.example.org", "tcp/80", false},
		{"*.example.org", "tcp/443", "a.b.example.org", "tcp/443", false},
		{"*.example.org", "tcp/443", "example.org", "tcp/443", false},
		{"**.example.org", "tcp/443", "a.example.org", "tcp/443", true},
		{"**.example.org", "tcp/443", "a.b.c.example.org", "tcp/443", true},
		{"**.example.org", "tcp/443", "example.org", "tcp/443", false},
		{"**.example.org", "tcp/443", "a.badexample.org", "tcp/443", false},
	} {
		allowed := map[string]policy.PortSet{c.pattern: c.set, c.name: c.ports}
		diff.Equal(t, c.needless, needless(allowed, c.name, c.ports), c.name, "on", c.ports, "beside", c.pattern, "on", c.set)
	}
}

// TestOrderOfLinesIsNothing: the same lines in another order are the same text.
func TestOrderOfLinesIsNothing(t *testing.T) {
	lines := []string{
		flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named("a.test", "")),
		flowText(cart, "would-deny", "udp", "192.0.2.10 53", "unmatched", named("b.test", "")+","+named("a.test", "")),
		flowText(plainly, "denied", "tcp", "198.51.100.7 443", "address", ""),
		flowText(plainly, "denied", "tcp", "198.51.100.7 443", "another", named("z.test", `,"pod":"shop/x"`)+","+named("y.test", `,"pod":"shop/w"`)),
		asked(cart, "unmatched", "c.test", withAnswer), asked(cart, "refused", "d.test", ""),
	}
	text := func() string {
		var b strings.Builder
		fatal.If(t, logOf(t, lines...).Suggest(Options{}).Write(&b))
		return b.String()
	}
	first := text()
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		diff.MustEqual(t, first, text())
	}
}

// TestBoundsOfAPod: rules beyond the bounds of a pod are reported.
func TestBoundsOfAPod(t *testing.T) {
	l := NewLog()
	for i := range compile.MaxViewPortSets + 1 {
		line := audit.Line{
			Kind: audit.KindFlow, Verdict: "denied", Pod: audit.LinePod{Namespace: "shop", Name: "p", Workload: "app=w"}, Protocol: "tcp",
			Destination: &audit.LineDestination{Address: "192.0.2.1", Port: uint16(i + 1)}, Names: []audit.LineName{{Name: fmt.Sprintf("n%d.test", i)}},
		}
		fatal.If(t, l.Add(line))
	}
	s := l.Suggest(Options{})
	if s.Whole() || len(s.Parts[0].Left) != 1 || s.Parts[0].Left[0].Kind != LeftBound ||
		!strings.Contains(s.Parts[0].Left[0].String(), "more than 256 different sets of ports") {
		t.Errorf("left %v", s.Warnings())
	}
}
