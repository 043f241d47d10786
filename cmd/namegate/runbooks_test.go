package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/cli"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestCommandsOfRunbooks: every command line of ours in the runbooks, beside the metrics, in the
// README and in the pages for the first hour is one, down to its flags and how many arguments it
// takes.
func TestCommandsOfRunbooks(t *testing.T) {
	line := regexp.MustCompile("(?m)(?:`|^|^\\$ |\\| )((?:kubectl |(?:sudo )?bin/)?namegate [a-z][^`\n]*)")
	start, err := filepath.Glob("../../docs/start/*.md")
	fatal.If(t, err)
	if len(start) < 5 {
		t.Errorf("the pages for the first hour are %q", start)
	}
	found := map[string]bool{}
	for _, file := range append(start, "../../docs/runbooks.md", "../../docs/metrics.md", "../../README.md") {
		text, err := os.ReadFile(file)
		fatal.If(t, err)
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			command, _, _ := strings.Cut(m[1], " #")
			command, _, _ = strings.Cut(command, " > ")
			command = regexp.MustCompile(`\$\([^)]*\)`).ReplaceAllString(command, "POD")
			found[strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(command), "sudo "), "bin/")] = true
		}
	}
	for command := range found {
		words := strings.Fields(command)
		program := root()
		if words[0] == "kubectl" {
			program, words = cli.NewPlugin(version), words[1:]
		}
		cmd, rest, err := program.Find(words[1:])
		if err != nil || cmd == nil || !cmd.Runnable() {
			t.Errorf("%s: there is no such command: %v", command, err)
			continue
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", command, err)
			continue
		}
		// A command that is only named, such as in "`namegate suggest` writes", has none.
		if args := cmd.Flags().Args(); len(words) > 2 && cmd.Args != nil && cmd.Args(cmd, args) != nil {
			t.Errorf("%s: %v", command, cmd.Args(cmd, args))
		}
	}
	if len(found) < 30 {
		t.Errorf("only %d commands were found", len(found))
	}
}

// TestLinksOfRunbooks lead somewhere: to a file that is there, and a heading of it.
func TestLinksOfRunbooks(t *testing.T) {
	for _, file := range []string{"runbooks.md", "metrics.md"} {
		text, err := os.ReadFile("../../docs/" + file)
		fatal.If(t, err)
		links := regexp.MustCompile(`\]\(([^)#]*)(#[^)]+)?\)`).FindAllStringSubmatch(string(text), -1)
		if len(links) < 5 {
			t.Errorf("%s has %d links", file, len(links))
		}
		for _, m := range links {
			target := string(text)
			if m[1] != "" {
				linked, err := os.ReadFile("../../docs/" + m[1])
				if err != nil {
					t.Error(err)
					continue
				}
				target = string(linked)
			}
			heading := strings.ReplaceAll(strings.TrimPrefix(m[2], "#"), "-", "[- ]")
			if m[2] != "" && !regexp.MustCompile(`(?mi)^#+ `+heading+`$`).MatchString(target) {
				t.Errorf("%s: %s has no heading for %s", file, m[1], m[2])
			}
		}
	}
}
