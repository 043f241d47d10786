package corefile_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/proxy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

const top = "../.."

// examples returns the Corefiles in the documents, by their position.
func examples(t *testing.T) map[string]string {
	t.Helper()
	documents, err := filepath.Glob(filepath.Join(top, "docs", "*.md"))
	fatal.If(t, err)
	start, err := filepath.Glob(filepath.Join(top, "docs", "start", "*.md"))
	fatal.If(t, err)
	documents = append(documents, start...)
	out := map[string]string{}
	for _, path := range append(documents, filepath.Join(top, "README.md")) {
		text, err := os.ReadFile(path)
		fatal.If(t, err)
		line := 1
		for i, part := range strings.Split(string(text), "```corefile\n") {
			if i > 0 {
				example, _, closed := strings.Cut(part, "\n```")
				if !closed {
					t.Errorf("%s:%d: the example has no end", path, line)
				}
				out[fmt.Sprintf("%s:%d", filepath.Base(path), line)] = example + "\n"
				line++
			}
			line += strings.Count(part, "\n")
		}
	}
	return out
}

// TestDocumentedExamplesServe: each Corefile in the documents is a whole one. A
// server starts with it, takes it over again, and answers.
func TestDocumentedExamplesServe(t *testing.T) {
	all := examples(t)
	documents := map[string]bool{}
	for place, text := range all {
		document, _, _ := strings.Cut(place, ":")
		documents[document] = true
		t.Run(place, func(t *testing.T) {
			boot(t, place, text)
		})
	}
	if !documents["host.md"] || !documents["corefile.md"] || len(all) < 5 {
		t.Errorf("only %d examples, in %v", len(all), documents)
	}
}

// TestExampleFileServes: the file that the demo runs.
func TestExampleFileServes(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "examples", "Corefile"))
	fatal.If(t, err)
	boot(t, "examples/Corefile", string(text))
}

func boot(t *testing.T, file, text string) {
	t.Helper()
	parse := func() *corefile.Config {
		c, err := corefile.Parse(file, text)
		fatal.If(t, err, "in", text)
		return c
	}
	s, err := proxy.New(proxy.Options{Config: parse(), Granter: &granttest.Granter{}, Logger: slog.New(slog.DiscardHandler)})
	fatal.If(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	defer func() {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	for range 2 {
		diff.Empty(t, s.Configure(parse()), "waiting for a restart with the same file")
	}
	fatal.If(t, s.Listen([]netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}))
	addrs := s.Addrs()
	diff.MustEqual(t, 1, len(addrs), "serves on", addrs)
	if err := s.SelfQuery(ctx, addrs[0]); err != nil {
		t.Error(err)
	}
}
