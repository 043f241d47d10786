package cli

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// ran runs a command line.
func ran(t *testing.T, cmd *cobra.Command, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	code = Execute(context.Background(), cmd, &e)
	return o.String(), e.String(), code
}

// refusing is a socket at which everything is refused.
func refusing(t *testing.T, status int, message string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	fatal.If(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(message))
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return path
}

// TestExitCodes: what goes wrong is one line, with its own code.
func TestExitCodes(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.sock")
	stale := filepath.Join(t.TempDir(), "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	fatal.If(t, err)
	l.SetUnlinkOnClose(false)
	l.Close()
	unknown := refusing(t, http.StatusNotFound, `{"error":"the agent of node-1 knows no pod shop/x"}`)
	forbidden := refusing(t, http.StatusForbidden, `{"error":"you may not"}`)
	odd := refusing(t, http.StatusOK, `<html>`)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"foo", 2, "unknown command \"foo\" for \"namegate\"; `namegate --help` says what there is"},
		{"pods a b", 2, "one POD at most, not 2"},
		{"pods --zz", 2, "unknown flag: --zz"},
		{"status -o foo", 2, "-o foo is not known; write table, wide, json, yaml"},
		{"status x", 2, `unknown command "x" for "namegate status"`},
		{"explain x", 2, "explain takes a POD and a NAME or an IP, and there are 1 arguments"},
		{"explain shop/x https://a.test --socket " + none, 2, "is a URL; write its host alone"},
		{"grants /x", 2, `"/x" is no pod; write NAMESPACE/NAME or NAME`},
		{"grants shop/x -n pay", 2, "the pod shop/x is not in the namespace pay; leave one of them out"},
		{"audit --verdict deny", 2, `verdict "deny" is not known; write allowed, `},
		{"audit --since yesterday", 2, "--since yesterday; write a duration such as 24h"},
		{"status --socket " + none, 3, "no agent at socket " + none + ": there is no such file; is the agent running on this node? (--socket names another)"},
		{"pods --socket " + stale, 3, "no agent at socket " + stale + ": no program listens there, the agent that made it is gone; start the agent (--socket names another)"},
		{"audit -f --socket " + none, 3, "no agent at socket "},
		{"explain shop/x a.test --socket " + unknown, 5, "the agent of node-1 knows no pod shop/x"},
		{"ui --socket " + none, 3, "no agent at socket " + none},
		{"ui --socket " + forbidden, 4, "you may not"},
		{"ui --port 70000", 2, "invalid argument \"70000\""},
		{"grants -n pay --socket " + forbidden, 4, "you may not"},
		{"pods --socket " + odd, 1, "read the agent's answer, is it of another version than this command?"},
	} {
		out, errs, code := ran(t, New("v1"), strings.Fields(c.args)...)
		if code != c.code || !strings.HasPrefix(errs, "namegate: ") || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 || out != "" {
			t.Errorf("%s: exit code %d, %q, %q; want %d, %q", c.args, code, errs, out, c.code, c.want)
		}
	}
}

// TestHelpIsNoMistake: asking for help is no usage error.
func TestHelpIsNoMistake(t *testing.T) {
	for _, args := range []string{"", "--help", "help explain", "explain --help", "--version", "completion bash"} {
		if out, errs, code := ran(t, New("v1"), strings.Fields(args)...); code != 0 || out == "" || errs != "" {
			t.Errorf("%s: exit code %d, %q", args, code, errs)
		}
	}
}

// TestPluginCommands: kubectl's command has the commands for people, under kubectl's
// name.
func TestPluginCommands(t *testing.T) {
	out, _, code := ran(t, NewPlugin("v1"), "--help")
	if code != 0 || !strings.Contains(out, "kubectl namegate [command]") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	var names []string
	for _, c := range NewPlugin("v1").Commands() {
		names = append(names, c.Name())
	}
	diff.Error(t, []string{"audit", "check", "convert", "explain", "grants", "pods", "status", "suggest", "ui"}, names, "offered")
}

