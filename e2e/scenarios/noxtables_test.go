package scenarios

import (
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestNodesWithoutIPTables: with "dataplane auto" an agent chooses nftables where the programs
// of iptables or the kernel's ipset and xtables are missing, says why, and enforces.
func TestNodesWithoutIPTables(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		programs, kernel bool // what the node has
		says             string
	}{
		{"no programs", false, true, "iptables-restore"},
		{"no modules", true, false, "ipset type"},
		{"neither", false, false, "iptables-restore"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, lab.Routed)
			fatal.If(t, s.agent.SetDataplane("auto"))
			s.agent.NoXtables = !c.kernel
			if !c.programs {
				path, err := lab.OnlyPrograms(t.TempDir(), "nft")
				fatal.If(t, err)
				s.agent.Env = []string{path}
			}
			s.startClient(policy("www", "podSelector: {matchLabels: {app: client}}\negress:\n- matches: [{name: www.example.org}]"))
			is, err := s.agent.Status()
			if err != nil || is.Dataplane.Name != "nftables" || !strings.Contains(is.Dataplane.Reason, c.says) {
				t.Errorf("dataplane %+v, %v, want nftables, since there is no %s", is.Dataplane, err, c.says)
			}
			works := func(when string) {
				t.Helper()
				for _, a := range s.resolve("a", "www.example.org", dns.TypeA) {
					s.expect("a", "tcp", a.String()+":80", lab.Answered)
				}
				if s.expect("a", "tcp", "198.51.100.2:80", lab.Refused); t.Failed() {
					t.Fatal(when)
				}
			}
			works("with the first agent")
			fatal.If(t, s.agent.Stop(syscall.SIGTERM))
			fatal.If(t, s.agent.Start())
			works("with the next agent")
			s.nothingLeftOf("iptables")
		})
	}
}
