package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/cli"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestHealthWithoutSocket: the agent's own commands fail as the others do.
func TestHealthWithoutSocket(t *testing.T) {
	var errs strings.Builder
	cmd := root()
	cmd.SetArgs([]string{"health"})
	cmd.SetOut(io.Discard)
	if code := cli.Execute(context.Background(), cmd, &errs); code != console.ExitUsage || !strings.Contains(errs.String(), `required flag(s) "socket" not set`) {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}

// TestCommandsAreDocumented: docs/commands.md has a section for each command, with
// its line of use and a row for each of its flags, and no rows beside these.
func TestCommandsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/commands.md")
	fatal.If(t, err)
	shared := map[string]string{}                     // its description, by name
	grants, _, err := root().Find([]string{"grants"}) // has no flags of its own
	fatal.If(t, err)
	grants.Flags().VisitAll(func(f *pflag.Flag) { shared[f.Name] = f.Usage })
	compareFlags(t, "Flags of all", section(t, string(text), "## Common flags"), grants.Flags(), nil)
	for _, c := range root().Commands() {
		if c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		s := section(t, string(text), "## `"+c.Name()+"`")
		explained := shared
		if c.Flags().Lookup("kube") == nil {
			explained = nil // it asks no agent
		}
		diff.Has(t, "namegate "+c.Use+"\n", s, "the section of", c.Name(), "does not say how it is used: namegate", c.Use)
		if _, elsewhere, found := strings.Cut(s, "For its flags, see ["); found {
			file, _, _ := strings.Cut(elsewhere, "]")
			other, err := os.ReadFile(filepath.Join("../../docs", file))
			if err != nil {
				t.Error(err)
			}
			mentionsFlags(t, file, string(other), c.Flags(), explained)
			continue
		}
		compareFlags(t, c.Name(), s, c.Flags(), explained)
	}
	codes := section(t, string(text), "## Exit codes")
	for code := range console.ExitUnknown + 1 {
		diff.Has(t, "\n| "+string(rune('0'+code))+" |", codes, "exit code", code, "not explained")
	}
}

// section returns the text below a heading, up to the next of its kind.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, s, found := strings.Cut(text, "\n"+heading+"\n")
	if !found {
		t.Errorf("docs/commands.md has no %q", heading)
	}
	s, _, _ = strings.Cut(s, "\n## ")
	return s
}

// compareFlags compares the rows of a section with flags, without flags that other
// sections explain.
func compareFlags(t *testing.T, what, section string, flags *pflag.FlagSet, without map[string]string) {
	t.Helper()
	rows := map[string]bool{}
	for line := range strings.Lines(section) {
		if row, ok := strings.CutPrefix(line, "| `-"); ok {
			row, _, _ = strings.Cut(row, " |")
			_, name, found := strings.Cut(row, "--")
			if !found {
				name = strings.TrimPrefix(row, "-")
			}
			name, _, _ = strings.Cut(name, "`")
			name, _, _ = strings.Cut(name, " ")
			rows[name] = true
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden || without[f.Name] == f.Usage {
			return
		}
		if !rows[f.Name] {
			t.Errorf("%s: --%s has no row", what, f.Name)
		}
		delete(rows, f.Name)
	})
	for name := range rows {
		t.Errorf("%s: there is no --%s", what, name)
	}
}

// mentionsFlags looks for each flag in another document.
func mentionsFlags(t *testing.T, file, text string, flags *pflag.FlagSet, without map[string]string) {
	t.Helper()
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !f.Hidden && without[f.Name] != f.Usage && !strings.Contains(text, "`--"+f.Name) {
			t.Errorf("docs/%s does not explain --%s", file, f.Name)
		}
	})
}

// TestLinksOfCommands lead to a document that is there, and a heading of it.
func TestLinksOfCommands(t *testing.T) {
	own, err := os.ReadFile("../../docs/commands.md")
	fatal.If(t, err)
	links := 0
	for _, link := range strings.Split(string(own), "](")[1:] {
		link, _, _ = strings.Cut(link, ")")
		file, heading, _ := strings.Cut(link, "#")
		text := own
		if links++; file != "" {
			if text, err = os.ReadFile(filepath.Join("../../docs", file)); err != nil {
				t.Error(err)
			}
		}
		found := heading == ""
		for line := range strings.Lines(string(text)) {
			if words, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
				anchor := strings.ReplaceAll(strings.ToLower(strings.ReplaceAll(strings.TrimSpace(words), "`", "")), " ", "-")
				found = found || anchor == heading
			}
		}
		if !found {
			t.Errorf("%s leads nowhere", link)
		}
	}
	if links < 15 {
		t.Errorf("%d links were found", links)
	}
}

// TestClosedPipe: the agent's standard output and error lose their reader, and it
// continues. The test runs itself as the agent.
func TestClosedPipe(t *testing.T) {
	if os.Getenv("NAMEGATE_TEST_PIPE") != "" {
		outliveReaders()
		for range 10 {
			fmt.Fprintln(os.Stdout, "a line")
			fmt.Fprintln(os.Stderr, "a line")
		}
		os.Exit(7)
	}
	r, w, err := os.Pipe()
	fatal.If(t, err)
	r.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestClosedPipe$")
	cmd.Env = append(os.Environ(), "NAMEGATE_TEST_PIPE=1")
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Run()
	w.Close()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("it ended with %v, want status 7 after its last line", err)
	}
}
