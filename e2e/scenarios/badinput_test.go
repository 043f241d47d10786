package scenarios

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestRefusedStarts starts agents that cannot work: each says why in one line,
// ends with an error and leaves nothing behind.
func TestRefusedStarts(t *testing.T) {
	t.Parallel()
	s := newStage(t, lab.Routed)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		fatal.If(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	good := write("Corefile", "\n. {\n    forward . 192.0.2.53\n    audit stdout\n}\n")
	empty := filepath.Join(dir, "empty")
	fatal.If(t, os.Mkdir(empty, 0o755))
	onlyNFT, err := lab.OnlyPrograms(t.TempDir(), "nft")
	fatal.If(t, err)
	flags := func(changes ...string) []string {
		f := map[string]string{"--source": "dir:" + empty, "--config": good, "--socket": filepath.Join(dir, "sock")}
		for i := 0; i < len(changes); i += 2 {
			f[changes[i]] = changes[i+1]
		}
		args := []string{"agent"}
		for k, v := range f {
			args = append(args, k, v)
		}
		return args
	}
	nothing := func() func() { return func() {} }
	tests := []struct {
		name  string
		args  []string
		setup func() (undo func())
		cmd   func(*exec.Cmd)
		want  []string
	}{
		{name: "no folder", args: flags("--source", "dir:"+dir+"/none"), want: []string{dir + "/none", "create it or name another one"}},
		{name: "folder is a file", args: flags("--source", "dir:"+good), want: []string{good, "is a file"}},
		{name: "unknown source", args: flags("--source", "etcd:x"), want: []string{`"etcd:x"`, "--source dir:PATH"}},
		{name: "no Corefile", args: flags("--config", dir+"/none"), want: []string{dir + "/none", "--config"}},
		{name: "unreadable Corefile", args: flags("--config", dir), want: []string{dir}},
		{name: "broken Corefile", args: flags("--config", write("broken", ". {\n    forward . 192.0.2.53\n")), want: []string{"broken:"}},
		{name: "unknown directive", args: flags("--config", write("unknown", ". {\n    forward . 192.0.2.53\n    fowrard . 192.0.2.53\n}\n")), want: []string{"unknown:3", "fowrard"}},
		{name: "bad mark", args: flags("--config", write("mark", ". {\n    forward . 192.0.2.53\n    mark 0x60\n}\n")), want: []string{"mark:3", "0x60"}},
		{name: "unknown variant", args: flags("--iptables", "pf"), want: []string{`"pf"`, "legacy or nft"}},
		{name: "not root", args: flags(), want: []string{"run it as root"},
			cmd: func(c *exec.Cmd) {
				c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}},
		{name: "no nftables", args: flags(), want: []string{"nft", "install the package nftables"},
			cmd: func(c *exec.Cmd) { c.Env = []string{"PATH=" + empty} }},
		{name: "no iptables", args: flags("--config", write("iptables", ". {\n    forward . 192.0.2.53\n    dataplane iptables\n}\n")),
			want: []string{"dataplane iptables does not work", "install the package iptables", "dataplane nftables"},
			cmd:  func(c *exec.Cmd) { c.Env = []string{onlyNFT} }},
		{name: "port taken", args: flags(), want: []string{"169.254.20.", ":53", "in use"},
			setup: func() func() {
				c, err := s.Node.ListenPacket("udp", "0.0.0.0:53")
				fatal.If(t, err)
				return func() { c.Close() }
			}},
		{name: "mark bit taken", args: flags(), want: []string{"0x40", "-A OTHER -j MARK --set-xmark 0x40/0x40", "directive mark"},
			setup: func() func() {
				for _, words := range []string{"-N OTHER", "-A OTHER -j MARK --set-xmark 0x40/0x40"} {
					run(t, s.Node, "iptables", append([]string{"-t", "mangle"}, strings.Fields(words)...)...)
				}
				return func() {
					run(t, s.Node, "iptables", "-t", "mangle", "-F", "OTHER")
					run(t, s.Node, "iptables", "-t", "mangle", "-X", "OTHER")
				}
			}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.setup == nil {
				test.setup = nothing
			}
			defer test.setup()()
			cmd := s.agent.Command(test.args...)
			if test.cmd != nil {
				test.cmd(cmd)
			}
			var out []byte
			err := s.Node.Do(func() error {
				var err error
				out, err = cmd.CombinedOutput()
				return err
			})
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("exit: %v, want status 1", err)
			}
			said := strings.TrimRight(string(out), "\n")
			if strings.Count(said, "\n") != 0 || !strings.HasPrefix(said, "namegate: ") {
				t.Errorf("not one clear line: %s", said)
			}
			for _, w := range test.want {
				diff.Has(t, w, said, "does not say")
			}
		})
	}
	for _, look := range [][]string{{"iptables-save"}, {"ip6tables-save"}} {
		out, err := s.Node.Run(look[0], look[1:]...)
		if trace := traces(out); trace != "" || err != nil {
			t.Errorf("%v shows %q, %v", look, trace, err)
		}
	}
}

