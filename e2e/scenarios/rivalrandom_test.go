package scenarios

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

// rivalRounds is how often a random rival changes something, in each of four labs.
const rivalRounds = 75

// maxUntold is how many times in a row, 100 ms apart, the status may be silent about a
// deviation that lasts.
const maxUntold = 30

// randomRival is a node whose rules a rival changes at random moments of the agent's life.
type randomRival struct {
	*stage
	r       *rand.Rand
	variant string
	want    []string // the wanted state, see state
}

// TestRandomRival has another program change our objects at random moments: while
// policies change, names are granted, the agent is killed and upgraded. No denied
// connection passes meanwhile, unless both nets were removed at once; afterwards rules,
// sets and DNS are as wanted; and lasting deviations are in the status.
func TestRandomRival(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, variant := range []string{"legacy", "nft", "legacy", "nft"} {
		network := []lab.Network{lab.Routed, lab.Routed, lab.Bridged, lab.Bridged}[i]
		t.Run(fmt.Sprintf("%s %v", variant, network), func(t *testing.T) {
			t.Parallel()
			w := newRandomRival(t, variant, network, rand.New(rand.NewPCG(seed, uint64(i))))
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

func newRandomRival(t *testing.T, variant string, network lab.Network, r *rand.Rand) *randomRival {
	w := &randomRival{stage: newStage(t, network), r: r, variant: variant}
	w.zone.add("www.example.org. 60 IN A 198.51.100.1\nwww.example.org. 60 IN AAAA 2001:db8:1::1")
	var err error
	if w.agent, err = w.NewAgent(agentBinary, t.TempDir(), corefile, "--iptables", variant); err != nil {
		t.Fatal(err)
	}
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
	c, err := w.Pod("a").Dial("udp", netip.AddrPortFrom(lab.Resolver4, 53).String(), lab.Patience)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(lab.Patience)); err != nil {
		return err
	}
	q := new(dns.Msg).SetQuestion("www.example.org.", qtype)
	conn := dns.Conn{Conn: c}
	if err := conn.WriteMsg(q); err != nil {
		return err
	}
	m, err := conn.ReadMsg()
	if err == nil && len(addresses(m)) != 1 {
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

// rivals are shell commands by the objects that they remove. Both are those that remove
// both nets at once, if iptables keeps its tables in nftables.
func (w *randomRival) command() (shell string, both bool) {
	pick := func(from ...string) string { return from[w.r.IntN(len(from))] }
	table, program := pick("raw", "mangle", "security"), pick("iptables", "ip6tables")+"-"+w.variant
	chain := pick("judge", "forward", "input", "prerouting", "giveback", "home", "refuse", "pin", "cut", "errors")
	set := pick("set inet namegate selected4", "set inet namegate home4", "set inet namegate known4", "set inet namegate intercepted4",
		"set inet namegate alive", "set inet namegate own6", "map inet namegate intercept4", "map inet namegate giveback4", "map inet namegate backends4",
		"set bridge namegate home4", "set bridge namegate ports")
	return []string{
		"nft flush ruleset",
		"nft delete table inet namegate",
		"nft delete table bridge namegate",
		"nft flush table inet namegate",
		"nft flush chain inet namegate " + chain,
		"nft insert rule inet namegate " + chain + " return",
		"nft flush " + set,
		"nft add element inet namegate selected4 '{ 10.1.0.77 }'",
		program + " -t " + table + " -F",
		"for p in iptables ip6tables; do $p-" + w.variant + " -t " + table + " -F; $p-" + w.variant + " -t " + table + " -X; done; true",
		program + "-save -t " + table + " | grep -v NAMEGATE | " + program + "-restore -T " + table,
		"ipset flush",
		"ipset flush $(ipset list -n | shuf -n 1)",
		"for s in $(ipset list -n | shuf -n 3); do ipset destroy $s; done; true",
		"for t in raw mangle security; do for p in iptables ip6tables; do $p-" + w.variant + " -t $t -F; $p-" + w.variant + " -t $t -X; done; done; ipset destroy; true",
		"set -- $(ipset list -n | grep ^NG4 | shuf); while [ $# -gt 1 ]; do ipset swap $1 $2; shift; done; true",
		"ipset add NG4-selected 10.1.0.77; ipset del NG4-selected " + w.Pod("a").Addr4.String(),
	}[w.r.IntN(17)], w.variant == "nft"
}

// round lets a rival come while something happens, and returns how long after both all
// was as wanted.
func (w *randomRival) round(n int) time.Duration {
	w.t.Helper()
	event := events[pickEvent(w.r)]
	shell, both := w.command()
	both = both && strings.Contains(shell, "ruleset")
	delay := time.Duration(w.r.IntN(400)) * time.Millisecond
	what := fmt.Sprintf("round %d, %s, after %v: %s", n, event.name, delay, shell)
	v := w.watchfully("a", nil, []string{"198.51.100.2:80"})
	over := make(chan error, 1)
	go func() { over <- event.do(w) }()
	time.Sleep(delay)
	if out, err := w.Node.Run("sh", "-c", shell); err != nil && !strings.Contains(out, "No such file") {
		w.t.Errorf("%s: %v\n%s", what, err, out) // a missing object cannot be removed
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

var (
	// servingAddr is an address that an agent serves on: each agent has its own.
	servingAddr = regexp.MustCompile(`169\.254\.20\.(6[4-9]|[789]\d|\d\d\d)\b|fd5c:7a1e:93b4::1:[0-9a-f]+`)
	passing     = regexp.MustCompile(`^(set|map) (alive|probed|bypassing|told|watched)`)
	fading      = regexp.MustCompile(` (packets|bytes|expires) \S+`)
	sized       = regexp.MustCompile(` (hashsize|maxelem|bucketsize|initval) \S+`)
	member      = regexp.MustCompile(`^(add \S+ \S+).*`)
)

// state is our objects in the node's kernel, in the output of the usual programs: nft,
// iptables-save and ipset. Counters, temporary objects and differences between agents are
// left out.
func (w *randomRival) state() []string {
	script := `for f in inet bridge; do nft -s list table $f namegate; done
for p in iptables ip6tables; do for t in raw mangle security; do echo "*$p $t"; $p-` + w.variant + `-save -t $t | grep -e '-[Aj] NAMEGATE' -e ^:NAMEGATE; done; done
ipset save | grep NG`
	out, _ := w.Node.Run("sh", "-c", script) // a table that is not there shows
	var lines, elements []string
	table, where, listing := "", "", false
	for line := range strings.Lines(servingAddr.ReplaceAllString(out, "SERVING")) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*") || strings.HasPrefix(line, "table "):
			table, where = line, ""
		case strings.HasPrefix(line, "set ") || strings.HasPrefix(line, "map "):
			where = line
		case strings.HasPrefix(line, "chain "):
			where = line
		}
		if strings.HasPrefix(line, "create NG") || strings.HasPrefix(line, "add NG") {
			table, where = "", ""
		}
		rest, begins := strings.CutPrefix(line, "elements = {")
		if listing = listing || begins; !listing {
			line = fading.ReplaceAllString(line, "")
			if strings.HasPrefix(line, ":") {
				line, _, _ = strings.Cut(line, " ")
			}
			line = member.ReplaceAllString(line, "$1")
			line = sized.ReplaceAllString(line, "")
			lines = append(lines, strings.TrimSpace(table+" "+where+" "+line))
			continue
		}
		text, ends := strings.CutSuffix(rest, "}")
		elements = append(elements, strings.Split(text, ",")...)
		if !ends {
			continue
		}
		if !passing.MatchString(where) {
			for i, e := range elements {
				elements[i] = strings.TrimSpace(e)
			}
			slices.Sort(elements)
			lines = append(lines, table+" "+where+" "+strings.Join(elements, " "))
		}
		elements, listing = nil, false
	}
	slices.Sort(lines)
	return lines
}
