package serve_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/fatal"
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
		some := serve.Choose(&filter, nil, log, func(ns string) bool { return ns == "shop" }, func(string) bool { return false })
		all := serve.Choose(&filter, nil, log, func(string) bool { return true }, func(string) bool { return true })
		for line := range bytes.Lines(some) {
			var h audit.Line
			fatal.If(t, json.Unmarshal(line, &h), "no line:", line)
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
