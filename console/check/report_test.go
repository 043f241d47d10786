package check

import (
	"strings"
	"testing"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/golden"
)

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
