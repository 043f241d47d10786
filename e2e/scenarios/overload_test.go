package scenarios

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	// overloadSeconds is how long each overload lasts.
	overloadSeconds = 2
	// calmAnswer is how long an answer may take when the endpoint is as it was.
	calmAnswer = 100 * time.Millisecond
	// overloadMemory is the most memory that an overload may leave behind, in bytes.
	overloadMemory = 64 << 20
	// overloadNames are asked again and again; each tenth is withheld.
	overloadNames = 4000
	// secondTry is after how long a client asks again (resolv.conf(5), timeout).
	secondTry = 5 * time.Second
	// overloadAddress is the upstream of those names only.
	overloadAddress = "192.0.2.182"
)

// overload is more than the endpoint takes.
type overload struct {
	name     string
	dnsperf  string // how it is sent
	limits   string // of the Corefile, where they are not the defaults
	upstream lab.Behaviour
	least    int  // how many answers there are at least, on a machine a tenth as fast as usual
	mute     bool // shed queries need no reply: the connection is closed
	shed     func(s lab.Status) uint64
}

// overloads are each bounded by something else.
var overloads = []overload{
	{name: "faster than a pod may ask", dnsperf: "-c 8 -q 20000", upstream: lab.Honest(honest), least: 80,
		shed: func(s lab.Status) uint64 { return s.Proxy.RateSilenced }},
	{name: "more at once than a pod may", dnsperf: "-c 8 -q 2000", upstream: late(100 * time.Millisecond), least: 20,
		limits: "rate_per_pod 100000\n        burst_per_pod 10000\n        queries_per_pod 64",
		shed:   func(s lab.Status) uint64 { return s.Proxy.ShedPod }},
	{name: "an upstream that says nothing", dnsperf: "-c 8 -q 20000", limits: "queries_per_pod 128",
		shed: func(s lab.Status) uint64 { return s.Proxy.ShedPod }},
	{name: "over TCP", dnsperf: "-m tcp -c 32 -q 5000", upstream: lab.Honest(honest), least: 30,
		shed: func(s lab.Status) uint64 { return s.Proxy.RateLimited }},
	{name: "more connections than a pod may have", dnsperf: "-m tcp -c 200 -q 1000", upstream: lab.Honest(honest), least: 10, mute: true,
		shed: func(s lab.Status) uint64 { return s.Proxy.ShedConnections }},
}

// TestOverload has dnsperf ask from a pod for more than the endpoint takes.
func TestOverload(t *testing.T) {
	needed(t, "dnsperf")
	for _, o := range overloads {
		t.Run(o.name, func(t *testing.T) { o.run(t) })
	}
}

func (o overload) run(t *testing.T) {
	s := newStage(t, lab.Routed)
	text, health := corefile, filepath.Join(t.TempDir(), "health.sock")
	if o.limits != "" {
		text = withLimits(o.limits)
	}
	text += "load.test {\n    forward . " + overloadAddress + "\n}\ncalm.test {\n    forward . " + goodAddress + "\n}\n"
	var err error
	if s.agent, err = s.NewAgent(agentBinary, t.TempDir(), text, "--health-socket", health); err != nil {
		t.Fatal(err)
	}
	busy := s.upstream(overloadAddress, o.upstream)
	s.upstream(goodAddress, lab.Honest(honest))
	s.start(map[string]string{
		"a.yaml":      s.Pod("a").Manifest("shop", "a", nil),
		"b.yaml":      s.Pod("b").Manifest("shop", "b", nil),
		"policy.yaml": policy("upstreams", upstreamsPolicy+"\ndns: {unmatched: NXDomain}"),
	})
	s.recovered("n1", "calm")
	before := s.resident()
	printed := begin(func() error { return s.dnsperf(o) })
	if err := s.watch(printed, health); err != nil {
		t.Error(err)
	}
	busy.Behave(lab.Honest(honest))
	s.recovered("n2", "load", "calm")
	st, after := s.status(), s.resident()
	if o.shed(st) == 0 || st.Proxy.Panics != 0 {
		t.Errorf("the proxy counts %+v: it shed nothing that way, or failed", st.Proxy)
	}
	t.Logf("%d MiB of memory before, %d after; %d queries", before>>20, after>>20, st.Proxy.Queries)
	if after > before+overloadMemory {
		t.Errorf("memory grew by %d MiB", (after-before)>>20)
	}
	for _, q := range s.outside.Asked() {
		if strings.Contains(q, ".test. ") || strings.Contains(q, ".example. ") {
			t.Fatalf("%s went to the resolver itself: interception had ended", q)
		}
	}
}

