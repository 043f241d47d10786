package scenarios

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestDeviationsAreReported: while another program has removed rules and keeps the agent from
// a repair, or keeps a bridge from netfilter, the status names the table or the setting and the agent is not ready;
// denied connections stay denied. Afterwards all is well again.
func TestDeviationsAreReported(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind   nodeKind
		object string // in the status
		why    string // in the readiness, too
		loses  func(s *stage) (release func())
	}{
		{nodeKind{lab.Routed, iptables, "legacy"}, "IPv4 mangle chains", "", flushedUnderLock},
		{nodeKind{lab.Routed, nftables, ""}, "nft table inet namegate", "", func(s *stage) func() { return s.ownsTable("namegate") }},
		{nodeKind{lab.Routed, nftables, ""}, "nft table inet namegate-net", "", func(s *stage) func() { return s.ownsTable("namegate-net") }},
		{nodeKind{lab.Bridged, nftables, ""}, "networkPolicy.enforce All", "load br_netfilter and set net.bridge.bridge-nf-call-iptables=1", unfilteredBridge},
	} {
		t.Run(test.object, func(t *testing.T) {
			t.Parallel()
			eachKind(t, func(t *testing.T, kind nodeKind) { deviates(t, kind, test.object, test.why, test.loses) }, test.kind)
		})
	}
}

// unfilteredBridge keeps the packets of a bridge from netfilter.
func unfilteredBridge(s *stage) (release func()) {
	s.t.Helper()
	set := func(to string) func() {
		return func() { fatal.If(s.t, s.Node.Sysctl("net.bridge.bridge-nf-call-iptables="+to)) }
	}
	set("0")()
	return set("1")
}

// flushedUnderLock removes rules of iptables and holds the lock that writing them anew needs.
func flushedUnderLock(s *stage) (release func()) {
	s.t.Helper()
	release = s.holdLock()
	run(s.t, s.Node, "sh", "-c", "XTABLES_LOCKFILE="+s.t.TempDir()+"/none iptables-legacy -t mangle -F")
	return release
}

// ownsTable puts an empty table of a rival's in the place of an nft table. The kernel lets no
// other program write a table with an owner, and removes the table when its owner ends.
func (s *stage) ownsTable(name string) (release func()) {
	s.t.Helper()
	rival := exec.Command("nft", "-i")
	commands, err := rival.StdinPipe()
	fatal.If(s.t, err)
	fatal.If(s.t, s.Node.Do(rival.Start))
	release = sync.OnceFunc(func() {
		_ = commands.Close()
		_ = rival.Wait()
	})
	s.t.Cleanup(release)
	s.until("the rival owns the table", func(int) bool {
		// A line is a transaction: the agent finds no moment without the table, in which it would add
		// its own first. A line that meets the agent's transaction fails, and is written again.
		if _, err := fmt.Fprintf(commands, "delete table inet %s; add table inet %[1]s { flags owner; }\n", name); err != nil {
			return false
		}
		out, err := s.Node.Run("nft", "list", "table", "inet", name)
		return err == nil && strings.Contains(out, "flags owner")
	})
	return release
}

func deviates(t *testing.T, kind nodeKind, object, why string, loses func(s *stage) (release func())) {
	s := newStageOf(t, kind)
	s.zone.add(`www.example.org. 60 IN A 198.51.100.1`)
	health := t.TempDir() + "/health.sock"
	s.agent.Use(agentBinary, append(kind.args(), "--health-socket", health, "--enforce-network-policies", "--metrics-addr", metricsAt)...)
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
	release := loses(s)
	if err := s.agent.WaitFor("the deviation", func(st lab.Status) bool {
		return !st.InSync && slices.ContainsFunc(st.Enforcer.Deviations, func(d struct{ Object, Error string }) bool { return d.Object == object })
	}); err != nil {
		t.Error(err)
	}
	says := func(what string, ask func() string, want string) {
		t.Helper()
		fatal.Await(t, what+" says "+want, func() bool { return strings.Contains(ask(), want) })
	}
	says("readiness", func() string { out, _ := ready(); return out }, object)
	says("readiness", func() string { out, _ := ready(); return out }, why)
	status := func() string {
		out, _ := s.agent.Command("status", "--socket", s.agent.Socket()).CombinedOutput()
		return strings.Join(strings.Fields(string(out)), " ")
	}
	says("the status", status, "not as wanted "+object+" since")
	says("the status", status, "NetworkPolicies enforce All")
	says("/metrics", func() string { _, text, _ := s.page("/metrics"); return text }, "\nnamegate_enforces_all_networkpolicies 1\n")
	release()
	if err := s.agent.WaitFor("the repair", func(st lab.Status) bool { return st.InSync && len(st.Enforcer.Deviations) == 0 }); err != nil {
		t.Error(err)
	}
	s.eventually("a", "198.51.100.1:80", lab.Answered)
	v.end()
	if passed := v.passed.Load(); passed > 0 {
		t.Errorf("%d of %d denied connections passed", passed, v.denied.Load())
	}
	fatal.Await(t, "readiness", func() bool { _, err := ready(); return err == nil })
}
