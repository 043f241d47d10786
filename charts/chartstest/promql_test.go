package chartstest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/namegate/namegate/testkit/fatal"
)

// metric is a metric as docs/metrics.md has it, which a test of the agent holds
// against the agent. No values: the installation decides them.
type metric struct {
	kind   string // counter, gauge or histogram
	values map[string][]string
}

// foreign are metrics of Prometheus and of its client library.
var foreign = map[string]metric{
	"up": {kind: "gauge"}, "process_cpu_seconds_total": {kind: "counter"}, "process_resident_memory_bytes": {kind: "gauge"},
}

// target are the labels that a scrape adds.
var target = []string{"node", "instance", "job"}

func documentedMetrics(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	fatal.If(t, err)
	all := map[string]metric{}
	row := regexp.MustCompile("(?m)^\\| `(namegate_[a-z_]+)(?:{([a-z,]+)})?` \\| ([a-z]+) \\|([^|]*)\\|")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		of := metric{kind: m[3], values: map[string][]string{}}
		cells := strings.Split(m[4], ";")
		for i, label := range strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' }) {
			of.values[label] = code(cells[i])
		}
		all[m[1]] = of
	}
	if len(all) < 40 {
		t.Fatalf("%d metrics in docs/metrics.md", len(all))
	}
	return all
}

// find returns the metric that a series is of, and its kind as a function sees it.
func find(all map[string]metric, series string) (m metric, kind string, err error) {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if m, ok := all[strings.TrimSuffix(series, suffix)]; ok && m.kind == "histogram" && strings.HasSuffix(series, suffix) {
			return m, "counter", nil
		}
	}
	if m, ok := foreign[series]; ok {
		return m, m.kind, nil
	}
	m, ok := all[series]
	if !ok || m.kind == "histogram" {
		return m, "", fmt.Errorf("there is no %s", series)
	}
	return m, m.kind, nil
}

// checkSeries returns the error of one selector: the metric, a label, a value.
func checkSeries(all map[string]metric, v *parser.VectorSelector) error {
	m, _, err := find(all, v.Name)
	if err != nil {
		return err
	}
	for _, is := range v.LabelMatchers {
		if is.Name == labels.MetricName || slices.Contains(target, is.Name) {
			continue
		}
		values, ok := m.values[is.Name]
		if !ok {
			return fmt.Errorf("%s has no label %s", v.Name, is.Name)
		}
		if len(values) > 0 && !slices.ContainsFunc(values, is.Matches) {
			return fmt.Errorf("%s: no value of %s matches %s", v.Name, is.Name, is)
		}
	}
	return nil
}

// checkLabels tells which label a grouping or a matching names that nothing below
// it has.
func checkLabels(all map[string]metric, named []string, below parser.Node) error {
	have := append([]string{"le"}, target...)
	parser.Inspect(below, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			m, _, _ := find(all, v.Name)
			for label := range m.values {
				have = append(have, label)
			}
		}
		return nil
	})
	for _, label := range named {
		if !slices.Contains(have, label) {
			return fmt.Errorf("%s: nothing has the label %s", below, label)
		}
	}
	return nil
}

// checkCall checks the type of a function's argument: counters for rates, buckets for
// quantiles.
func checkCall(all map[string]metric, call *parser.Call) error {
	rates := slices.Contains([]string{"rate", "increase", "irate"}, call.Func.Name)
	var wrong error
	parser.Inspect(call, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		_, kind, err := find(all, v.Name)
		if err != nil {
			return nil // said of the selector
		}
		if rates && kind != "counter" {
			wrong = fmt.Errorf("%s of %s, which is a %s", call.Func.Name, v.Name, kind)
		}
		if call.Func.Name == "histogram_quantile" && !strings.HasSuffix(v.Name, "_bucket") {
			wrong = fmt.Errorf("a quantile of %s, which has no buckets", v.Name)
		}
		return nil
	})
	return wrong
}

// checkExpr returns the errors of an expression.
func checkExpr(all map[string]metric, text string) error {
	text = strings.NewReplacer("$__rate_interval", "5m", "$node", ".*").Replace(text)
	expr, err := parser.ParseExpr(text)
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	var wrong error
	parser.Inspect(expr, func(n parser.Node, above []parser.Node) error {
		err := error(nil)
		switch n := n.(type) {
		case *parser.VectorSelector:
			err = checkSeries(all, n)
			if _, kind, _ := find(all, n.Name); kind == "counter" && !slices.ContainsFunc(above, func(p parser.Node) bool { _, ok := p.(*parser.MatrixSelector); return ok }) {
				err = fmt.Errorf("%s only ever grows: use its rate", n.Name)
			}
		case *parser.AggregateExpr:
			err = checkLabels(all, n.Grouping, n.Expr)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				err = checkLabels(all, n.VectorMatching.MatchingLabels, n)
			}
		case *parser.Call:
			err = checkCall(all, n)
		}
		if wrong == nil {
			wrong = err
		}
		return nil
	})
	return wrong
}
