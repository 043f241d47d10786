package manifest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fields"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// section returns the part of the document of semantics below a heading.
func section(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/semantics.md")
	fatal.If(t, err)
	_, rest, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/semantics.md has no section %q", heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

// table returns the cells of the first table of a section, its heading first,
// without the marks of code.
func table(t *testing.T, heading string) [][]string {
	t.Helper()
	var rows [][]string
	for line := range strings.Lines(section(t, heading)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.Trim(cell, " `"))
		}
		if !strings.HasPrefix(cells[0], "---") {
			rows = append(rows, cells)
		}
	}
	if len(rows) < 2 {
		t.Fatalf("the section %q has no table", heading)
	}
	return rows
}

const specHead = "apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: p}\nspec:\n  podSelector: {}\n  "

// compiled returns the view of a pod that a policy with that spec selects.
func compiled(t *testing.T, spec string) *policy.View {
	t.Helper()
	objects, err := decode(t, "", "p.yaml", specHead+spec+"\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\n")
	fatal.If(t, err, spec)
	in := compile.Input{Pods: []policy.Pod{*objects[1].Pod}}
	in.Policies = append(in.Policies, objects[0].Policy)
	return compile.New().Compile(in).Views[0]
}

func TestSemanticsExamples(t *testing.T) {
	text, err := os.ReadFile("../../docs/semantics.md")
	fatal.If(t, err)
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) < 4 {
		t.Fatalf("%d examples", len(blocks))
	}
	for i, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		objects, err := decode(t, "", "p.yaml", block)
		if err != nil || len(objects) == 0 {
			t.Errorf("example %d: %d objects, %v", i, len(objects), err)
		}
		for _, o := range objects {
			if o.Policy != nil && fqdnnp.Validate(o.Policy) != nil {
				t.Errorf("example %d: %v", i, fqdnnp.Validate(o.Policy))
			}
		}
	}
}

// TestSemanticsDefaults: the first example spells out what counts without it.
func TestSemanticsDefaults(t *testing.T) {
	text, err := os.ReadFile("../../docs/semantics.md")
	fatal.If(t, err)
	_, example, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	long, spelled, found := strings.Cut(example, "  enforcement:")
	if !found || !strings.Contains(spelled, "graceSeconds") {
		t.Fatal("the first example spells out nothing")
	}
	views := map[string]*policy.View{}
	for _, manifest := range []string{example, long} {
		objects, err := decode(t, "", "p.yaml", manifest+"---\n"+podWeb)
		fatal.If(t, err)
		in := compile.Input{Pods: []policy.Pod{*objects[1].Pod}}
		in.Policies = append(in.Policies, objects[0].Policy)
		views[manifest] = compile.New().Compile(in).Views[0]
	}
	a, b := views[example], views[long]
	if a.Enforced != b.Enforced || a.Denied != b.Denied || a.Unmatched != b.Unmatched || a.Rules.Namespace[0].TTL != b.Rules.Namespace[0].TTL {
		t.Errorf("%+v is not %+v", a, b)
	}
}

func TestSemanticsNames(t *testing.T) {
	rows := table(t, "Names")
	for _, row := range rows[1:] {
		view := compiled(t, "egress: [{matches: [{"+row[0]+"}]}]")
		for i, text := range rows[0][1:] {
			n, err := fqdn.ParseName(text)
			fatal.If(t, err)
			if got := view.Decide(n).Allowed(); got != (row[i+1] == "yes") {
				t.Errorf("%s matches %s: %v, the table says %s", row[0], text, got, row[i+1])
			}
		}
	}
}

func TestSemanticsPorts(t *testing.T) {
	for _, row := range table(t, "Ports")[1:] {
		ports := ", ports: [" + row[0] + "]"
		if row[0] == "no ports" {
			ports = ""
		}
		got := compiled(t, "egress: [{matches: [{name: a.test}]"+ports+"}]").PortSets()
		if len(got) != 1 || string(got[0]) != row[1] {
			t.Errorf("%s opens %q, the table says %s", row[0], got, row[1])
		}
	}
}

func TestSemanticsTTL(t *testing.T) {
	n, err := fqdn.ParseName("a.test")
	fatal.If(t, err)
	d := compiled(t, "egress: [{matches: [{name: a.test}]}]").Decide(n)
	for _, row := range table(t, "How long an address is open")[1:] {
		ttl, err := strconv.ParseUint(row[0], 10, 32)
		fatal.If(t, err)
		want, err := time.ParseDuration(row[1])
		fatal.If(t, err)
		diff.Equal(t, want, d.Openings(uint32(ttl))[0].Lifetime, "lifetime of a TTL of", ttl)
	}
}

// badInput are further invalid parts, with their messages.
var badInput = [][]string{
	{`ttl: {reuseSeconds: 0}`, `spec.ttl.reuseSeconds: 0 seconds; write 1 to 604800 (the default 86400 counts)`},
	{`ttl: {inUse: renew}`, `spec.ttl.inUse: "renew" is unknown; write Renew or Expire (it counts as Expire)`},
}

func TestSemanticsBadInput(t *testing.T) {
	for _, row := range append(table(t, "Bad input")[1:], badInput...) {
		spec := row[0]
		switch field, _, _ := strings.Cut(row[0], ":"); field {
		case "matches":
			spec = "egress: [{" + row[0] + "}]"
		case "ports":
			spec = "egress: [{matches: [{name: a.test}], " + row[0] + "}]"
		}
		objects, err := decode(t, "", "p.yaml", specHead+spec+"\n")
		if err != nil {
			t.Errorf("%s: %v", row[0], err)
			continue
		}
		problems := fqdnnp.Validate(objects[0].Policy)
		if len(problems) != 1 || problems[0].Reason != policy.ReasonPartiallyInvalid {
			t.Errorf("%s: %v", row[0], problems)
			continue
		}
		if got := fmt.Sprintf("%s: %s", problems[0].Path, problems[0].Message); got != row[1] {
			t.Errorf("%s\n says %s\nnot %s", row[0], got, row[1])
		}
	}
}

// TestSemanticsFigures: the times and limits in the text are the code's.
func TestSemanticsFigures(t *testing.T) {
	for heading, figures := range map[string][]string{
		"Without Kubernetes": {"nothing has changed for " + fmt.Sprintf("%d ms", QuietDelay.Milliseconds()),
			fmt.Sprintf("latest %d s after", int(MostDelay.Seconds())), fmt.Sprintf("every %d s", int(RescanPeriod.Seconds()))},
		"Several policies": {fmt.Sprintf("%d matches, %d labels", compile.MaxViewMatches, compile.MaxViewLabels),
			fmt.Sprintf("%d different port sets", compile.MaxViewPortSets)},
		"How long an address is open": {fmt.Sprintf("1 to %d (a week)", fields.MaxTTLSeconds), fmt.Sprintf("1 to %d (a day)", fields.MaxGraceSeconds)},
	} {
		for _, figure := range figures {
			diff.Has(t, figure, section(t, heading), "the section", heading, "does not say")
		}
	}
}
