package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/namegate/namegate/console/suggest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/golden"
)

// shell runs the commands of an example.
type shell struct {
	t    *testing.T
	code int
}

// run returns the output of a line of an example. It knows this program, cat and echo $?,
// "> FILE" and "2> /dev/null".
func (s *shell) run(line string) string {
	line, quiet := strings.CutSuffix(line, " 2> /dev/null")
	line, file, toFile := strings.Cut(line, " > ")
	words := strings.Fields(line)
	switch words[0] {
	case "echo":
		return strconv.Itoa(s.code) + "\n"
	case "cat":
		text, err := os.ReadFile(words[1])
		fatal.If(s.t, err)
		return string(text)
	case "namegate":
	default:
		s.t.Fatalf("the example calls %q", words[0])
	}
	var out, errs string
	s.code, out, errs = called(s.t, "", words[1:]...)
	if quiet {
		errs = ""
	}
	if !toFile {
		return errs + out
	}
	fatal.If(s.t, os.WriteFile(file, []byte(out), 0o644))
	return errs
}

// TestCheckAndSuggestExamples: the examples in the documents have the actual output.
// Blocks with a file name are the files; in console blocks a line after "$ " is run.
func TestCheckAndSuggestExamples(t *testing.T) {
	for name, least := range map[string]int{"check.md": 4, "suggest.md": 3, "start/policies.md": 2, "start/host.md": 1, "start/migrate.md": 2, "start/sandboxes.md": 1} {
		path, err := filepath.Abs(filepath.Join("../../docs", name))
		fatal.If(t, err)
		text, err := os.ReadFile(path)
		fatal.If(t, err)
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			sh, calls := &shell{t: t}, 0
			blocks := strings.Split(string(text), "```")
			for i := 1; i < len(blocks); i += 2 {
				info, body, _ := strings.Cut(blocks[i], "\n")
				if _, file, named := strings.Cut(strings.TrimSpace(info), " "); named {
					fatal.If(t, os.WriteFile(file, []byte(body), 0o644))
				}
				if info != "console" {
					continue
				}
				var got strings.Builder
				for line := range strings.Lines(body) {
					if call, is := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ "); is {
						got.WriteString(line + sh.run(call))
						calls++
					}
				}
				if *golden.Update {
					blocks[i] = info + "\n" + got.String()
				} else if diff := cmp.Diff(body, got.String()); diff != "" {
					t.Error(diff)
				}
			}
			if calls < least {
				t.Errorf("%d calls, want %d", calls, least)
			}
			if *golden.Update {
				fatal.If(t, os.WriteFile(path, []byte(strings.Join(blocks, "```")), 0o644))
			}
		})
	}
}

// rowsOf returns the first cells of the table below a heading of a document.
func rowsOf(t *testing.T, document, heading string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", document))
	fatal.If(t, err)
	_, rest, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", document, heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	var rows [][]string
	for line := range strings.Lines(rest) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); strings.HasPrefix(line, "| ") {
			for i := range cells {
				cells[i] = strings.Trim(cells[i], "| ")
			}
			rows = append(rows, cells)
		}
	}
	return rows[1:]
}

// TestCheckAndSuggestFlags: the documents' tables of flags are the commands' flags,
// except for the shared flags that select agents.
func TestCheckAndSuggestFlags(t *testing.T) {
	shared := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&reach{}).add(shared)
	for document, cmd := range map[string]*cobra.Command{"check.md": checkCommand(asking{}), "suggest.md": suggestCommand(asking{})} {
		var want, got []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if shared.Lookup(f.Name) != nil && f.Name != "namespace" && document != "check.md" { // which asks no agent
				return
			}
			text := "`--" + f.Name + "`"
			if f.Shorthand != "" {
				text += ", `-" + f.Shorthand + "`"
			}
			want = append(want, text)
		})
		for _, row := range rowsOf(t, document, "Flags") {
			if name, list := row[0], strings.Split(row[0], ", `--"); len(list) > 1 { // of several flags, or a flag and its shorthand
				got = append(got, list[0])
				for _, more := range list[1:] {
					got = append(got, "`--"+more)
				}
			} else {
				got = append(got, name)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		diff.Error(t, want, got, document)
	}
}

// TestSuggestKinds: the document's table of left-out connections is the code's.
func TestSuggestKinds(t *testing.T) {
	var want, got []string
	for _, k := range suggest.LeftKinds() {
		want = append(want, "`"+string(k)+"`")
	}
	for _, row := range rowsOf(t, "suggest.md", "What is left out") {
		got = append(got, row[0])
	}
	diff.Error(t, want, got)
	if text := fmt.Sprint(rowsOf(t, "suggest.md", "Exit codes")); maxBadLines != 5 || !strings.Contains(text, "could not be asked") {
		t.Errorf("the first five bad lines are %d; exit codes %s", maxBadLines, text)
	}
}
