package chartstest

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// alerts is the part of a PrometheusRule that the chart writes.
type alerts struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Groups []struct {
			Name  string  `json:"name"`
			Rules []alert `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// alertsOf renders the alerts, by name.
func alertsOf(t *testing.T, release, values string) (*alerts, map[string]alert) {
	t.Helper()
	r := renderAs(t, release, values)
	var rule *alerts
	for key, o := range r.objects {
		if strings.HasPrefix(key, "PrometheusRule/") {
			rule = o.(*alerts)
		}
	}
	if rule == nil {
		t.Fatal("no PrometheusRule")
	}
	all := map[string]alert{}
	for _, g := range rule.Spec.Groups {
		for _, a := range g.Rules {
			if _, twice := all[a.Alert]; twice {
				t.Errorf("%s is there twice", a.Alert)
			}
			all[a.Alert] = a
		}
	}
	return rule, all
}

const alertsOn = "alerts: {enabled: true}"

// TestAlertsAreOfMetricsThatExist, with labels and values that they have.
func TestAlertsAreOfMetricsThatExist(t *testing.T) {
	all := documentedMetrics(t)
	_, rules := alertsOf(t, "namegate", alertsOn)
	if len(rules) < 15 {
		t.Errorf("%d alerts", len(rules))
	}
	for name, a := range rules {
		if err := checkExpr(all, a.Expr); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if a.For == "" {
			continue // what has happened within a time needs no other
		}
		if d, err := time.ParseDuration(a.For); err != nil || d < time.Minute || d > time.Hour {
			t.Errorf("%s: for %q, %v", name, a.For, err)
		}
	}
}

// TestAlertsDescribeTheProblem: each has a severity, a summary of one sentence, a
// description that says where, with labels that its expression has, and a runbook.
func TestAlertsDescribeTheProblem(t *testing.T) {
	all := documentedMetrics(t)
	_, rules := alertsOf(t, "namegate", alertsOn)
	for name, a := range rules {
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) || len(a.Labels) != 1 {
			t.Errorf("%s: labels %v", name, a.Labels)
		}
		diff.Error(t, []string{"description", "runbook_url", "summary"}, slices.Sorted(maps.Keys(a.Annotations)), name, "annotations")
		if s := a.Annotations["summary"]; !strings.HasSuffix(s, ".") || strings.Count(s, ".") != 1 || strings.Contains(s, "{{") {
			t.Errorf("%s: summary %q", name, s)
		}
		used := regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(a.Annotations["description"], -1)
		if len(used) == 0 && !strings.HasPrefix(a.Expr, "absent") {
			t.Errorf("%s does not say where", name)
		}
		expr, err := parser.ParseExpr(a.Expr)
		fatal.If(t, err)
		for _, label := range used {
			if !slices.Contains(labelsOf(all, expr), label[1]) {
				t.Errorf("%s speaks of the label %s, and its expression has %v", name, label[1], labelsOf(all, expr))
			}
		}
		if strings.Contains(a.Expr+strings.Join(slices.Collect(maps.Values(a.Annotations)), ""), "RUNBOOKS") || strings.Contains(a.Expr, "JOB") {
			t.Errorf("%s: something was not filled in: %+v", name, a)
		}
	}
}

// labelsOf returns the labels that an expression's result has.
func labelsOf(all map[string]metric, expr parser.Expr) []string {
	switch e := expr.(type) {
	case *parser.AggregateExpr:
		return e.Grouping
	case *parser.ParenExpr:
		return labelsOf(all, e.Expr)
	case *parser.BinaryExpr:
		if _, number := e.LHS.(*parser.NumberLiteral); number {
			return labelsOf(all, e.RHS)
		}
		return labelsOf(all, e.LHS)
	case *parser.MatrixSelector:
		return labelsOf(all, e.VectorSelector)
	case *parser.Call:
		return labelsOf(all, e.Args[len(e.Args)-1])
	case *parser.VectorSelector:
		m, _, _ := find(all, e.Name)
		return slices.AppendSeq(slices.Clone(target), maps.Keys(m.values))
	}
	return nil
}

// TestEveryAlertHasARunbook, and every runbook its alert, which it tells the
// expression of; the alert links there.
func TestEveryAlertHasARunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbooks.md")
	fatal.If(t, err)
	sections := map[string]string{}
	for _, part := range strings.Split("\n"+string(text), "\n## ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		if strings.HasPrefix(name, "Namegate") {
			sections[name] = body
		}
	}
	_, rules := alertsOf(t, "namegate", alertsOn)
	diff.Error(t, slices.Sorted(maps.Keys(rules)), slices.Sorted(maps.Keys(sections)), "alerts, and their runbooks")
	for name, a := range rules {
		body := sections[name]
		for _, part := range []string{"**Means.**", "**Look.**", "**Do.**", a.Labels["severity"]} {
			diff.Has(t, part, body, "the runbook of", name)
		}
		want := "https://github.com/namegate/namegate/blob/main/docs/runbooks.md#" + strings.ToLower(name)
		diff.Equal(t, want, a.Annotations["runbook_url"], "the runbook of", name)
	}
}

// TestAlertsOfAnotherRelease: its agents' job, and links to a copy of the runbooks.
func TestAlertsOfAnotherRelease(t *testing.T) {
	rule, rules := alertsOf(t, "edge", everything)
	if rule.Name != "edge-namegate" || rule.Namespace != namespace || rule.Labels["release"] != "monitoring" || rule.Labels["app.kubernetes.io/name"] != "namegate" {
		t.Errorf("%+v", rule.ObjectMeta)
	}
	// The operator names the job of a ServiceMonitor's targets after their Service.
	the[*corev1.Service](t, renderAs(t, "edge", everything).objects, "Service/edge-namegate-metrics")
	down := rules["NamegateAgentDown"]
	if !strings.Contains(down.Expr, `up{job="edge-namegate-metrics"}`) || down.Annotations["runbook_url"] != "https://runbooks.test/namegate#namegateagentdown" {
		t.Errorf("%+v", down)
	}
}
