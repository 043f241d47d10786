package check

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
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
	r := m.Report(m.Lint(Options{ClusterDomain: "cluster.local"}), []Answer{{Explanation: explain.Explanation{Pod: "pod a\n::error::", To: "x", Verdict: "denied", Reason: "b\x1b[m"}}})
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

// FuzzLint: whatever a file holds, each finding has a line of the file and one line of
// text, and questions have answers.
func FuzzLint(f *testing.F) {
	texts := []string{"", "---\n", "a: &a [*a]\n", "{}\n...\n{}", "\xef\xbb\xbf{", "kind: List\napiVersion: v1\nitems: [[]]\n"}
	for _, text := range texts {
		f.Add(text, "a.test:443")
	}
	for _, spec := range []string{"{podSelector: {}, egress: [{matches: [{name: a.test}, {pattern: '*'}], ports: [{port: 1}]}]}", "{podSelector: &x {}, egress: *x}", "{<<: {podSelector: {}}}"} {
		f.Add("apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: p}\nspec: "+spec+"\n", "a.test/udp")
	}
	f.Add(besidePolicy+aNetworkPolicy("a", "  - {to: [{ipBlock: {cidr: x}}], ports: [{port: x}]}\n"), "a.test:1")
	tiers, err := os.ReadFile("testdata/tiers.yaml")
	fatal.If(f, err)
	f.Add(string(tiers), "x.paste.test:443")
	f.Fuzz(func(t *testing.T, text, to string) {
		for _, name := range []string{"p.yaml", "p.json"} {
			m := New()
			fatal.If(t, m.Add(name, []byte(text)))
			lines := 1 + strings.Count(text, "\n")
			for _, finding := range m.Lint(Options{ClusterDomain: "cluster.local"}) {
				if finding.Line < 0 || finding.Line > lines || finding.Line == 0 && finding.Reason != NoPolicy {
					t.Errorf("%s: there are %d lines: %v", name, lines, finding)
				}
				if strings.Contains(finding.String(), "\n") || finding.Message == "" {
					t.Errorf("%s: %q", name, finding)
				}
			}
			q, err := explain.ParseTarget(to)
			if err != nil || q.Addr.IsValid() {
				continue
			}
			a := m.Ask(Pod{Pod: policy.Pod{PodRef: policy.PodRef{Namespace: "default", Name: "a"}}, Kind: "Pod"}, q, Options{ClusterDomain: "cluster.local"})
			if !a.Allowed() && a.Verdict != explain.Denied && a.Verdict != explain.WouldDeny || a.Reason == "" {
				t.Errorf("%+v", a)
			}
		}
	})
}
