package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/webtest"
)

// TestRights: a viewer of one namespace gets its lines, edges, grants, pods and policies, and no others;
// who asks for all without the right gets nothing.
func TestRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := nodeOf(t, 1)
		hidden := flow("shop/cart-1", "192.0.2.9", "secret.test")
		hidden.Names[0].Pod = "pay/cart-1"
		hidden.Names = append(hidden.Names, flow("shop/cart-1", "192.0.2.9", "bank.test").Names...)
		one.Log(dns("shop/cart-1", "www.example.org", "allowed"), dns("pay/cart-1", "secret.test", "allowed"), hidden)
		viewer := func(scope string) *opened {
			return (&cluster{nodes: []*webtest.Node{one}, viewer: consoletest.Some{"shop"}}).open(t, scope)
		}
		o := viewer("shop")
		diff.Error(t, []string{"bank.test", "www.example.org"}, o.names(t, ""))
		changes, _ := o.store.changes(0)
		for _, e := range changes.Edges {
			if e.Namespace != "shop" || e.Name == "secret.test" {
				t.Errorf("an edge: %+v", e)
			}
		}
		var grants Grants
		var policies Policies
		var explained Explained
		o.get(t, "/api/grants", &grants)
		o.get(t, "/api/policies?namespace=pay", &policies)
		if len(grants.Grants) != 1 || grants.Grants[0].Namespace != "shop" || len(policies.Policies) != 1 || policies.Policies[0].Namespace != "shop" {
			t.Errorf("grants %+v, policies %+v", grants, policies)
		}
		if status, message := o.get(t, "/api/explain?pod=pay/cart-1&target=www.example.org", &explained); status != http.StatusForbidden || !strings.Contains(message, "you may not see the namespace pay") {
			t.Errorf("explain of another namespace: %d %s", status, message)
		}
		if status, _ := o.get(t, "/api/status", nil); status != http.StatusForbidden {
			t.Errorf("status: %d", status)
		}
		all := viewer("")
		if d := cmp.Diff([]string{"node-1 refused"}, all.states()); d != "" || len(all.names(t, "")) != 0 {
			t.Errorf("all without the right: %s %v", d, all.names(t, ""))
		}
		for _, path := range []string{"grants", "policies"} {
			if status, message := all.get(t, "/api/"+path, nil); status != http.StatusForbidden || !strings.Contains(message, "you may not see all namespaces") {
				t.Errorf("%s without the right: %d %s", path, status, message)
			}
		}
	})
}

