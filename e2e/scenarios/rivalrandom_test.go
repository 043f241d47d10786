package scenarios

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// rivalRounds is how often a random rival changes something, in each of six labs.
const rivalRounds = 50

// maxUntold is how many times in a row, 100 ms apart, the status may be silent about a
// deviation that lasts.
const maxUntold = 30

// randomRival is a node whose rules a rival changes at random moments of the agent's life.
type randomRival struct {
	*stage
	r     *rand.Rand
	rules rivalRules
	want  []string // the wanted state, see state
}

// TestRandomRival has another program change our objects at random moments: while
// policies change, names are granted, the agent is killed and upgraded. No denied
// connection passes meanwhile, unless both nets were removed at once; afterwards rules,
// sets and DNS are as wanted; and lasting deviations are in the status.
func TestRandomRival(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, rules := range []rivalRules{iptablesRules("legacy"), iptablesRules("nft"), nftablesRules} {
		for j, network := range networks {
			t.Run(fmt.Sprintf("%s %v", rules.name, network), func(t *testing.T) {
				t.Parallel()
				w := newRandomRival(t, rules, network, rand.New(rand.NewPCG(seed, uint64(len(networks)*i+j))))
				var took []time.Duration
				for n := range rivalRounds {
					took = append(took, w.round(n))
					if t.Failed() {
						return
					}
				}
				w.soonBack(took)
			})
		}
	}
}

func newRandomRival(t *testing.T, rules rivalRules, network lab.Network, r *rand.Rand) *randomRival {
	w := &randomRival{stage: newStage(t, network), r: r, rules: rules}
	w.zone.add("www.example.org. 60 IN A 198.51.100.1\nwww.example.org. 60 IN AAAA 2001:db8:1::1")
	w.agentWith(corefile, rules.flags...)
	fatal.If(t, w.agent.SetDataplane(rules.dataplane))
	w.start(map[string]string{
		"a.yaml": w.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
		"b.yaml": w.Pod("b").Manifest("shop", "b", map[string]string{"app": "other"}),
		"p.yaml": policy("www", allowWWW),
	})
	w.grant()
	w.want = w.state()
	return w
}

// grant has the pod query an allowed name. A query that loses its answer by a rival is
// sent again.
func (w *randomRival) grant() {
	w.t.Helper()
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		var err error
		for until := time.Now().Add(lab.Limit); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
			if err = w.asked(qtype); err == nil {
				break
			}
		}
		if err != nil {
			w.t.Errorf("pod a asks for www.example.org: %v", err)
		}
	}
}

var errNoAddress = errors.New("the answer has no address")

// asked asks once, and does not wait long for a query that a rival has lost.
func (w *randomRival) asked(qtype uint16) error {
	m, err := w.Pod("a").Ask("udp", resolver, "www.example.org", qtype, lab.Patience)
	if err == nil && len(lab.Addresses(m)) != 1 {
		err = fmt.Errorf("%w: %s", errNoAddress, dns.RcodeToString[m.Rcode])
	}
	return err
}

// events are the agent's events while the rival acts, with their frequency.
var events = []struct {
	name   string
	weight int
	do     func(w *randomRival) error
}{
	{"nothing happens", 35, func(*randomRival) error { time.Sleep(300 * time.Millisecond); return nil }},
	{"names are granted", 25, func(w *randomRival) error { w.grant(); w.grant(); return nil }},
	{"policies change", 25, func(w *randomRival) error {
		for _, app := range []string{"client", "other"} {
			if err := w.agent.Apply(map[string]string{"b.yaml": w.Pod("b").Manifest("shop", "b", map[string]string{"app": app})}); err != nil {
				return err
			}
		}
		return nil
	}},
	{"the agent is killed and starts", 8, func(w *randomRival) error {
		if err := w.agent.Stop(9); err != nil {
			return err
		}
		return w.agent.Start()
	}},
	{"the agent is upgraded", 7, func(w *randomRival) error { return w.agent.Upgrade() }},
}

func pickEvent(r *rand.Rand) int {
	n := 0
	for _, e := range events {
		n += e.weight
	}
	n = r.IntN(n)
	for i, e := range events {
		if n -= e.weight; n < 0 {
			return i
		}
	}
	return 0
}

// round lets a rival come while something happens, and returns how long after both all
// was as wanted.
func (w *randomRival) round(n int) time.Duration {
	w.t.Helper()
	event := events[pickEvent(w.r)]
	shell := w.rules.command(w)
	both := w.rules.nftAlone && strings.Contains(shell, "ruleset")
	delay := time.Duration(w.r.IntN(400)) * time.Millisecond
	what := fmt.Sprintf("round %d, %s, after %v: %s", n, event.name, delay, shell)
	v := w.watchfully("a", nil, []string{"198.51.100.2:80"})
	over := make(chan error, 1)
	go func() { over <- event.do(w) }()
	time.Sleep(delay)
	// The object may go before the rival's command asks for it.
	if out, err := w.Node.Run("sh", "-c", shell); err != nil && !missing.MatchString(out) {
		w.t.Errorf("%s: %v\n%s", what, err, out)
	}
	err := <-over
	back := w.backAfter(what, time.Now())
	v.end()
	if err != nil {
		w.t.Errorf("%s: %v", what, err)
	}
	if passed := v.passed.Load(); passed > 0 && !both {
		w.t.Errorf("%s: %d of %d denied connections passed", what, passed, v.denied.Load())
	}
	w.t.Logf("%s: as wanted after %v", what, back.Round(time.Millisecond))
	return back
}

// backAfter waits until everything is as wanted, and returns when it was.
func (w *randomRival) backAfter(what string, ended time.Time) time.Duration {
	w.t.Helper()
	w.grant()
	untold := 0
	var diff string
	for time.Since(ended) < lab.Limit {
		if diff = cmp.Diff(w.want, w.state()); diff == "" {
			back := time.Since(ended)
			w.eventually("a", "198.51.100.1:80", lab.Answered)
			w.eventually("a", "198.51.100.2:80", lab.Refused)
			return back
		}
		if st, err := w.agent.Status(); err == nil && st.InSync && len(st.Enforcer.Deviations) == 0 {
			if untold++; untold == maxUntold {
				w.t.Errorf("%s: the status is silent, and not all is as wanted (-want +got):\n%s", what, diff)
			}
		} else {
			untold = 0
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Errorf("%s: not all is as wanted after %v (-want +got):\n%s", what, lab.Limit, diff)
	return time.Since(ended)
}
