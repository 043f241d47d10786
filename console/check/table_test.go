package check

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/golden"
)

// aCase is one manifest of testdata/cases.yaml.
type aCase struct {
	Name, Manifest string
	Log            string // lines of the audit log
	Says           []string
}

// cases returns the text of each case with the case.
func cases(t *testing.T) (texts []string, all []aCase) {
	t.Helper()
	text, err := os.ReadFile("testdata/cases.yaml")
	fatal.If(t, err)
	texts = strings.Split(string(text), "\n---\n")
	for _, doc := range texts[1:] {
		var c aCase
		fatal.If(t, yaml.UnmarshalStrict([]byte(doc), &c), "in", doc)
		all = append(all, c)
	}
	return texts, all
}

func lint(t *testing.T, manifest string) []string {
	t.Helper()
	return lintWith(t, manifest, Options{ClusterDomain: "cluster.local"})
}

func lintWith(t *testing.T, manifest string, o Options) []string {
	t.Helper()
	return says(manifests(t, manifest), o)
}

// lint returns the findings of a case.
func (c *aCase) lint(t *testing.T) []string {
	t.Helper()
	m, o := manifests(t, c.Manifest), Options{ClusterDomain: "cluster.local"}
	if c.Log != "" {
		o.Log = logOf(t, m, c.Log)
	}
	return says(m, o)
}

// logOf returns the log of lines without their first fields, for manifests.
func logOf(t *testing.T, m *Manifests, lines string) *Log {
	t.Helper()
	l := NewLog(m)
	for text := range strings.Lines(lines) {
		line, err := audit.ParseLine([]byte(`{"v":1,"time":"2026-05-01T12:00:00Z","node":"node-1",` + strings.TrimPrefix(text, "{")))
		fatal.If(t, err, text)
		l.Add(line)
	}
	return l
}

func says(m *Manifests, o Options) (says []string) {
	for _, f := range m.Lint(o) {
		says = append(says, f.String())
	}
	return says
}

func manifests(t *testing.T, manifest string) *Manifests {
	t.Helper()
	m, err := Read([]string{"-"}, strings.NewReader(manifest), false)
	fatal.If(t, err)
	return m
}

// TestCases: each manifest has the findings that the table says, and no others.
func TestCases(t *testing.T) {
	texts, all := cases(t)
	if len(all) < 40 {
		t.Fatalf("%d cases", len(all))
	}
	for i, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			got := c.lint(t)
			if *golden.Update {
				head, _, _ := strings.Cut(texts[i+1], "\nsays:")
				texts[i+1] = strings.TrimRight(head, "\n") + "\nsays:\n"
				for _, line := range got {
					texts[i+1] += "- " + strconv.Quote(line) + "\n"
				}
				texts[i+1] = strings.TrimSuffix(texts[i+1], "\n")
				return
			}
			diff.Error(t, c.Says, got)
		})
	}
	if *golden.Update {
		fatal.If(t, os.WriteFile("testdata/cases.yaml", []byte(strings.Join(texts, "\n---\n")+"\n"), 0o644))
	}
}

// TestReport: what people and programs get, whole.
func TestReport(t *testing.T) {
	m, err := Read([]string{"testdata/shop.yaml", "-"}, strings.NewReader("apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: p}\nspec:\n"+
		"  podSelector: {}\n  egress:\n  - matches:\n    - name: a.test.\n    - name: \"*\"\n"), false)
	fatal.If(t, err)
	var answers []Answer
	for _, to := range []string{"www.example.org:443", "evil.test:443"} {
		q, err := explain.ParseTarget(to)
		fatal.If(t, err)
		answers = append(answers, m.Ask(m.PodsNamed("shop", "cart")[0], q, Options{ClusterDomain: "cluster.local"}))
	}
	r := m.Report(m.Lint(Options{ClusterDomain: "cluster.local"}), answers)
	if !r.Bad(false) || r.Denied() != 1 || r.Errors != 1 {
		t.Errorf("%+v", r)
	}
	for _, format := range []string{"text", "json", "yaml"} {
		var b strings.Builder
		fatal.If(t, r.Write(&b, strings.TrimPrefix(format, "text")))
		golden.Compare(t, "report."+format, b.String())
	}
}