// TestLinesAreFiltered: by each filter, and page by page.
func TestLinesAreFiltered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := nodeOf(t, 1)
		o := (&cluster{nodes: []*webtest.Node{one}, viewer: serve.Everything{}}).open(t, "")
		chained := dns("pay/till-1", "alias.test", "unmatched")
		chained.Chain, chained.Matches, chained.Pod.Workload = []string{"edge.cdn.test"}, nil, ""
		ruled := flow("pay/till-1", "192.0.2.30", "paste.test")
		ruled.Reason, ruled.Tier, ruled.Policy, ruled.Rule, ruled.Policies = "rule", "Admin", "no-pastes", "pastes", nil
		ingress := flow("lab/db-1", "10.1.0.10", "")
		ingress.Direction, ingress.Source, ingress.Names, ingress.Policies = audit.Ingress, &audit.LineSource{Address: "10.2.0.7", Pod: "shop/client"}, nil, []string{"lab/closed"}
		one.Log(ingress, dns("shop/cart-1", "www.example.org", "allowed"), flow("shop/cart-1", "192.0.2.9", "bank.test"), chained, ruled)
		synctest.Wait()
		for query, want := range map[string][]string{
			"":                        {"paste.test", "alias.test", "bank.test", "www.example.org", "from 10.2.0.7"},
			"namespace=shop":          {"bank.test", "www.example.org"},
			"namespace=sho":           nil,
			"workload=app":            {"paste.test", "bank.test", "www.example.org", "from 10.2.0.7"},
			"workload=Pod/till":       {"alias.test"},
			"workload=till-1":         {"paste.test", "alias.test"},
			"name=example":            {"www.example.org"},
			"name=10.2.0":             {"from 10.2.0.7"},
			"name=shop/client":        {"from 10.2.0.7"},
			"name=10.1.0.10":          {"from 10.2.0.7"},
			"policy=lab/closed":       {"from 10.2.0.7"},
			"name=CDN":                {"alias.test"},
			"name=192.0.2.9":          {"bank.test"},
			"verdict=denied":          {"paste.test", "bank.test", "from 10.2.0.7"},
			"verdict=allowed,denied":  {"paste.test", "bank.test", "www.example.org", "from 10.2.0.7"},
			"verdict=unmatched":       {"alias.test"},
			"kind=dns":                {"alias.test", "www.example.org"},
			"policy=shop/base":        {"bank.test", "www.example.org"},
			"policy=pastes":           {"paste.test"},
			"policy=egress[0]":        {"www.example.org"},
			"namespace=pay&name=test": {"paste.test", "alias.test"},
		} {
			diff.Error(t, want, o.names(t, query), query)
		}
		var pages []string
		before := uint64(0)
		for more := true; more; {
			var lines Lines
			o.get(t, fmt.Sprintf("/api/lines?limit=3&before=%d", before), &lines)
			for _, l := range lines.Lines {
				pages, before = append(pages, fmt.Sprint(l.ID)), l.ID
			}
			more = lines.More
		}
		diff.Error(t, []string{"5", "4", "3", "2", "1"}, pages)
		for _, query := range []string{"verdict=no", "kind=no", "before=x", "limit=0", "limit=100000"} {
			if status, message := o.get(t, "/api/lines?"+query, nil); status != http.StatusBadRequest || !strings.Contains(message, "write ") {
				t.Errorf("%s: %d %s", query, status, message)
			}
		}
	})
}

// TestDenialsAreKept: many allowed lines do not push out the others.
func TestDenialsAreKept(t *testing.T) {
	s := newStore(time.Now)
	add := func(name, verdict string, n int) {
		for range n {
			l := dns("shop/cart-1", name, verdict)
			s.add(&l)
		}
	}
	add("old.test", "refused", 2)
	add("busy.test", "allowed", maxLines+10)
	add("new.test", "refused", 1)
	kept, more := s.lines(10, 0, (&filter{verdicts: []string{"refused"}}).wants)
	var ids []uint64
	for _, h := range kept {
		ids = append(ids, h.id)
	}
	if d := cmp.Diff([]uint64{maxLines + 13, 2, 1}, ids); d != "" || more {
		t.Error(d)
	}
	if all, _ := s.lines(3*maxLines, 0, (&filter{}).wants); len(all) != maxLines+3 || !slices.IsSortedFunc(all, func(a, b held) int { return int(b.id) - int(a.id) }) {
		t.Errorf("%d lines", len(all))
	}
}

// TestPoliciesWithUse: matches have their hits, and those that nothing used are named.
func TestPoliciesWithUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := nodeOf(t, 1), nodeOf(t, 2)
		one.Log(dns("shop/cart-1", "www.example.org", "allowed"))
		two.Log(dns("shop/cart-2", "www.example.org", "allowed"))
		o := (&cluster{nodes: []*webtest.Node{one, two}, viewer: serve.Everything{}}).open(t, "")
		var got Policies
		o.get(t, "/api/policies", &got)
		if len(got.Policies) != 2 || got.Policies[0].Namespace != "pay" {
			t.Fatalf("%+v", got)
		}
		base := got.Policies[1]
		if base.Selected != 2 || base.Matches[0].Hits != 2 || base.Matches[0].Last.IsZero() || base.Matches[1].Hits != 0 || !slices.Equal(base.Unused, []string{"spec.egress[0].matches[1]"}) {
			t.Errorf("%+v", base)
		}
	})
}

