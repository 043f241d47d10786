package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// logged are the verdicts of the log's decisions about a name.
func (s *stage) logged(name string) (verdicts []string) {
	s.t.Helper()
	lines, err := s.agent.AuditLines()
	if err != nil {
		return nil // a line is being written
	}
	for _, l := range lines {
		if q, ok := l["question"].(map[string]any); ok && q["name"] == name {
			verdicts = append(verdicts, fmt.Sprint(l["verdict"]))
		}
	}
	return verdicts
}

// corefileApplied is the log line of an agent that applied a changed Corefile.
const corefileApplied = "Corefile applied"

// refilter gives the running agent a Corefile with the options in audit's block, and
// waits until it has read it.
func (s *stage) refilter(options string) {
	s.t.Helper()
	said := strings.Count(s.agent.Log(), corefileApplied)
	text := strings.Replace(corefile, "audit AUDIT", "audit "+filepath.Join(s.agent.Dir, "audit.log")+" {\n        "+options+"\n    }", 1)
	fatal.If(s.t, os.WriteFile(filepath.Join(s.agent.Dir, "Corefile"), []byte(text), 0o644))
	fatal.If(s.t, s.agent.WaitFor("the Corefile", func(lab.Status) bool { return strings.Count(s.agent.Log(), corefileApplied) > said }))
}

// TestAuditFilters: a running agent takes over which lines it writes. The lines say
// whose workload asked.
func TestAuditFilters(t *testing.T) {
	t.Parallel()
	s := newStage(t, lab.Routed)
	s.zone.add(`
		www.example.org. 60 IN A 198.51.100.1
		other.example.org. 60 IN A 198.51.100.2
		last.example.org. 60 IN A 198.51.100.3`)
	s.start(map[string]string{
		"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client", "pod-template-hash": "5f6"}),
		"p.yaml": policy("www", allowWWW),
	})
	last := 0
	// behind waits until all is written that was asked before.
	behind := func(verdicts string) {
		t.Helper()
		s.resolve("a", "last.example.org", dns.TypeA)
		last++
		s.until("the log of "+verdicts, func(int) bool { return len(s.logged("last.example.org")) == last })
	}
	s.resolve("a", "www.example.org", dns.TypeA)
	behind("everything")
	if got := s.logged("www.example.org"); len(got) != 1 || got[0] != "allowed" {
		t.Errorf("logged %v", got)
	}
	lines, err := s.agent.AuditLines()
	if err != nil || len(lines) == 0 || lines[0]["pod"].(map[string]any)["workload"] != "app=client" {
		t.Errorf("the first line is %v, %v", lines, err)
	}

	s.refilter("verdict unmatched denied")
	s.resolve("a", "www.example.org", dns.TypeA)
	behind("what is unmatched")
	if got := s.logged("www.example.org"); len(got) != 1 {
		t.Errorf("with a filter by verdict: %v", got)
	}

	s.refilter("sample 5")
	for range 20 {
		s.resolve("a", "www.example.org", dns.TypeA)
	}
	behind("a sample")
	if got := s.logged("www.example.org"); len(got) != 1+4 {
		t.Errorf("with a sample of one in 5 of 20 more: %v", got)
	}

	s.refilter("namespace bank")
	s.resolve("a", "other.example.org", dns.TypeA)
	s.refilter("sample 1")
	s.resolve("a", "www.example.org", dns.TypeA)
	behind("everything again")
	if other, www := s.logged("other.example.org"), s.logged("www.example.org"); len(other) != 0 || len(www) != 6 {
		t.Errorf("with another namespace alone %v, and then %v", other, www)
	}
}

// complete asks for how long the agent's log of a namespace is complete.
func (s *stage) complete(namespace string) (d time.Duration, known bool) {
	s.t.Helper()
	resp, err := s.agent.Get(console.AuditPath + "?namespace=" + namespace)
	fatal.If(s.t, err)
	fatal.If(s.t, resp.Body.Close())
	return console.Complete(resp)
}

// TestAuditIsComplete: the log is complete for a time that begins when the agent is alone on the
// node, not while it stands by, again when interception ended, and not for a namespace whose lines the Corefile omits.
func TestAuditIsComplete(t *testing.T) {
	t.Parallel()
	s := newStage(t, lab.Routed)
	s.zone.add("other.example.org. 60 IN A 198.51.100.2")
	s.startClient(policy("www", allowWWW+"\ndns: {unmatched: Refuse}"))
	known := func(namespace string, want bool) (d time.Duration) {
		t.Helper()
		s.until(fmt.Sprintf("complete for %q: %v", namespace, want), func(int) (known bool) {
			d, known = s.complete(namespace)
			return known == want
		})
		return d
	}
	known("shop", true)
	known("", true)
	s.refilter("namespace bank")
	known("shop", false)
	known("", false)
	known("bank", true)
	s.refilter("sample 1")
	known("shop", true)

	fatal.If(t, s.agent.Signal(syscall.SIGSTOP))
	s.client("a", lab.Resolver4).becomes("while the agent is stopped", dns.RcodeSuccess) // by the resolver: the agent refuses
	continued := time.Now()
	fatal.If(t, s.agent.Signal(syscall.SIGCONT))
	s.until("complete since interception is on again", func(int) bool {
		d, known := s.complete("shop")
		return known && d < time.Since(continued)
	})

	s.agent.StandBy = 3 * time.Second
	began := time.Now()
	fatal.If(t, s.agent.Upgrade())
	if d := known("shop", true); d >= time.Since(began)-s.agent.StandBy {
		t.Errorf("complete for %v: more than the %v since the upgrade began, less %v of standing by", d, time.Since(began), s.agent.StandBy)
	}
}
