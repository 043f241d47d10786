package check

import (
	"os"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

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
			a := m.Ask(Pod{policy.Pod{PodRef: policy.PodRef{Namespace: "default", Name: "a"}}, "Pod", nil}, q, Options{ClusterDomain: "cluster.local"})
			if !a.Allowed() && a.Verdict != explain.Denied && a.Verdict != explain.WouldDeny || a.Reason == "" {
				t.Errorf("%+v", a)
			}
		}
	})
}
