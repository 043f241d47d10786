package print

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/stats"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestStatusIsDocumented: docs/operations.md has the actual output and explains the
// counters by their names in JSON.
func TestStatusIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	fatal.If(t, err)
	_, shown, _ := strings.Cut(string(text), "$ namegate status\n")
	shown, rest, _ := strings.Cut(shown, "```")
	var out strings.Builder
	p := &Printer{Out: &out, Format: FormatTable}
	quiet := console.Status{Node: "node-1", Version: "v0.1.0", Audit: &console.AuditStatus{}}
	fatal.If(t, p.Statuses([]console.Status{quiet}, true))
	lines := 0
	for line := range strings.Lines(out.String()) {
		name, _, found := strings.Cut(line, "  ")
		if lines++; !found || !strings.Contains("\n"+shown, "\n"+name+"  ") {
			t.Errorf("the status that docs/operations.md shows has no line as %q", line)
		}
	}
	if lines < 6 {
		t.Errorf("a status of %d lines:\n%s", lines, out.String())
	}
	for _, name := range []string{"answers", "prefetches", "followed", "too many", "denied", "audit lines"} {
		diff.Has(t, "\n| `"+name+"`", rest, "docs/operations.md does not explain", name)
	}
	wire, err := json.Marshal(stats.Proxy{})
	fatal.If(t, err)
	var counters map[string]any
	fatal.If(t, json.Unmarshal(wire, &counters))
	for _, name := range []string{"cacheHits", "cacheMisses", "cacheStale", "prefetches", "followed", "shedZone"} {
		if _, there := counters[name]; !there || !strings.Contains(rest, "`"+name+"`") {
			t.Errorf("docs/operations.md does not explain %s, or it is not told: %v", name, there)
		}
	}
}

// TestStatusOfAPolicyThatSelectsNothing: an unreadable subject is an error if rules of the policy
// deny or pass, with these rules, and else a problem.
func TestStatusOfAPolicyThatSelectsNothing(t *testing.T) {
	const no = "{matchExpressions: [{key: a, operator: in}]}"
	ours := func(spec string) compile.Input {
		return compile.Input{ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{policytest.ClusterPolicy(t, "p", spec)}}
	}
	ofNodes := func(spec string) compile.Input {
		return compile.Input{NodePolicies: []*v1alpha1.NodeNetworkPolicy{policytest.NodePolicy(t, "p", spec)}}
	}
	standard := func(spec string) compile.Input {
		u := &unstructured.Unstructured{}
		fatal.If(t, yaml.Unmarshal([]byte("{metadata: {name: p}, spec: "+spec+"}"), &u.Object))
		return compile.Input{ClusterNetworkPolicies: []*unstructured.Unstructured{u}}
	}
	namespaced := func(spec string) compile.Input {
		p := v1alpha1.FQDNNetworkPolicy{}
		p.Namespace, p.Name = "shop", "p"
		fatal.If(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
		return compile.Input{Policies: []*v1alpha1.FQDNNetworkPolicy{&p}}
	}
	for _, c := range []struct {
		in    compile.Input
		error string // the rules, "" for a problem
	}{
		{ours("{tier: Admin, priority: 1, subject: {namespaces: " + no + "}, egress: [{action: Accept}]}"), ""},
		{ours("{tier: Admin, priority: 1, enforcement: Audit, subject: {namespaces: " + no + "}, egress: [{action: Deny}]}"), ""},
		{ours("{tier: Admin, priority: 1, subject: {namespaces: " + no + "}, egress: [{action: Accept}, {action: Pass, matches: [{name: a.test}], networks: [192.0.2.0/24]}, {action: Deny}]}"),
			"spec.egress[1] (Pass), spec.egress[2] (Deny)"},
		{ours("{tier: Admin, subject: {namespaces: {}}, egress: [{action: Log}]}"), "spec.egress[0] (Deny)"},
		{ofNodes("{nodeSelector: {}, priority: 1, egress: [{action: Deny}]}"), "spec.egress[0] (Deny)"},
		{ours("{tier: Admin, priority: 1, subject: {namespaces: " + no + "}, egress: [" + strings.Repeat("{action: Deny}, ", 10) + "]}"), "spec.egress[7] (Deny) and 2 more"},
		{standard("{tier: Admin, priority: 1, subject: {namespaces: " + no + "}, egress: [{action: Accept, to: [{nodes: {}}]}]}"), ""},
		{standard("{tier: Admin, priority: 1, subject: {namespaces: " + no + "}, egress: [{action: Deny, to: [{nodes: {}}]}]}"), "spec.egress[0] (Deny)"},
		{standard("{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: {action: Deny}}"), "spec.egress (Deny)"},
		{namespaced("{podSelector: " + no + ", egress: [{matches: [{name: a.test}]}]}"), ""},
		{namespaced("{podSelector: " + no + ", dns: {encrypted: Deny}}"), "spec.dns.encrypted (Deny)"},
	} {
		problems := compile.New().Compile(c.in).Problems
		got := Findings(&console.Status{Problems: problems})
		if len(got) == 0 {
			t.Fatalf("%q: %+v", c.error, problems)
		}
		want := Finding{"problem", "until this is fixed"}
		if c.error != "" {
			want = Finding{"error", ", which leaves open what these rules close: "}
		}
		if accepted, _, message := policy.Acceptance(problems); got[0].What != want.What || !strings.Contains(got[0].Message, want.Message) || !strings.HasSuffix(got[0].Message, c.error) || accepted || !strings.Contains(message, c.error) {
			t.Errorf("%q: %+v, accepted %v %s", c.error, got, accepted, message)
		}
	}
}