// TestExplainAndSuggest: the page says why, and what to write, in the commands' words.
func TestExplainAndSuggest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := nodeOf(t, 1), nodeOf(t, 2)
		other := flow("shop/till-1", "192.0.2.8", "till.test")
		other.Pod.Workload = "app=till"
		two.Log(flow("shop/cart-2", "192.0.2.9", "bank.test"), other)
		o := (&cluster{nodes: []*webtest.Node{one, two}, viewer: serve.Everything{}}).open(t, "")
		for query, want := range map[string]explain.Verdict{
			"pod=shop/cart-2&target=bank.test&port=443":             explain.Denied,
			"pod=shop/cart-2&target=www.example.org&port=443":       explain.Allowed,
			"pod=shop/cart-2&target=2001:db8::6&port=443":           explain.Denied,
			"pod=shop/cart-2&target=192.0.2.9&port=53&protocol=udp": explain.Denied,
			"pod=shop/cart-2&target=www.example.org":                explain.Allowed,
		} {
			var e Explained
			if status, message := o.get(t, "/api/explain?"+query, &e); message != "" {
				t.Errorf("%s: %d %s", query, status, message)
				continue
			}
			if e.Explanation.Verdict != want || !strings.HasPrefix(e.Text, "shop/cart-2 to ") || strings.Contains(e.Text, "\x1b") {
				t.Errorf("%s: %s\n%s", query, e.Explanation.Verdict, e.Text)
			}
		}
		for query, want := range map[string]int{
			"pod=cart-2&target=a.test": 400, "pod=shop/cart-2&target=https://a.test": 400, "pod=shop/cart-2": 400, "pod=shop/nothing&target=a.test": 404,
			"pod=shop/cart-2&target=a.test&port=99999": 400,
		} {
			if status, message := o.get(t, "/api/explain?"+query, nil); status != want || message == "" {
				t.Errorf("%s: %d %s", query, status, message)
			}
		}
		var s Suggested
		o.get(t, "/api/suggest?namespace=shop&workload=app%3Dcart", &s)
		if !strings.Contains(s.YAML, "kind: FQDNNetworkPolicy") || !strings.Contains(s.YAML, "name: bank.test") || strings.Contains(s.YAML, "till") {
			t.Errorf("%s", s.YAML)
		}
		o.get(t, "/api/suggest?namespace=shop&workload=app%3Dnone", &s)
		if !strings.Contains(s.YAML, "Nothing was denied.") || len(s.Notes) != 0 {
			t.Errorf("%+v", s)
		}
		if status, _ := o.get(t, "/api/suggest?workload=app%3Dcart", nil); status != http.StatusBadRequest {
			t.Errorf("%d", status)
		}
	})
}

// TestSuggestForNodes: lines of a node ask for a cluster policy.
func TestSuggestForNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := nodeOf(t, 1)
		host := flow("", "198.51.100.80", "mirror.test")
		host.Pod, host.Host, host.Verdict, host.Policies = audit.LinePod{}, &audit.LineHost{IP: "192.0.2.7"}, "would-deny", nil
		one.Log(host)
		o := (&cluster{nodes: []*webtest.Node{one}, viewer: serve.Everything{}}).open(t, "")
		var s Suggested
		o.get(t, "/api/suggest?workload=Node/node-1", &s)
		if !strings.Contains(s.YAML, "kind: NodeNetworkPolicy") || !strings.Contains(s.YAML, "mirror.test") {
			t.Errorf("%+v", s)
		}
	})
}

// TestGrantsAreBounded: of many grants the first are answered, and the others counted.
func TestGrantsAreBounded(t *testing.T) {
	var g Grants
	g.take(&console.GrantRows{Grants: make([]console.GrantRow, maxGrants-1)})
	g.take(&console.GrantRows{Grants: make([]console.GrantRow, 5)})
	g.take(&console.GrantRows{Grants: make([]console.GrantRow, 5)})
	if len(g.Grants) != maxGrants || g.Left != 9 {
		t.Errorf("%d, left %d", len(g.Grants), g.Left)
	}
}