// TestBadInputWhileRunning breaks the input of a running agent: the old state stays.
func TestBadInputWhileRunning(t *testing.T) {
	t.Parallel()
	s := newStage(t, lab.Routed)
	s.zone.add(`
		www.example.org. 60 IN A 198.51.100.1
		other.example.org. 60 IN A 198.51.100.2`)
	s.startClient(policy("www", allowWWW))
	works := func(when string) {
		t.Helper()
		s.resolve("a", "www.example.org", dns.TypeA)
		diff.Equal(t, lab.Answered, s.Pod("a").ProbeFor("tcp", addrPort("198.51.100.1:80"), lab.PatienceFor(lab.Answered)), when, "the allowed name")
		diff.Equal(t, lab.Refused, s.Pod("a").ProbeFor("tcp", addrPort("198.51.100.2:80"), lab.PatienceFor(lab.Refused)), when, "the other one")
	}
	broken := func(word string) func(lab.Status) bool {
		return func(st lab.Status) bool {
			return slices.ContainsFunc(st.BrokenFiles, func(f struct{ File, Reason string }) bool {
				return strings.HasSuffix(f.File, "/p.yaml") && strings.Contains(f.Reason, word)
			})
		}
	}
	for text, word := range map[string]string{
		policy("www", "podSelector: {matchLabels: [oops"):                "line",
		strings.Replace(policy("www", allowWWW), "egress", "egresss", 1): "egresss",
	} {
		fatal.If(t, s.agent.Write(map[string]string{"p.yaml": text}))
		fatal.If(t, s.agent.WaitFor("the broken file", broken(word)))
		works("with a broken file")
	}
	out, err := s.agent.Command("status", "--socket", s.agent.Socket()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "p.yaml") || !strings.Contains(string(out), "last good content is in force") {
		t.Errorf("namegate status: %v\n%s", err, out)
	}
	if log := s.agent.Log(); !strings.Contains(log, "p.yaml") || !strings.Contains(log, "last good content stays in force") {
		t.Errorf("the log does not name the broken file:\n%s", log)
	}

	// A name over 253 characters matches nothing; the rest of its policy works.
	long := strings.Repeat("abcdefghi.", 26) + "example.org"
	fatal.If(t, s.agent.Write(map[string]string{"p.yaml": policy("www", allowWWW+"\n- matches: [{name: "+long+"}]")}))
	fatal.If(t, s.agent.WaitFor("the overlong name", func(st lab.Status) bool {
		return len(st.BrokenFiles) == 0 && slices.ContainsFunc(st.Problems, func(p struct{ Object, Reason, Path, Message string }) bool {
			return p.Reason == "PartiallyInvalid" && strings.Contains(p.Path, "egress[1].matches[0]") && strings.Contains(p.Message, "253")
		})
	}))
	works("with an overlong name")

	corefilePath := filepath.Join(s.agent.Dir, "Corefile")
	fatal.If(t, os.WriteFile(corefilePath, []byte(". {\n    forward . nowhere\n}\n"), 0o644))
	fatal.If(t, s.agent.WaitFor("the refused Corefile", func(lab.Status) bool {
		return strings.Contains(s.agent.Log(), "Corefile:2") && strings.Contains(s.agent.Log(), "the running configuration stays")
	}))
	works("with a broken Corefile")

	// A second agent beside the first one says so and disturbs nothing.
	fatal.If(t, os.WriteFile(corefilePath, []byte(". {\n    forward . 192.0.2.53\n}\n"), 0o644))
	var second []byte
	err = s.Node.Do(func() error {
		var err error
		second, err = s.agent.Command("agent", "--source", "dir:"+t.TempDir(), "--config", corefilePath, "--socket", s.agent.Socket()).CombinedOutput()
		return err
	})
	if err == nil || strings.Count(string(second), "\n") != 1 || !strings.Contains(string(second), "another agent runs") {
		t.Errorf("a second agent: %v, %s", err, second)
	}
	works("with a second agent refused")
	fatal.If(t, os.RemoveAll(filepath.Join(s.agent.Dir, "manifests")))
	fatal.If(t, s.agent.WaitFor("the vanished folder", func(st lab.Status) bool { return len(st.BrokenFiles) > 0 }))
	works("with the folder gone")
}