// TestCompletion: pods and namespaces are offered, and without a reachable agent nothing
// is printed.
func TestCompletion(t *testing.T) {
	socket := refusing(t, http.StatusOK, `{"pods":[{"namespace":"shop","name":"cart"},{"namespace":"pay","name":"bank"},{"namespace":"pay","name":"till"}]}`)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"explain", ""}, []string{"shop/cart", "pay/bank", "pay/till"}},
		{[]string{"explain", "shop/cart", ""}, nil},
		{[]string{"grants", "-n", "pay", ""}, []string{"cart", "bank", "till"}}, // the agent does not filter
		{[]string{"audit", "--pod", ""}, []string{"shop/cart", "pay/bank", "pay/till"}},
		{[]string{"pods", "-n", ""}, []string{"pay", "shop"}},
		{[]string{"pods", "-o", ""}, []string{"table", "wide", "json", "yaml"}},
		{[]string{"audit", "--kind", ""}, []string{"dns", "flow"}},
	} {
		args := append([]string{cobra.ShellCompNoDescRequestCmd}, c.args[0], "--socket", socket)
		out, _, code := ran(t, New("v1"), append(args, c.args[1:]...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if words := lines[:len(lines)-1]; code != 0 || !slices.Equal(words, c.want) {
			t.Errorf("%v: %v, want %v (exit code %d)", c.args, words, c.want, code)
		}
	}
	out, errs, code := ran(t, New("v1"), cobra.ShellCompNoDescRequestCmd, "explain", "--socket", socket+".gone", "")
	if code != 0 || strings.TrimSpace(out) != ":4" || strings.Contains(errs, "no agent") {
		t.Errorf("without an agent: exit code %d, %q, %q", code, out, errs)
	}
}

// TestNoColours: programs get none, and neither do users who turn them off.
func TestNoColours(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal to be had: %v", err)
	}
	defer tty.Close()
	env := func(vars ...string) func(string) string {
		return func(key string) string {
			for _, v := range vars {
				if name, value, _ := strings.Cut(v, "="); name == key {
					return value
				}
			}
			return ""
		}
	}
	if !coloured(tty, false, env("TERM=xterm")) {
		t.Error("no colours on a terminal")
	}
	for what, got := range map[string]bool{
		"--no-color": coloured(tty, true, env()), "NO_COLOR": coloured(tty, false, env("NO_COLOR=1")), "a dumb one": coloured(tty, false, env("TERM=dumb")),
		"a buffer": coloured(&bytes.Buffer{}, false, env()),
	} {
		if got {
			t.Errorf("%s has colours", what)
		}
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	fatal.If(t, err)
	defer file.Close()
	if coloured(file, false, env()) {
		t.Error("a file has colours")
	}
}

// TestErrorIsOneLine: any error is one line without control characters.
func TestErrorIsOneLine(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
		code int
	}{
		{console.Refuse(404, "no pod \x1b[2J\u202eshop\nnamegate: all is well"), "namegate: no pod \\x1b[2J\\u202eshop namegate: all is well\n", console.ExitUnknown},
		{errors.Join(errors.New("read a.log"), errors.New("read b.log")), "namegate: read a.log read b.log\n", console.ExitNo},
	} {
		cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return c.err }}
		cmd.SetArgs(nil)
		var errs bytes.Buffer
		if code := Execute(context.Background(), cmd, &errs); code != c.code || errs.String() != c.want {
			t.Errorf("%d %q, want %d %q", code, errs.String(), c.code, c.want)
		}
	}
	var errs bytes.Buffer
	cmd := New("v1")
	cmd.SetArgs([]string{"stauts"})
	if Execute(context.Background(), cmd, &errs); bytes.Count(errs.Bytes(), []byte("\n")) != 1 {
		t.Errorf("%q", errs.String())
	}
}

// TestConvertCommand: policies go to the standard output, notes to standard error; the exit
// code is 1 where a person has to look.
func TestConvertCommand(t *testing.T) {
	dir := t.TempDir()
	write := func(name, pattern string) string {
		path := filepath.Join(dir, name)
		fatal.If(t, os.WriteFile(path, []byte("apiVersion: networking.gke.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: p}\nspec: {podSelector: {}, egress: [{matches: [{pattern: '"+pattern+"'}]}]}\n"), 0o600))
		return path
	}
	for _, c := range []struct {
		args, out, errs string
		code            int
	}{
		{write("plain.yaml", "*.example.com"), "- pattern: '*.example.com'", "", 0},
		{write("deep.yaml", "**.example.com"), "- pattern: '*.example.com'", "deep.yaml:1: changed: FQDNNetworkPolicy p: spec.egress[0].matches[0]: ", 0},
		{write("all.yaml", "**"), "- pattern: '*'", "all.yaml:1: wider: ", 1},
		{write("bad.yaml", "a b"), "podSelector: {}", "bad.yaml:1: failed: ", 1},
		{write("named.yaml", "*.example.com") + " -n shop", "  namespace: shop\n", "", 0},
		{filepath.Join(dir, "none.yaml"), "", "there is no file or folder", 1},
		{"", "", "nothing to convert", 2},
	} {
		out, errs, code := ran(t, New("v1"), append([]string{"convert"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) || (errs == "") != (c.errs == "") {
			t.Errorf("%s: exit code %d\n%s\n%s", c.args, code, out, errs)
		}
	}
}
