package scenarios

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/documents"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestHostPage: the manifests and commands of docs/start/host.md work on a host without
// Kubernetes. The lab builds and starts the agent as the page says, with paths of its own.
func TestHostPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/start/host.md")
	fatal.If(t, err)
	s := newStage(t, lab.Routed)
	s.zone.add(`
		www.example.org. 60 IN A 198.51.100.1
		other.example.org. 60 IN A 198.51.100.2`)
	files := map[string]string{}
	for _, b := range documents.Blocks(string(text)) {
		if b.Language == "yaml" {
			files[b.File] = strings.ReplaceAll(b.Text, "10.1.0.10", s.Pod("a").Addr4.String())
		}
	}
	s.start(files)
	s.resolve("a", "www.example.org", dns.TypeA)
	s.resolve("a", "other.example.org", dns.TypeA)
	s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
	s.expect("a", "tcp", "198.51.100.2:80", lab.Refused)
	ran := map[string]bool{}
	for _, c := range documents.Commands(string(text)) {
		words := strings.Fields(strings.TrimPrefix(c.Line, "sudo "))
		if words[0] != "bin/namegate" || words[1] == "agent" {
			continue
		}
		ran[words[1]] = true
		if words[1] == "cleanup" {
			fatal.If(t, s.agent.Stop(syscall.SIGTERM))
			if out, err := s.Node.Run(agentBinary, "cleanup", "--config", s.agent.Dir+"/Corefile", "--socket", s.agent.Socket()); err != nil || out != "" {
				t.Errorf("cleanup: %v %s", err, out)
			}
			s.expect("a", "tcp", "198.51.100.2:80", lab.Answered)
			continue
		}
		want := 0
		if c.Ends == documents.Negative {
			want = 1
		}
		if out, errs, code := s.command(words[1:]...); code != want || out+errs == "" {
			t.Errorf("%s: exit code %d, want %d\n%s%s", c.Line, code, want, out, errs)
		}
	}
	for _, command := range []string{"status", "pods", "explain", "grants", "audit", "suggest", "cleanup"} {
		if !ran[command] {
			t.Errorf("the page has no command %s", command)
		}
	}
}
