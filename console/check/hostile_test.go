package check

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/testkit/fatal"
)

// hostile are texts in a manifest that try to mislead the reader of a report: a line of a
// CI's own, a terminal's commands, a text with another direction.
const hostile = `apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: "a\n::error::done\x1b[31m", namespace: "x\ny\u202e"}
spec: {podSelector: {}, egress: [{matches: [{name: "a.test"}]}]}
---
apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: a}
spec: {podSelector: {matchLabels: {"a\x1b[2J": "b\nc"}}, egress: [{matches: [{name: "a\x1b[2J\ntest"}, {pattern: "*\u009b2J.test"}]}], "\nother": 1}
---
apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: b}
spec: {podSelector: {matchLabels: {"a\x1b[2J": "b\nc"}}, egress: [{matches: [{name: "a\x1b[2J\ntest"}, {pattern: "*\u009b2J.test"}]}]}
---
apiVersion: v1
kind: "Foo\x1b[31m\nbar"
metadata: {name: a}
---
apiVersion: v1
kind: Pod
metadata: {name: "p\nq\x1b", namespace: shop}
`

// TestHostileManifests: each finding and answer is a line of its own, and none moves
// a terminal's cursor.
func TestHostileManifests(t *testing.T) {
	m := manifests(t, hostile)
	fatal.If(t, m.Add("a\n::error::b.yaml", []byte("kind: [")))
	r := m.Report(m.Lint(Options{ClusterDomain: "cluster.local"}), []Answer{{explain.Explanation{Pod: "pod a\n::error::", To: "x", Verdict: "denied", Reason: "b\x1b[m"}}})
	var out bytes.Buffer
	fatal.If(t, r.Write(&out, ""))
	text := out.String()
	if lines := len(r.Findings) + len(r.Answers) + 1; strings.Count(text, "\n") != lines || len(r.Findings) < 5 {
		t.Errorf("%d findings are not %d lines:\n%q", len(r.Findings), lines, text)
	}
	for _, c := range text {
		if c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) {
			t.Errorf("%U is written:\n%q", c, text)
		}
	}
}
