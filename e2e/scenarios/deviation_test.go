package scenarios

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

// TestDeviationsAreReported: while another program has flushed a table and holds the lock
// that a repair needs, the status names the table and the agent is not ready; denied
// connections stay denied. Afterwards all is well again.
func TestDeviationsAreReported(t *testing.T) {
	t.Parallel()
	s := newStage(t, lab.Routed)
	s.zone.add(`www.example.org. 60 IN A 198.51.100.1`)
	health := t.TempDir() + "/health.sock"
	var err error
	if s.agent, err = s.NewAgent(agentBinary, t.TempDir(), corefile, "--iptables", "legacy", "--health-socket", health); err != nil {
		t.Fatal(err)
	}
	s.startClient(policy("www", allowWWW))
	s.resolve("a", "www.example.org", dns.TypeA)
	ready := func() (string, error) {
		out, err := s.agent.Command("health", "--ready", "--socket", health).CombinedOutput()
		return string(out), err
	}
	if out, err := ready(); err != nil {
		t.Fatalf("not ready before: %s", out)
	}
	v := s.watchfully("a", nil, []string{"198.51.100.2:80"})
	release := s.holdLock()
	if out, err := s.Node.Run("sh", "-c", "XTABLES_LOCKFILE="+t.TempDir()+"/none iptables-legacy -t mangle -F"); err != nil {
		t.Fatal(out, err)
	}
	const table = "IPv4 mangle chains"
	err = s.agent.WaitFor("the deviation", func(st lab.Status) bool {
		for _, d := range st.Enforcer.Deviations {
			if d.Object == table && !st.InSync {
				return true
			}
		}
		return false
	})
	if err != nil {
		t.Error(err)
	}
	says := func(what string, ask func() string, want string) {
		t.Helper()
		said := ""
		for until := time.Now().Add(eventLimit); !strings.Contains(said, want) && time.Now().Before(until); {
			said = ask()
		}
		if !strings.Contains(said, want) {
			t.Errorf("%s does not say %q: %s", what, want, said)
		}
	}
	says("readiness", func() string { out, _ := ready(); return out }, table)
	says("the status", func() string {
		out, _ := s.agent.Command("status", "--socket", s.agent.Socket()).CombinedOutput()
		return strings.Join(strings.Fields(string(out)), " ")
	}, "not as wanted "+table+" since")
	release()
	if err := s.agent.WaitFor("the repair", func(st lab.Status) bool { return st.InSync && len(st.Enforcer.Deviations) == 0 }); err != nil {
		t.Error(err)
	}
	s.eventually("a", "198.51.100.1:80", lab.Answered)
	v.end()
	if passed := v.passed.Load(); passed > 0 {
		t.Errorf("%d of %d denied connections passed", passed, v.denied.Load())
	}
	for until := time.Now().Add(eventLimit); ; time.Sleep(50 * time.Millisecond) {
		out, err := ready()
		if err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("not ready afterwards: %s", out)
		}
	}
}
