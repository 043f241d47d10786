package audit

import (
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/docs"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/audittest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

func documentation(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/audit.md")
	fatal.If(t, err)
	return string(text)
}

// exampleFlow is the denied connection of docs/audit.md.
func exampleFlow(t testing.TB) *Flow {
	return &Flow{
		Time: noon, Last: noon,
		Pod:     policy.PodRef{Namespace: "shop", Name: "cart-7d9f", UID: "0b6f3c1e-4f1f-4c70-9a37-2f9f2f8a6c11"},
		Address: netip.MustParseAddr("10.244.1.17"), Workload: "app=cart,tier=front",
		Verdict: Denied, Protocol: policy.TCP, Dialled: netip.MustParseAddrPort("192.0.2.10:8443"),
		Names: []FlowName{{Name: policytest.Name("www.example.org"), Asked: noon.Add(-2 * time.Second),
			Match: &policy.Match{Rule: &policy.Rule{Policy: "shop/allow-out"}, Path: "spec.egress[0].matches[1]", Pattern: pattern(t, "*.example.org")}}},
		Reason: ReasonPorts, Policies: []string{"shop/allow-out"}, Count: 1,
	}
}

// documentedLines are the lines in docs/audit.md, in its order.
func documentedLines(t *testing.T) []string {
	audited := Record{
		Time: noon, Pod: policy.PodRef{Namespace: "shop", Name: "batch-1"}, Address: netip.MustParseAddr("2001:db8:1::5"),
		Name: policytest.Name("other.test"), Type: 28, Class: 1, Verdict: Unmatched, Would: Unmatched,
		Answers:  []Answer{{Addr: netip.MustParseAddr("2001:db8::6")}},
		Upstream: netip.MustParseAddrPort("[2001:db8::53]:53"), Latency: 900 * time.Microsecond, TCP: true,
	}
	failed := Record{
		Time: noon, Pod: policy.PodRef{Namespace: "shop", Name: "batch-1"}, Address: netip.MustParseAddr("10.244.1.18"),
		Name: policytest.Name("api.example.org"), Type: 65, Class: 1, Verdict: Failed, Rcode: 2,
		Matches: []*policy.Match{{Rule: &policy.Rule{Policy: "shop/watch", Audit: true}, Path: "spec.egress[0].matches[0]", Pattern: pattern(t, "api.example.org")}},
		Latency: 4 * time.Second, Error: "no upstream of zone . answered in 4s",
	}
	denied := Record{
		Time: noon, Pod: policy.PodRef{Namespace: "shop", Name: "batch-1"}, Address: netip.MustParseAddr("10.244.1.18"),
		Name: policytest.Name("www.example.org"), Type: 1, Class: 1, Verdict: NameDenied, Rcode: 3,
		Rule:    &policy.Rule{Tier: policy.Admin, Policy: "no-paste-sites", Path: "spec.egress[0]", Name: "pastes"},
		Matches: []*policy.Match{{Rule: &policy.Rule{Policy: "no-paste-sites"}, Path: "spec.egress[0].matches[0]", Pattern: pattern(t, "**.paste.example")}},
		Chain:   []fqdn.Name{policytest.Name("www.paste.example")}, Upstream: netip.MustParseAddrPort("10.96.0.10:53"), Latency: 1200 * time.Microsecond,
	}
	renewed := Record{
		Time: noon, Pod: policy.PodRef{Namespace: "shop", Name: "batch-1"}, Address: netip.MustParseAddr("10.244.1.18"),
		Name: policytest.Name("db.example.org"), Type: 1, Class: 1, Verdict: Renewed, Renewed: ByConnection,
		Matches: []*policy.Match{{Rule: &policy.Rule{Policy: "shop/allow-out"}, Path: "spec.egress[0].matches[1]", Pattern: pattern(t, "*.example.org")}},
		Answers: []Answer{{Addr: netip.MustParseAddr("192.0.2.40"), Openings: []Opened{{Ports: "tcp/5432", Until: noon.Add(95 * time.Second)}}}},
		Latency: 1500 * time.Microsecond,
	}
	limited := Record{
		Time: noon, Pod: policy.PodRef{Namespace: "shop", Name: "batch-1"}, Address: netip.MustParseAddr("10.244.1.18"),
		Name: policytest.Name("x7.example.org"), Type: 16, Class: 1, Verdict: Refused, Limit: policy.LimitTypes,
		Matches: []*policy.Match{{Rule: &policy.Rule{Policy: "shop/allow-out"}, Path: "spec.egress[0].matches[1]", Pattern: pattern(t, "*.example.org")}},
		Latency: 40 * time.Microsecond,
	}
	var lines []string
	for _, r := range []Record{example(t), audited, failed, denied, renewed, limited} {
		lines = append(lines, string(appendRecord(nil, "node-1", &r)))
	}
	again := exampleFlow(t)
	again.Time, again.Last, again.Count = noon.Add(time.Second), noon.Add(41*time.Second), 2
	another := &Flow{Time: noon, Pod: policy.PodRef{Namespace: "shop", Name: "batch-1"}, Address: netip.MustParseAddr("2001:db8:1::5"),
		Verdict: WouldDeny, Protocol: policy.UDP, Dialled: netip.MustParseAddrPort("[2001:db8::6]:443"),
		Names:  []FlowName{{Name: policytest.Name("other.test"), Asked: noon.Add(-time.Minute), Pod: policy.PodRef{Namespace: "shop", Name: "cart-7d9f"}}},
		Reason: ReasonAnother, Policies: []string{"shop/watch"}, Count: 1}
	bare := &Flow{Time: noon, Pod: policy.PodRef{Namespace: "shop", Name: "cart-7d9f"}, Address: netip.MustParseAddr("10.244.1.17"),
		Verdict: Denied, Protocol: 1, Dialled: netip.MustParseAddrPort("198.51.100.7:0"), Reason: ReasonAddress, Policies: []string{"shop/allow-out", "shop/watch"}, Count: 1}
	byRule := exampleFlow(t)
	byRule.Pod.UID, byRule.Workload, byRule.Reason, byRule.Dialled = "", "", ReasonRule, netip.MustParseAddrPort("192.0.2.30:443")
	byRule.Rule = &policy.Rule{Tier: policy.Admin, Policy: "no-paste-sites", Name: "pastes", Path: "spec.egress[0]"}
	byRule.Names = []FlowName{{Name: policytest.Name("www.paste.example"), Asked: noon.Add(-2 * time.Second),
		Match: &policy.Match{Rule: &policy.Rule{Policy: "no-paste-sites"}, Path: "spec.egress[0].matches[0]", Pattern: pattern(t, "**.paste.example")}}}
	ofNode := &Flow{Time: noon, Pod: policy.NodeRef("node-1"), Address: netip.MustParseAddr("192.0.2.7"), Owner: Owner{Known: true, UID: 42, GID: 65534},
		Verdict: WouldDeny, Protocol: policy.TCP, Dialled: netip.MustParseAddrPort("198.51.100.80:80"),
		Names:  []FlowName{{Name: policytest.Name("mirror.test"), Asked: noon.Add(-2 * time.Second)}},
		Reason: ReasonRule, Rule: &policy.Rule{Tier: policy.Admin, Policy: "nodenetworkpolicy:workers", Name: "everything else", Path: "spec.egress[1]"}, Count: 1}
	wouldPass := &Flow{Time: noon, Pod: policy.NodeRef("node-1"), Address: netip.MustParseAddr("10.244.1.17"), Verdict: WouldDeny, Protocol: policy.TCP, Source: netip.MustParseAddr("10.244.1.17"), Leaves: true,
		SourcePod: policy.PodRef{Namespace: "shop", Name: "cart-7d9f"}, Dialled: netip.MustParseAddrPort("198.51.100.80:80"), Reason: ReasonRule, Rule: &policy.Rule{Tier: policy.Admin, OfNode: policy.OfNode{Traffic: policy.Forwarded}, Policy: "nodenetworkpolicy:edge", Name: "web"}, Count: 1}
	through := &Flow{Time: noon, Pod: policy.NodeRef("node-1"), Address: netip.MustParseAddr("10.244.1.17"), Verdict: Denied, Protocol: policy.TCP, Source: netip.MustParseAddr("203.0.113.9"),
		Dialled: netip.MustParseAddrPort("10.244.1.17:8080"), Reason: ReasonRule, Rule: &policy.Rule{Tier: policy.Admin, OfNode: policy.OfNode{Traffic: policy.Forwarded}, Policy: "nodenetworkpolicy:edge", Name: "rest"}, Count: 1}
	toPod := &Flow{Time: noon, Pod: policy.PodRef{Namespace: "shop", Name: "cart-7d9f"}, Address: netip.MustParseAddr("10.244.1.17"), Workload: "app=cart,tier=front",
		Verdict: Denied, Protocol: policy.TCP, Source: netip.MustParseAddr("10.244.2.9"), SourcePod: policy.PodRef{Namespace: "lab", Name: "probe"},
		Dialled: netip.MustParseAddrPort("10.244.1.17:8080"), Reason: ReasonIsolated, Policies: []string{"shop/from-front"}, Count: 1}
	fronted := exampleFlow(t)
	fronted.Pod.UID, fronted.Workload, fronted.Dialled, fronted.Reason, fronted.ServerName = "", "", netip.MustParseAddrPort("192.0.2.10:443"), ReasonServerName, "elsewhere.test\n\xff"
	fronted.Rule = &policy.Rule{Tier: policy.Namespace, ServerName: true, Policy: "shop/allow-out", Path: "spec.egress[0]"}
	for _, f := range []*Flow{exampleFlow(t), again, another, bare, byRule, ofNode, through, wouldPass, toPod, fronted} {
		lines = append(lines, string(appendFlow(nil, nodeField("node-1"), f)))
	}
	return lines
}

// TestDocumentedLines: each line in docs/audit.md is the line of a record or a flow, and
// matches the schema.
func TestDocumentedLines(t *testing.T) {
	var shown []string
	for line := range strings.Lines(documentation(t)) {
		if strings.HasPrefix(line, `{"v":`) {
			shown = append(shown, line)
		}
	}
	diff.Error(t, documentedLines(t), shown, "what lines become (-), and what docs/audit.md shows (+)")
	schema, err := audittest.Strict()
	fatal.If(t, err)
	for _, line := range shown {
		if err := schema.Line([]byte(line)); err != nil {
			t.Error(err)
		}
	}
}

// resolve follows a reference inside the schema.
func resolve(doc, at map[string]any) map[string]any {
	ref, ok := at["$ref"].(string)
	if !ok {
		return at
	}
	for _, step := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		doc = doc[step].(map[string]any)
	}
	return doc
}

