package metrics

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/audit/denial"
	"github.com/namegate/namegate/proxy/counters"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// openLabels are the labels whose values depend on the installation.
var openLabels = map[string]bool{"version": true, "dataplane": true, "variant": true, "zone": true}

var (
	codeWord = regexp.MustCompile("`([^`]+)`")
	// metricRow is a row of the tables: name and labels, type, labels' values, meaning.
	metricRow = regexp.MustCompile("(?m)^\\| `(namegate_[a-z_]+)(?:{([a-z,]+)})?` \\| ([a-z]+) \\|([^|]*)\\|")
)

// documentedMetrics reads docs/metrics.md: of each metric its type and, behind
// it, each label with its values.
func documentedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	fatal.If(t, err)
	said := map[string][]string{}
	for _, m := range metricRow.FindAllStringSubmatch(string(text), -1) {
		if said[m[1]] != nil {
			t.Errorf("%s is documented twice", m[1])
		}
		said[m[1]] = []string{m[3]}
		labels := strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })
		cells := strings.Split(m[4], ";")
		if strings.TrimSpace(m[4]) == "" {
			cells = nil
		}
		if len(cells) != len(labels) {
			t.Errorf("%s has %d labels and the values of %d", m[1], len(labels), len(cells))
			continue
		}
		for i, label := range labels {
			var values []string
			for _, word := range codeWord.FindAllStringSubmatch(cells[i], -1) {
				values = append(values, word[1])
			}
			slices.Sort(values)
			if openLabels[label] {
				values = nil
			}
			said[m[1]] = append(said[m[1]], label+": "+strings.Join(values, " "))
		}
		slices.Sort(said[m[1]][1:])
	}
	return said
}

// TestMetricsAreDocumented: docs/metrics.md has each metric with its type and each
// label's words, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	families, err := registryOf(t, busyFacts(t), nil).Gather()
	fatal.If(t, err)
	there := map[string][]string{}
	for _, f := range families {
		values := map[string]map[string]bool{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if values[l.GetName()] == nil {
					values[l.GetName()] = map[string]bool{}
				}
				if !openLabels[l.GetName()] {
					values[l.GetName()][l.GetValue()] = true
				}
			}
		}
		row := []string{strings.ToLower(f.GetType().String())}
		for _, label := range slices.Sorted(maps.Keys(values)) {
			row = append(row, label+": "+strings.Join(slices.Sorted(maps.Keys(values[label])), " "))
		}
		there[f.GetName()] = row
	}
	diff.Error(t, there, documentedMetrics(t), "-there +documented")
}

// TestBucketsAreDocumented: the bounds that the document names are the proxy's.
func TestBucketsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	fatal.If(t, err)
	var words []string
	for _, b := range counters.Bounds() {
		words = append(words, b.String())
	}
	if want := strings.Join(words, ", "); !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
		t.Errorf("docs/metrics.md does not say %q", want)
	}
}

// constants returns the values of the constants in Go files whose line the pattern
// matches.
func constants(t *testing.T, pattern string, globs ...string) (out []string) {
	t.Helper()
	for _, glob := range globs {
		files, err := filepath.Glob("../../" + glob)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", glob, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			fatal.If(t, err)
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
				out = append(out, m[1])
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestEveryReasonIsReported: every reason in the code is a value of the metric.
func TestEveryReasonIsReported(t *testing.T) {
	var flows []string
	for _, of := range denial.New(denial.Options{}).Totals() {
		if !slices.Contains(flows, string(of.Reason)) {
			flows = append(flows, string(of.Reason))
		}
	}
	for _, tt := range []struct {
		what, pattern string
		files         []string
		told          []string
	}{
		{"flows", `Reason\w+ +FlowReason += "(\w+)"`, []string{"audit/flow.go"}, flows},
		{"problems", `Reason\w+ += "(\w+)"`, []string{"policy/snapshot.go", "source/kube/*.go", "source/manifest/*.go"}, problemReasons[:]},
		{"findings", `\t[A-Z]\w+ += "([A-Z]\w+)"`, []string{"status/finding.go"}, findingReasons[:]},
	} {
		diff.Error(t, constants(t, tt.pattern, tt.files...), slices.Sorted(slices.Values(tt.told)), tt.what, "(-given +told)")
	}
}

// TestTypesAreBounded: clients cannot create any number of series.
func TestTypesAreBounded(t *testing.T) {
	types := proxyTypes(t)
	if last := types[len(types)-1].Type; last != "other" || len(types) > 12 {
		t.Errorf("%d types, the last is %q", len(types), last)
	}
}
