package corefile

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDocumentedExamples: every example of docs/corefile.md is a good file, and
// the one with everything says the defaults.
func TestDocumentedExamples(t *testing.T) {
	text, err := os.ReadFile("../../docs/corefile.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "```corefile\n")
	if len(parts) < 5 {
		t.Fatalf("only %d examples", len(parts)-1)
	}
	for _, part := range parts[1:] {
		example, _, _ := strings.Cut(part, "```")
		c, err := Parse("docs/corefile.md", example)
		if err != nil {
			t.Errorf("%v in\n%s", err, example)
			continue
		}
		if strings.Contains(example, "limits {") {
			d := Default()
			if !slices.Equal(c.Bind, d.Bind) || c.Limits != d.Limits || c.Hold != d.Hold || c.Mark != d.Mark || c.GrantTimeout != d.GrantTimeout ||
				c.Audit.Size != d.Audit.Size || c.Audit.Keep != d.Audit.Keep || c.ClusterDomain != d.ClusterDomain {
				t.Errorf("the full example differs from the defaults: %+v", c)
			}
		}
	}
}

func TestEveryDirectiveIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/corefile.md")
	if err != nil {
		t.Fatal(err)
	}
	for d := range directives {
		if !strings.Contains(string(text), "\n| `"+d) || !strings.Contains(string(text), "**"+d) {
			t.Errorf("docs/corefile.md says nothing of %s", d)
		}
	}
	for d := range elsewhere {
		if !strings.Contains(string(text), "`"+d+"`") {
			t.Errorf("docs/corefile.md does not list %s among CoreDNS's", d)
		}
	}
	old := Default()
	restart := []string{"audit", "bind", "failclosed", "forward", "hold", "intercept", "mark"}
	changed := &Config{}
	if got := old.NeedsRestart(&Config{Intercept: old.Bind, FailClosed: true, Zones: []Zone{{To: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")}}}}); !slices.Equal(got, restart) {
		t.Errorf("needs a restart: %v, want %v", got, restart)
	}
	if got := changed.NeedsRestart(changed); got != nil {
		t.Errorf("the same configuration needs a restart: %v", got)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		for _, d := range restart {
			if strings.HasPrefix(line, "| `"+d) && !strings.Contains(line, "| no") {
				t.Errorf("documented otherwise: %s", line)
			}
		}
	}
}
