package console

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/stats"
)

// TestStatusIsDocumented: docs/operations.md has the actual output and explains the
// counters by their names in JSON.
func TestStatusIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	fatal.If(t, err)
	_, shown, _ := strings.Cut(string(text), "$ namegate status\n")
	shown, rest, _ := strings.Cut(shown, "```")
	var out strings.Builder
	p := &Printer{Out: &out, Format: FormatTable}
	quiet := Status{Node: "node-1", Version: "v0.1.0", Audit: &AuditStatus{}}
	fatal.If(t, p.Statuses([]Reply[Status]{{Value: quiet}}))
	lines := 0
	for line := range strings.Lines(out.String()) {
		name, _, found := strings.Cut(line, "  ")
		if lines++; !found || !strings.Contains("\n"+shown, "\n"+name+"  ") {
			t.Errorf("the status that docs/operations.md shows has no line as %q", line)
		}
	}
	if lines < 6 {
		t.Errorf("a status of %d lines:\n%s", lines, out.String())
	}
	for _, name := range []string{"answers", "prefetches", "followed", "too many", "denied", "audit lines"} {
		if !strings.Contains(rest, "\n| `"+name+"`") {
			t.Errorf("docs/operations.md does not explain %s", name)
		}
	}
	wire, err := json.Marshal(stats.Proxy{})
	fatal.If(t, err)
	var counters map[string]any
	fatal.If(t, json.Unmarshal(wire, &counters))
	for _, name := range []string{"cacheHits", "cacheMisses", "cacheStale", "prefetches", "followed", "shedZone"} {
		if _, there := counters[name]; !there || !strings.Contains(rest, "`"+name+"`") {
			t.Errorf("docs/operations.md does not explain %s, or it is not told: %v", name, there)
		}
	}
}
