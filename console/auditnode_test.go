package console

import (
	"strings"
	"testing"

	"github.com/namegate/namegate/audit"
)

// TestLinesOfNodes: lines of the node are for callers who may get the cluster kind, whatever
// namespaces they see, and they name the user of the process.
func TestLinesOfNodes(t *testing.T) {
	const line = `{"v":1,"kind":"flow","time":"2026-05-01T12:00:00.250000Z","node":"n1","verdict":"would-deny","host":{"uid":42,"gid":7,"ip":"192.0.2.7"},` +
		`"protocol":"tcp","destination":{"address":"198.51.100.80","port":80},"names":[{"name":"mirror.test","pod":"node n1"}],"reason":"rule","tier":"Admin","policy":"workers","rule":"rest","count":1}` + "\n"
	everywhere, nowhere := func(string) bool { return true }, func(string) bool { return false }
	for may, sees := range map[bool]func(string) bool{true: nowhere, false: everywhere} {
		for _, f := range []AuditFilter{{}, {Verdicts: []string{"would-deny"}}} {
			if got := f.choose(nil, []byte(line), sees, func(bool) bool { return may }); (len(got) > 0) != may {
				t.Errorf("may get the cluster kind: %v, got %q", may, got)
			}
		}
	}
	if got := (&AuditFilter{Namespace: "shop"}).choose(nil, []byte(line), everywhere, func(bool) bool { return true }); len(got) > 0 {
		t.Errorf("of a namespace: %q", got)
	}
	var shown string
	if err := audit.Read(strings.NewReader(line), func(l audit.Line) error { shown = auditLine(&l, false, false); return nil }, func(_ int, err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(shown, "would-deny node n1 (uid 42)") || !strings.Contains(shown, "198.51.100.80:80") {
		t.Errorf("%q", shown)
	}
}