// fields are the paths of all fields that a part of the schema has.
func fields(doc, at map[string]any, path string, into map[string]bool) {
	at = resolve(doc, at)
	if properties, ok := at["properties"].(map[string]any); ok {
		for k, in := range properties {
			fields(doc, in.(map[string]any), strings.TrimPrefix(path+"."+k, "."), into)
		}
		return
	}
	if items, ok := at["items"].(map[string]any); ok {
		fields(doc, items, path+"[]", into)
		return
	}
	into[path] = true
}

// TestSchemaAndDocumentsAgree: the tables of docs/audit.md have the schema's fields,
// all of them and no others, and its words.
func TestSchemaAndDocumentsAgree(t *testing.T) {
	var doc map[string]any
	fatal.If(t, json.Unmarshal([]byte(docs.AuditSchema), &doc))
	row := regexp.MustCompile("(?m)^\\| `(.+?)` \\|") // one field, or several with a meaning in common
	first := func(heading string) (rows []string) {
		_, text, ok := strings.Cut(documentation(t), "\n"+heading+"\n")
		text, _, _ = strings.Cut(text, "\n#")
		for _, m := range row.FindAllStringSubmatch(text, -1) {
			rows = append(rows, strings.Split(m[1], "`, `")...)
		}
		if !ok || len(rows) == 0 {
			t.Fatalf("docs/audit.md has no %s", heading)
		}
		slices.Sort(rows)
		return rows
	}
	kinds := map[string]map[string]bool{"### Decisions": {}, "### Flows": {}}
	defs := doc["$defs"].(map[string]any)
	fields(doc, defs[KindDNS].(map[string]any), "", kinds["### Decisions"])
	fields(doc, defs[KindFlow].(map[string]any), "", kinds["### Flows"])
	for heading, has := range kinds {
		diff.Error(t, slices.Sorted(maps.Keys(has)), first(heading), "the schema (-) and docs/audit.md (+) below", heading)
	}
	enum := func(kind, field string) (words []string) {
		for _, w := range resolve(doc, defs[kind].(map[string]any)["properties"].(map[string]any)[field].(map[string]any))["enum"].([]any) {
			words = append(words, w.(string))
		}
		return words
	}
	verdicts := slices.Compact(append(enum(KindDNS, "verdict"), enum(KindFlow, "verdict")...)) // denied is of both
	diff.Error(t, Verdicts(), verdicts, "the verdicts (-) and the schema's (+)")
	slices.Sort(verdicts)
	diff.Error(t, verdicts, slices.Compact(first("## Verdicts")), "the schema's verdicts (-) and docs/audit.md's (+)")
	reasons := []string{string(ReasonRule), string(ReasonServerName), string(ReasonLimit), string(ReasonUnchecked), string(ReasonPorts), string(ReasonTranslated), string(ReasonExpired), string(ReasonBlocked), string(ReasonUnmatched), string(ReasonAnother), string(ReasonAddress), string(ReasonIsolated)}
	diff.Error(t, reasons, enum(KindFlow, "reason"), "the reasons (-) and the schema's (+)")
	slices.Sort(reasons)
	diff.Error(t, reasons, first("## Reasons"), "the reasons (-) and docs/audit.md's (+)")
}

