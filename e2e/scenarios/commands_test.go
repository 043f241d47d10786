package scenarios

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/documents"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// command runs a command for people against the agent.
func (s *stage) command(args ...string) (out, errs string, code int) {
	s.t.Helper()
	cmd := s.agent.Command(append(args, "--socket", s.agent.Socket())...)
	var o, e strings.Builder
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			s.t.Fatal(err)
		}
		code = exit.ExitCode()
	}
	return o.String(), e.String(), code
}

// says runs a command and asserts its exit code and words of its output.
func (s *stage) says(code int, words string, args ...string) string {
	s.t.Helper()
	out, errs, got := s.command(args...)
	for _, w := range strings.Split(words, "|") {
		if got != code || !strings.Contains(out+errs, w) {
			s.t.Errorf("namegate %s: exit code %d, want %d and %q in\n%s%s", strings.Join(args, " "), got, code, w, out, errs)
			break
		}
	}
	return out
}

// follows runs `namegate audit -f` and hands its lines over.
func (s *stage) follows(args ...string) <-chan string {
	s.t.Helper()
	cmd := s.agent.Command(append([]string{"audit", "-f", "--socket", s.agent.Socket()}, args...)...)
	out, err := cmd.StdoutPipe()
	fatal.If(s.t, err)
	fatal.If(s.t, cmd.Start())
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for in := bufio.NewReader(out); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				_, _ = io.Copy(io.Discard, out)
				return
			}
			lines <- line
		}
	}()
	s.t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(syscall.SIGINT), cmd.Wait()); err != nil {
			s.t.Errorf("audit -f does not end well: %v", err)
		}
	})
	return lines
}

// comes waits for a line with all the words.
func (s *stage) comes(lines <-chan string, words ...string) {
	s.t.Helper()
	var seen strings.Builder
	for after := time.After(lab.Limit); ; {
		select {
		case line := <-lines:
			missing := false
			for _, w := range words {
				missing = missing || !strings.Contains(line, w)
			}
			if !missing {
				return
			}
			seen.WriteString(line)
		case <-after:
			s.t.Errorf("no line with %q, but\n%s", words, seen.String())
			return
		}
	}
}

// TestExplainAndSuggest: a denied connection is logged as it happens with its name,
// explain names the missing match, and the manifest that it advises allows the
// connection.
func TestExplainAndSuggest(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(`
			www.example.org. 60 IN A 198.51.100.1
			bank.test. 60 IN A 198.51.100.2`)
		s.start(map[string]string{
			"a.yaml":      s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
			"b.yaml":      s.Pod("b").Manifest("pay", "a", nil),
			"policy.yaml": policy("allow-www", allowWWW),
		})
		lines := s.follows("--pod", "shop/a", "--kind", "flow")
		people := s.follows("-n", "shop", "--verdict", "denied")
		s.resolve("a", "www.example.org", dns.TypeA)
		s.resolve("a", "bank.test", dns.TypeA)
		s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
		s.expect("a", "tcp", "198.51.100.2:443", lab.Refused)
		s.comes(lines, `shop/a`, "denied", "tcp 198.51.100.2:443 bank.test - no match covers the name")
		s.comes(people, "bank.test")

		s.says(0, "shop       a    Enforce      shop/allow-www  0   1     1|pay        a    -", "pods")
		s.says(0, "www.example.org  198.51.100.1  tcp/80|shop/allow-www www.example.org", "grants", "shop/a")
		s.says(0, "shop/a to www.example.org:80/tcp: allowed", "explain", "shop/a", "www.example.org:80")
		s.says(0, "allowed", "explain", "-n", "shop", "a", "198.51.100.1")
		s.says(1, "covers www.example.org on tcp/80, and not on tcp/443", "explain", "shop/a", "198.51.100.1:443")
		s.says(1, "the pod asked for bank.test|1 × tcp 198.51.100.2:443 (bank.test)", "explain", "shop/a", "198.51.100.2:443")
		s.says(1, "no pod of this node resolved the address lately", "explain", "shop/a", "198.51.100.9:443")
		s.says(0, "no policy selects the pod", "explain", "pay/a", "bank.test")
		s.says(0, "is a resolver", "explain", "shop/a", lab.Resolver4.String()+":53/udp")
		s.says(0, "denied             1 by reason unmatched", "status")
		s.says(5, "pay/a, shop/a; write NAMESPACE/NAME", "explain", "a", "bank.test")
		s.says(5, "knows no pod shop/nobody", "grants", "shop/nobody")

		out := s.says(1, "", "explain", "shop/a", "bank.test", "-o", "json")
		var e struct {
			Verdict string
			Advice  struct{ Manifest string }
		}
		if err := json.Unmarshal([]byte(out), &e); err != nil || e.Verdict != "denied" || e.Advice.Manifest == "" {
			t.Fatalf("%v in\n%s", err, out)
		}
		s.apply(map[string]string{"advice.yaml": e.Advice.Manifest})
		s.resolve("a", "bank.test", dns.TypeA)
		s.expect("a", "tcp", "198.51.100.2:443", lab.Answered)
		s.expect("a", "tcp", "198.51.100.2:80", lab.Refused)
		s.says(0, "shop/a to bank.test:443/tcp: allowed", "explain", "shop/a", "bank.test:443")

		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		s.says(3, "no program listens there, the agent that made it is gone", "pods")
	})
}

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