// dnsperf sends the overload from pod a, and tells whether it got the possible replies:
// answers, and SERVFAIL for shed queries.
func (s *stage) dnsperf(o overload) error {
	data, err := s.questions(overloadNames, func(i int) string {
		if i%10 == 9 {
			return "withheld.example"
		}
		return fmt.Sprintf("n%d-%d.load.test", 100+i/200, i%200)
	})
	if err != nil {
		return err
	}
	args := fmt.Sprintf("-s %s -d %s -l %d -t 1 %s", lab.Resolver4, data, overloadSeconds, o.dnsperf)
	out, err := s.Pod("a").Run("dnsperf", strings.Fields(args)...)
	if err != nil {
		return err
	}
	answered, shed := counted(out, "NOERROR"), counted(out, "SERVFAIL")
	s.t.Logf("dnsperf: %d answered, %d SERVFAIL, %d NXDOMAIN, of %s", answered, shed, counted(out, "NXDOMAIN"), perfSent.FindString(out))
	if answered < o.least || shed == 0 && !o.mute {
		return fmt.Errorf("want at least %d answers, and SERVFAIL for some of the rest:\n%s", o.least, out)
	}
	return nil
}

// dnsperf's output: "Queries sent: 1000" and "Response codes: NOERROR 3 (50.00%), …".
var (
	perfSent  = regexp.MustCompile(`Queries sent: +\d+`)
	perfCodes = regexp.MustCompile(`([A-Z]+) (\d+) \(`)
)

func counted(out, rcode string) int {
	for _, m := range perfCodes.FindAllStringSubmatch(out, -1) {
		if n, err := strconv.Atoi(m[2]); m[1] == rcode && err == nil {
			return n
		}
	}
	return 0
}

// watch asks from pod b until the overload ends, and looks at the agent's health
// meanwhile: each of the neighbour's questions is answered, with a second try as a
// client has it.
func (s *stage) watch(end <-chan error, health string) error {
	slowest, lost := time.Duration(0), 0
	defer func() { s.t.Logf("the neighbour's slowest answer took %v; %d questions asked twice", slowest, lost) }()
	for i := 0; ; i++ {
		select {
		case err := <-end:
			if lost*10 > i {
				s.t.Errorf("%d of the neighbour's %d questions are lost", lost, i)
			}
			return err
		case <-time.After(20 * time.Millisecond):
		}
		name := fmt.Sprintf("n3-%d.calm.test", i%250)
		r, took, err := s.asksOnce("b", name, secondTry)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			lost++
			r, took, err = s.patient("b", name)
		}
		slowest = max(slowest, took)
		if err != nil || r.Rcode != dns.RcodeSuccess || len(addresses(r)) != 1 {
			s.t.Errorf("the neighbour's question %d: after %v %v, error %v", i, took, r, err)
		}
		if st, err := s.agent.Status(); err != nil || !st.Enforcer.Intercepting {
			s.t.Errorf("intercepting %v, error %v", st.Enforcer.Intercepting, err)
		}
		if i%10 != 0 {
			continue // a process each time would be an overload of its own
		}
		if out, err := s.agent.Command("health", "--socket", health, "--ready", "--live").CombinedOutput(); err != nil {
			s.t.Errorf("the agent is not well: %v: %s", err, out)
		}
	}
}

// recovered asserts that either pod is soon answered at once, for names that
// begin with a word, in each of the zones.
func (s *stage) recovered(word string, zones ...string) {
	s.t.Helper()
	for _, pod := range []string{"a", "b"} {
		for _, zone := range zones {
			end := time.Now().Add(lab.Limit)
			for i := 0; ; i++ {
				r, took, err := s.patient(pod, fmt.Sprintf("%s-%d.%s.test", word, i, zone))
				if err == nil && took < calmAnswer && len(addresses(r)) == 1 {
					break
				}
				if time.Now().After(end) {
					s.t.Fatalf("pod %s, %v after: the last answer took %v: %v, error %v", pod, lab.Limit, took, r, err)
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
}

func (s *stage) resident() int64 {
	s.t.Helper()
	n, err := s.agent.Resident()
	fatal.If(s.t, err)
	return n
}