// TestSchemaRefuses: invalid lines are refused, by the published schema too except for
// unknown fields, which a later version may add.
func TestSchemaRefuses(t *testing.T) {
	strict, err := audittest.Strict()
	fatal.If(t, err)
	published, err := audittest.Published()
	fatal.If(t, err)
	lines := documentedLines(t)
	decision, denied, renewed, limited, flow, byRule, through, wouldPass, toPod, fronted := lines[0], lines[3], lines[4], lines[5], lines[7], lines[10], lines[12], lines[13], lines[14], lines[15]
	for _, c := range []struct {
		line, old, new string
		later          bool
	}{
		{line: decision, old: `"v":1`, new: `"v":2`},
		{line: decision, old: `"kind":"dns"`, new: `"kind":"flow"`},
		{line: decision, old: `"kind":"dns",`, new: ``},
		{line: decision, old: `"kind":"dns"`, new: `"kind":"tls"`},
		{line: decision, old: `12:00:00.250000Z","node`, new: `12:00:00.25Z","node`},
		{line: decision, old: `2026-05-01T12:00:00.250000Z","node`, new: `2026-02-30T12:00:00.250000Z","node`},
		{line: decision, old: `"verdict":"allowed"`, new: `"verdict":"denied"`},
		{line: decision, old: `"verdict":"allowed"`, new: `"verdict":"would-deny"`},
		{line: decision, old: `"matches"`, new: `"tier":"Admin","policy":"p","rule":"r","matches"`},
		{line: denied, old: `"tier":"Admin"`, new: `"tier":"Namespace"`},
		{line: denied, old: `"policy":"no-paste-sites","rule"`, new: `"rule"`},
		{line: denied, old: `,"rule":"pastes"`, new: ``},
		{line: denied, old: `"verdict":"denied"`, new: `"verdict":"refused"`},
		{line: renewed, old: `"renewed":"connection"`, new: `"renewed":"used"`},
		{line: renewed, old: `,"renewed":"connection"`, new: ``},
		{line: decision, old: `"protocol":"udp"`, new: `"protocol":"udp","renewed":"answer"`},
		{line: decision, old: `"ip":"10.244.1.17"`, new: `"ip":"10.244.1"`},
		{line: decision, old: `"granted":true`, new: `"granted":false`},
		{line: decision, old: `"granted":false`, new: `"granted":true`},
		{line: decision, old: `"ports":"tcp/443"`, new: `"ports":"443"`},
		{line: decision, old: `"blocked":"metadata"`, new: `"blocked":"because"`},
		{line: decision, old: `"upstream":"10.96.0.10:53"`, new: `"upstream":"10.96.0.10"`},
		{line: decision, old: `"latency_us":1834`, new: `"latency_us":-1`},
		{line: decision, old: `"pod":{`, new: `"pod":{"node":"x",`, later: true},
		{line: decision, old: `"rcode"`, new: `"extra":1,"rcode"`, later: true},
		{line: decision, old: `"match":"*.example.org"`, new: `"match":"*.example.org","index":1`, later: true},
		{line: limited, old: `"verdict":"refused"`, new: `"verdict":"allowed"`},
		{line: limited, old: `"limit":"types"`, new: `"limit":"type"`},
		{line: flow, old: `"count":2`, new: `"count":1`},
		{line: flow, old: `"count":2`, new: `"count":0`},
		{line: flow, old: `,"last":"2026-05-01T12:00:41.250000Z"`, new: ``},
		{line: flow, old: `"reason":"ports"`, new: `"reason":"address"`},
		{line: flow, old: `"reason":"ports"`, new: `"reason":"because"`},
		{line: flow, old: `"reason":"ports"`, new: `"reason":"rule"`},
		{line: byRule, old: `"reason":"rule"`, new: `"reason":"ports"`},
		{line: byRule, old: `"tier":"Admin",`, new: ``},
		{line: byRule, old: `"tier":"Admin"`, new: `"tier":"namespace"`},
		{line: byRule, old: `"rule":"pastes"`, new: `"rule":""`},
		{line: flow, old: `"port":8443`, new: `"port":0`},
		{line: flow, old: `"protocol":"tcp"`, new: `"protocol":"any"`},
		{line: flow, old: `"verdict":"denied"`, new: `"verdict":"allowed"`},
		{line: flow, old: `"name":"www.example.org"`, new: `"name":""`},
		{line: flow, old: `"direction":"egress",`, new: ``},
		{line: flow, old: `"direction":"egress"`, new: `"direction":"ingress"`},
		{line: flow, old: `"destination"`, new: `"source":{"address":"192.0.2.1"},"destination"`},
		{line: flow, old: `"reason":"ports"`, new: `"reason":"isolated"`},
		{line: through, old: `"traffic":"Forwarded"`, new: `"traffic":"All"`},
		{line: through, old: `"reason":"rule","tier":"Admin","policy":"nodenetworkpolicy:edge","rule":"rest"`, new: `"reason":"isolated"`},
		{line: through, old: `"source":{"address":"203.0.113.9"},`, new: ``},
		{line: wouldPass, old: `"reason":"rule","tier":"Admin","policy":"nodenetworkpolicy:edge","rule":"web"`, new: `"reason":"isolated"`},
		{line: toPod, old: `"direction":"ingress"`, new: `"direction":"in"`},
		{line: toPod, old: `"source":{"address":"10.244.2.9","pod":"lab/probe"},`, new: ``},
		{line: toPod, old: `"address":"10.244.2.9",`, new: ``},
		{line: toPod, old: `"verdict":"denied"`, new: `"verdict":"would-deny"`},
		{line: toPod, old: `"reason":"isolated"`, new: `"reason":"address"`},
		{line: fronted, old: `"tier":"Namespace",`, new: ``},
		{line: fronted, old: `"protocol":"tcp"`, new: `"protocol":"udp"`},
		{line: fronted, old: `"verdict":"denied"`, new: `"verdict":"would-deny"`},
		{line: fronted, old: `"reason":"serverName"`, new: `"reason":"expired"`},
		{line: fronted, old: `"server_name":"`, new: `"server_name":"` + strings.Repeat("x", 250)},
		{line: flow, old: `"reason"`, new: `"question":{},"reason"`, later: true},
	} {
		bad := strings.Replace(c.line, c.old, c.new, 1)
		if bad == c.line {
			t.Fatalf("there is no %s in %s", c.old, c.line)
		}
		if strict.Line([]byte(bad)) == nil {
			t.Errorf("%s for %s is taken", c.new, c.old)
		}
		if err := published.Line([]byte(bad)); (err == nil) != c.later {
			t.Errorf("%s for %s: by the published schema %v", c.new, c.old, err)
		}
	}
	if strict.Line([]byte(decision[:100])) == nil {
		t.Error("half a line is taken")
	}
}
