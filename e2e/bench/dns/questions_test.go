package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/bench/ground"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestQuestions(t *testing.T) {
	b := &bench{Ground: &ground.Ground{Dir: t.TempDir()}, options: options{span: 100 * time.Millisecond}}
	seen := map[string]bool{}
	for range 2 {
		file, err := b.newNames()
		fatal.If(t, err)
		text, err := os.ReadFile(file)
		fatal.If(t, err)
		lines := 0
		for line := range strings.Lines(string(text)) {
			name, qtype, _ := strings.Cut(strings.TrimSpace(line), " ")
			if qtype != "A" || seen[name] {
				t.Fatalf("line %q is not new", line)
			}
			seen[name] = true
			lines++
		}
		if lines != fastest/10 {
			t.Errorf("%d names for a tenth of a second, want %d", lines, fastest/10)
		}
	}
	if p := b.plan(100, time.Second); p.Count != 100 || seen[p.Name(0)] || seen[p.Name(99)] || p.Name(0) == p.Name(1) {
		t.Errorf("a plan's names are not new: %s, %s", p.Name(0), p.Name(99))
	}
	if first, second := b.plan(100, time.Second), b.plan(100, time.Second); first.Name(99) == second.Name(0) {
		t.Errorf("two plans share %s", second.Name(0))
	}
}

func TestQuestionsSayWhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "q.txt")
	if err := writeQuestions(path, 0, 1, newName); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}
