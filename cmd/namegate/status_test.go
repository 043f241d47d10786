package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/proxy"
)

// rows is what a status prints, words by the first column.
func rows(t *testing.T, s status) map[string]string {
	t.Helper()
	var out strings.Builder
	if err := s.print(&out); err != nil {
		t.Fatal(err)
	}
	by := map[string]string{}
	for line := range strings.Lines(out.String()) {
		name, words, found := strings.Cut(strings.TrimSpace(line), "  ")
		if !found {
			t.Errorf("a line of one column: %q", line)
		}
		by[name] = strings.TrimSpace(words)
	}
	return by
}

// TestStatusSaysWhatIsKept: the cache's numbers always, the others when there are any.
func TestStatusSaysWhatIsKept(t *testing.T) {
	quiet := map[string]string{
		"version": "v9", "in sync": "true (snapshot 2)", "selected pods": "0", "granted addresses": "0",
		"answers": "0 kept, 0 asked for, 0 stale",
	}
	s := status{Version: "v9", InSync: true, Snapshot: 2}
	if d := cmp.Diff(quiet, rows(t, s)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	s.Proxy = proxy.Stats{CacheHits: 31, CacheMisses: 12, CacheStale: 3, Prefetches: 4, Followed: 5, ShedPod: 6, ShedAll: 7, ShedZone: 8}
	busy := rows(t, s)
	for name, want := range map[string]string{
		"answers": "31 kept, 12 asked for, 3 stale", "prefetches": "4", "followed": "5 questions for names that allowed ones point at",
		"too many": "21 queries got SERVFAIL: 6 of one pod under way, 7 of all, 8 of one forward (max_concurrent)",
	} {
		if busy[name] != want {
			t.Errorf("%s: %q, want %q", name, busy[name], want)
		}
	}
}

// TestStatusIsDocumented: docs/operations.md shows what is printed and explains
// the counters by their names in JSON.
func TestStatusIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(text), "$ namegate status\n")
	shown, rest, _ := strings.Cut(shown, "```")
	for name := range rows(t, status{Version: version, Audit: &auditStatus{}}) {
		if !strings.Contains("\n"+shown, "\n"+name+"  ") {
			t.Errorf("the status that docs/operations.md shows has no %s", name)
		}
	}
	for _, name := range []string{"answers", "prefetches", "followed", "too many"} {
		if !strings.Contains(rest, "\n| `"+name+"` |") {
			t.Errorf("docs/operations.md does not explain %s", name)
		}
	}
	wire, err := json.Marshal(proxy.Stats{})
	if err != nil {
		t.Fatal(err)
	}
	var counters map[string]uint64
	if err := json.Unmarshal(wire, &counters); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cacheHits", "cacheMisses", "cacheStale", "prefetches", "followed", "shedZone"} {
		if _, there := counters[name]; !there || !strings.Contains(rest, "`"+name+"`") {
			t.Errorf("docs/operations.md does not explain %s, or it is not told: %v", name, there)
		}
	}
}
