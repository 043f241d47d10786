package corefile

import (
	"cmp"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy/failsafe"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func documentation(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/corefile.md")
	fatal.If(t, err)
	return string(text)
}

// section is the text of a document below a heading, up to the next.
func section(text, heading string) string {
	_, rest, _ := strings.Cut(text, "\n## "+heading+"\n")
	body, _, _ := strings.Cut(rest, "\n## ")
	return body
}

// TestCompleteExampleHasTheDefaults: the example with everything is what counts
// without a line, and names every directive and every option.
func TestCompleteExampleHasTheDefaults(t *testing.T) {
	_, rest, _ := strings.Cut(section(documentation(t), "All directives"), "```corefile\n")
	example, _, _ := strings.Cut(rest, "```")
	c, err := Parse("docs/corefile.md", example)
	fatal.If(t, err)
	d := parseForward(t, ". {\nforward . 10.96.0.10\ncache {\nprefetch 10\nserve_stale\n}\n}")
	d.File = c.File
	d.Audit.Path = c.Audit.Path // it has to have one
	// These have no default but "none".
	c.Intercept, c.FailClosed = nil, false
	c.AuditFilter.Namespaces = nil
	diff.Error(t, audit.Verdicts(), c.AuditFilter.Verdicts, "the full example does not have all verdicts")
	c.AuditFilter.Verdicts, c.Failsafe = nil, failsafe.Config{}
	c.ClusterRanges, c.Search, c.Rebind, c.NAT64 = nil, nil, nil, nil
	diff.Error(t, d, c, "the full example differs from the defaults")
	for _, d := range known() {
		for _, o := range append(options(t, d), "") {
			if o != "force_tcp" && !strings.Contains(example, "\n    "+strings.Repeat("    ", min(len(o), 1))+cmp.Or(o, d)) {
				t.Errorf("the full example has no %s %s", d, o)
			}
		}
	}
}

// options are the options of a directive's block, as the parser lists them.
func options(t *testing.T, directive string) []string {
	t.Helper()
	line := map[string]string{"audit": "audit /a", "cache": "cache", "limits": "limits", "servernames": "servernames", "forward": "forward a.test 192.0.2.2"}[directive]
	if line == "" {
		return nil
	}
	_, err := Parse("Corefile", rootBlock(line+" {\nno_such_option\n}"))
	if err == nil {
		t.Fatalf("%s takes any option", directive)
	}
	_, list, _ := strings.Cut(err.Error(), "write ")
	return strings.FieldsFunc(strings.Replace(list, " or ", ", ", 1), func(r rune) bool { return r == ',' || r == ' ' })
}

// TestEveryDirectiveIsDocumented: in a row of the table, in a section, and with all options.
func TestEveryDirectiveIsDocumented(t *testing.T) {
	text := documentation(t)
	for _, d := range known() {
		diff.Has(t, "\n| [`"+d+"`](#"+d+")", section(text, "All directives"), "the table of docs/corefile.md has no", d)
		body := section(text, d)
		if len(strings.TrimSpace(body)) < 40 {
			t.Errorf("docs/corefile.md does not explain %s", d)
		}
		for _, o := range options(t, d) {
			if !strings.Contains(body, "\n| `"+o+" ") && !strings.Contains(body, "\n| `"+o+"`") {
				t.Errorf("the table of %s in docs/corefile.md has no %s", d, o)
			}
		}
	}
}

// TestRestartsAreDocumented: exactly the directives that a running agent does not apply
// are documented to need a restart.
func TestRestartsAreDocumented(t *testing.T) {
	text := documentation(t)
	old := Default()
	restart := []string{"audit", "bind", "dataplane", "failclosed", "forward", "hold", "intercept", "mark", "servernames"}
	changed := &Config{}
	if got := old.NeedsRestart(&Config{Intercept: old.Bind, FailClosed: true, Zones: []Zone{{To: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")}}}}); !slices.Equal(got, restart) {
		t.Errorf("needs a restart: %v, want %v", got, restart)
	}
	if got := changed.NeedsRestart(changed); got != nil {
		t.Errorf("the same configuration needs a restart: %v", got)
	}
	for _, d := range known() {
		needs := slices.Contains(restart, d)
		_, row, _ := strings.Cut(section(text, "All directives"), "\n| [`"+d+"`](#"+d+")")
		row, _, _ = strings.Cut(row, " |\n")
		cells := strings.Split(row, "|")
		applied := strings.TrimSpace(cells[len(cells)-1])
		diff.Equal(t, strings.Contains(applied, "restart"), needs, d, "needs a restart", "documented is", applied)
	}
}
