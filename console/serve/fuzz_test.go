package serve_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/consoletest"
)

// FuzzChoose: from any log, a viewer of one namespace gets only its lines, without names
// of other namespaces' pods; and a viewer of everything gets the selected lines
// unchanged.
func FuzzChoose(f *testing.F) {
	f.Add([]byte(consoletest.Line(0, "shop/cart", "allowed")+consoletest.Line(1, "pay/cart", "denied")+consoletest.Line(2, "shop/cart", "denied")), "denied")
	f.Add([]byte(`{"pod":{"namespace":"shop"},"names":[{"pod":"pay/x"},{"pod":5}]}`+"\n"), "")
	f.Add([]byte(`{"pod":{"namespace":"shop"},"names":[{"pod":"pay/x","pod":"shop/x"}],"names":[]}`+"\n"), "")
	f.Add([]byte(`{"pod":{"namespace":"shop"},"matches":[{"policy":"p","path":"spec","match":"x"},{"policy":7}],"policies":["p","a/b"],"tier":"Admin","policy":"p"}`+"\n"), "")
	f.Add([]byte("{\n\n\xff\n"), "")
	f.Fuzz(func(t *testing.T, log []byte, verdict string) {
		filter := console.AuditFilter{}
		if verdict != "" {
			filter.Verdicts = []string{verdict}
		}
		some := serve.Choose(&filter, nil, log, func(ns string) bool { return ns == "shop" }, func(bool) bool { return false })
		all := serve.Choose(&filter, nil, log, func(string) bool { return true }, func(bool) bool { return true })
		for line := range bytes.Lines(some) {
			var h serve.Head
			if err := json.Unmarshal(line, &h); err != nil {
				t.Fatalf("%q is no line: %v", line, err)
			}
			if h.Pod.Namespace != "shop" || verdict != "" && h.Verdict != verdict {
				t.Errorf("shown: %q", line)
			}
			for _, n := range h.Names {
				if ns, _, other := strings.Cut(n.Pod, "/"); other && ns != "shop" {
					t.Errorf("a name of the pod %s is shown: %q", n.Pod, line)
				}
			}
		}
		rest := log
		for l := range bytes.Lines(all) {
			_, after, found := bytes.Cut(rest, l)
			if !found {
				t.Fatalf("%q is not in the log, or not in its place", l)
			}
			rest = after
		}
	})
}

// TestBeyondTwin: whatever of a log was recent when it was looked at, and whatever
// came since the following began, each line comes once and in its place.
func TestBeyondTwin(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 7))
		var lines []string
		for i := range 1 + r.IntN(12) {
			lines = append(lines, consoletest.Line(i, "shop/"+strings.Repeat("x", r.IntN(3)), "allowed"))
		}
		began := r.IntN(len(lines) + 1)               // of the following
		looked := began + r.IntN(len(lines)-began+1)  // at the recent lines, after that
		forgotten := r.IntN(began + 1)                // lines that the ring has dropped
		taken := looked + r.IntN(len(lines)-looked+1) // when Next returned first
		recent := strings.Join(lines[forgotten:looked], "")
		first := strings.Join(lines[began:taken], "")
		got := recent + string(serve.Beyond([]byte(recent), []byte(first)))
		if want := strings.Join(lines[forgotten:taken], ""); got != want {
			t.Fatalf("seed %d: recent %d-%d, followed from %d to %d:\n%s\nwant\n%s", seed, forgotten, looked, began, taken, got, want)
		}
	}
}
