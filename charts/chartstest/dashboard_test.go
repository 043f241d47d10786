package chartstest

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/testkit/diff"
)

// dashboard has the used fields of Grafana's JSON.
type dashboard struct {
	Title, UID string
	Panels     []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct{ RefID, Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

func dashboardOf(t *testing.T, values string) (*corev1.ConfigMap, dashboard) {
	t.Helper()
	m := the[*corev1.ConfigMap](t, render(t, values).objects, "ConfigMap/namegate-dashboard")
	var d dashboard
	if err := json.Unmarshal([]byte(m.Data["namegate.json"]), &d); err != nil || len(m.Data) != 1 {
		t.Fatalf("%v, %d files", err, len(m.Data))
	}
	return m, d
}

// TestDashboardIsFound by the label that Grafana's sidecar looks for, which values cannot
// remove.
func TestDashboardIsFound(t *testing.T) {
	for values, want := range map[string]map[string]string{
		"dashboards: {enabled: true}":                                    {"grafana_dashboard": "1"},
		"dashboards: {enabled: true, labels: {grafana_dashboard: 'no'}}": {"grafana_dashboard": "1"},
		everything: {"grafana_dashboard": "1", "team": "blue", "app.kubernetes.io/name": "namegate"},
	} {
		m, d := dashboardOf(t, values)
		for label, value := range want {
			diff.Equal(t, value, m.Labels[label], label)
		}
		if d.Title != "Namegate" || d.UID != "namegate" {
			t.Errorf("%s, %s", d.Title, d.UID)
		}
	}
	if m, _ := dashboardOf(t, everything); m.Annotations["folder"] != "Network" {
		t.Errorf("annotations %v", m.Annotations)
	}
}

// TestDashboardIsOfMetricsThatExist: each panel's expressions are of metrics,
// labels and values that the agents have, and each legend of labels that remain.
func TestDashboardIsOfMetricsThatExist(t *testing.T) {
	all := documentedMetrics(t)
	_, d := dashboardOf(t, "dashboards: {enabled: true}")
	titles := map[string]bool{}
	for _, p := range d.Panels {
		if titles[p.Title] || p.Title == "" {
			t.Errorf("the title %q is there twice, or empty", p.Title)
		}
		titles[p.Title] = true
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("%s: description %q, %d targets", p.Title, p.Description, len(p.Targets))
		}
		for _, target := range p.Targets {
			if err := checkExpr(all, target.Expr); err != nil {
				t.Errorf("%s: %v", p.Title, err)
			}
			diff.Has(t, `node=~"$node"`, target.Expr, p.Title, "follows the choice of nodes")
			for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !regexp.MustCompile(`by \([^)]*\b` + label[1] + `\b`).MatchString(target.Expr) {
					t.Errorf("%s: the legend's %s is not in %s", p.Title, label[1], target.Expr)
				}
			}
		}
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	diff.Error(t, []string{"datasource", "node"}, variables, "variables")
}

// TestPanelsDoNotOverlap, nor leave the grid of 24.
func TestPanelsDoNotOverlap(t *testing.T) {
	_, d := dashboardOf(t, "dashboards: {enabled: true}")
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s has the id of another", p.Title)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.W <= 0 || g.H <= 0 || g.X+g.W > 24 {
			t.Errorf("%s is at %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				diff.MustEqual(t, "", taken[[2]int{x, y}], p.Title, "lies over")
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// TestEveryMetricIsOnTheDashboardOrInAnAlert: every metric is on the dashboard or in an alert, or is listed as
// one for diagnosis only.
func TestEveryMetricIsOnTheDashboardOrInAnAlert(t *testing.T) {
	all := documentedMetrics(t)
	_, d := dashboardOf(t, "dashboards: {enabled: true}")
	_, rules := alertsOf(t, "namegate", alertsOn)
	seen := ""
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			seen += target.Expr + "\n"
		}
	}
	for _, a := range rules {
		seen += a.Expr + "\n"
	}
	detail := []string{
		"namegate_apply_failures_total", "namegate_broken_files", "namegate_dns_addresses_total", "namegate_dns_cache_entries",
		"namegate_dns_coalesced_questions_total", "namegate_dns_followed_questions_total", "namegate_dns_in_flight_queries", "namegate_dns_lost_replies_total",
		"namegate_dns_prefetches_total", "namegate_dns_rejected_packets_total", "namegate_dns_tcp_connections", "namegate_dns_upstream_tcp_queries_total",
		"namegate_flow_losses_total", "namegate_flows_over_total", "namegate_fullest_rule_entries", "namegate_networkpolicies", "namegate_peer_set_entries",
		"namegate_peer_sets", "namegate_pods_at_grant_limit", "namegate_refused_grants_total", "namegate_remote_pods",
		"namegate_servername_dial_failures_total", "namegate_servername_misdirected_total", "namegate_servername_waiting_connections", "namegate_snapshot",
	}
	var unseen []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.Contains(seen, name) {
			unseen = append(unseen, name)
		}
	}
	diff.Error(t, detail, unseen, "known, and unseen")
}
