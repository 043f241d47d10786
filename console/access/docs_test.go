package access

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/entry"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestDocumentedRefusals: the commands print the documented messages.
func TestDocumentedRefusals(t *testing.T) {
	text, err := os.ReadFile("../../docs/kubectl.md")
	fatal.If(t, err)
	var sources strings.Builder
	for _, dir := range []string{".", "..", "../serve", "../client", "../entry", "../../cmd/namegate"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		fatal.If(t, err)
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			source, err := os.ReadFile(f)
			fatal.If(t, err)
			sources.Write(source)
		}
	}
	_, table, found := strings.Cut(string(text), "\n## Troubleshooting\n")
	if !found {
		t.Fatal("the document has no such section")
	}
	said := 0
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			said++
			for _, part := range strings.Split(quoted[1], "…") {
				diff.Has(t, strings.TrimSpace(part), sources.String(), "nothing says", part)
			}
		}
	}
	if said < 10 {
		t.Errorf("%d texts are documented", said)
	}
}

// TestDocumentedBounds: the numbers in the documents are the code's.
func TestDocumentedBounds(t *testing.T) {
	for file, want := range map[string][]string{
		"../../docs/kubectl.md":  {"128 connections, 16 of one address", "takes 20 of one address a second", "5 new callers of one address and 10 of all a second", "counts for 10 s", "port 9954", "`namegate-console-0` to\n`namegate-console-f`"},
		"../../docs/security.md": {"5 new callers of one address (an IPv6 /64) and 10 of all a second", "128 connections and 16 of one address, 5 s for handshake and header, 64 KiB of header, 30 s for a piece", "20 connections of one address a second, and 60 of all"},
	} {
		text, err := os.ReadFile(file)
		fatal.If(t, err)
		for _, w := range want {
			diff.Has(t, w, string(text), file, "does not say")
		}
	}
	if maxConnections != 128 || connectionsOfOne != 16 || reviewRate.perSecond != 5 || allReviewRate.perSecond != 10 || connectionRate.perSecond != 20 || allConnectionRate.perSecond != 60 || cacheTTL.Seconds() != 10 ||
		headerTime.Seconds() != 5 || headerBytes != 64<<10 || writeTime.Seconds() != 30 || len(entry.LeaseNames()) != 16 {
		t.Error("the documents have other numbers than the code; change them and this test")
	}
}
