package print

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/golden"
)

// TestLinesGolden: lines for people and for programs.
func TestLinesGolden(t *testing.T) {
	dns := strings.Replace(consoletest.Line(7, "shop/front-1", "unmatched"), `"rcode"`,
		`"would":"allowed","matches":[{"policy":"shop/watch","path":"p","match":"*.x.test","audit":true}],"answers":[{"address":"192.0.2.1","granted":true},{"address":"10.1.0.9","granted":false,"blocked":"pod"},{"address":"192.0.2.2","granted":false}],"rcode"`, 1)
	failed := strings.Replace(consoletest.Line(8, "shop/a-pod-with-a-name-that-is-long-enough", "failed"), `"latency_us"`, `"error":"no upstream of zone . answered in 4s","latency_us"`, 1)
	counted := strings.Replace(consoletest.Line(9, "shop/cart-7d9f", "would-deny"), `"count":1`, `"count":1000,"last":"2026-05-01T12:00:50.25Z"`, 1)
	v6 := strings.Replace(strings.Replace(consoletest.Line(10, "shop/cart-7d9f", "denied"), `"203.0.113.7"`, `"2001:db8::7"`, 1), `"names"`, `"unnamed"`, 1)
	icmp := strings.Replace(strings.Replace(consoletest.Line(11, "shop/cart-7d9f", "denied"), `,"port":443`, "", 1), `"tcp"`, `"icmp"`, 1)
	kept := strings.Replace(consoletest.Line(12, "shop/cart-7d9f", "renewed"), `"rcode"`,
		`"matches":[{"policy":"shop/base","path":"p","match":"*.x.test"}],"answers":[{"address":"192.0.2.1","granted":true}],"rcode"`, 1)
	kept = strings.Replace(kept, `"protocol"`, `"renewed":"connection","protocol"`, 1)
	w := consoletest.New("node-1")
	w.Recent = []byte(consoletest.Line(0, "shop/cart-7d9f", "allowed") + dns + failed + counted + v6 + icmp + kept)
	for name, agents := range map[string][]client.Agent{"audit": {w.Agent("", serve.Everything{})}, "audit-nodes": {w.Agent("node-1", serve.Everything{}), w.Agent("node-2", serve.Everything{})}} {
		shows(t, name, func(p *Printer) error {
			_, err := (&client.Lines{Take: p.Line, Agents: func(context.Context) ([]client.Agent, error) { return agents, nil }}).Show(context.Background(), false)
			return err
		})
	}
}

// TestLinesExample: the lines that docs/commands.md shows.
func TestLinesExample(t *testing.T) {
	allowed := strings.Replace(consoletest.Line(0, "shop/cart-7d9f", "allowed"), `"rcode"`,
		`"matches":[{"policy":"shop/base","path":"p","match":"*.cdn.test"}],"answers":[{"address":"192.0.2.10","granted":true}],"rcode"`, 1)
	denied := strings.Replace(consoletest.Line(2, "shop/cart-7d9f", "denied"), `,{"name":"secret.pay.test","asked":"2026-05-01T11:59:00Z","pod":"pay/cart-7d9f"}`, "", 1)
	denied = strings.NewReplacer(`"another"`, `"unmatched"`, "own.test", "bank.test").Replace(denied)
	again := strings.Replace(denied, `"count":1`, `"count":11,"last":"2026-05-01T12:00:58Z"`, 1)
	again = strings.Replace(again, "12:00:02", "12:00:05", 1)
	body := strings.ReplaceAll(allowed, "x0.test", "a.cdn.test") + strings.Replace(consoletest.Line(1, "shop/cart-7d9f", "unmatched"), "x1.test", "bank.test", 1) + denied + again
	p, out, _ := printed(FormatTable, false)
	for line := range strings.Lines(body) {
		fatal.If(t, p.Line([]byte(line), false))
	}
	golden.Compare(t, "audit-example", out.String())
}

// TestLinesOfIngress: a line of a connection to a pod names its source.
func TestLinesOfIngress(t *testing.T) {
	for line, want := range map[string]string{
		consoletest.IngressLine: " tcp from 10.1.0.20 (pay/cart-7d9f) to 10.1.0.10:8080 - no NetworkPolicy allows it\n",
		strings.Replace(consoletest.IngressLine, `,"pod":"pay/cart-7d9f"`, "", 1): " tcp from 10.1.0.20 to 10.1.0.10:8080 - no NetworkPolicy allows it\n",
	} {
		p, out, _ := printed(FormatTable, false)
		if fatal.If(t, p.Line([]byte(line), false)); !strings.HasSuffix(out.String(), want) {
			t.Errorf("%s", out)
		}
	}
}

// TestLinesOfRules: a line of the log for people names the rule of a policy, or its tier.
func TestLinesOfRules(t *testing.T) {
	tierOf := map[string]string{"shop/base": "Namespace", "no-pastes": "Admin", "a cluster policy (Admin)": "Admin"}
	for policy, want := range map[string]string{
		"shop/base": "secret.pay.test (asked by pay/cart-7d9f) - by shop/base pastes\n",
		"no-pastes": "- by a rule of a cluster policy (Admin) no-pastes pastes\n", "a cluster policy (Admin)": "secret.pay.test (asked by pay/cart-7d9f) - by a cluster policy (Admin)\n",
	} {
		text := strings.Replace(consoletest.Line(1, "shop/cart-7d9f", "denied"), `"reason":"another"`, `"tier":"`+tierOf[policy]+`","policy":"`+policy+`","rule":"pastes","reason":"rule"`, 1)
		l, err := audit.ParseLine([]byte(text))
		fatal.If(t, err)
		if got := auditLine(&l, false, false); !strings.HasSuffix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestLinesOfServerNames: a line of a connection that the agent checked has the claimed name, escaped, and the rule.
func TestLinesOfServerNames(t *testing.T) {
	for reason, want := range map[string]string{
		`"serverName","server_name":"evil\u001b[31m.test","tier":"Namespace","policy":"shop/base","rule":"spec.egress[0]"`: "- it names no server that the rule allows (but \"evil\\x1b[31m.test\") - by shop/base spec.egress[0]\n",
		`"serverName","tier":"Admin","policy":"a cluster policy (Admin)"`:                                                  "- it names no server that the rule allows - by a cluster policy (Admin)\n",
		`"unchecked","tier":"Admin","policy":"checked","rule":"web"`:                                                       "- no agent checked its server name - by checked web\n",
		`"limit"`: "- the agent checks too many connections\n",
	} {
		text := strings.Replace(consoletest.Line(1, "shop/cart-7d9f", "denied"), `"reason":"another"`, `"reason":`+reason, 1)
		p, out, _ := printed(FormatTable, false)
		if fatal.If(t, p.Line([]byte(text), false)); !strings.HasSuffix(out.String(), want) {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}

// TestExamplesOfDocs: the examples in docs/commands.md have the actual output.
func TestExamplesOfDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/commands.md")
	fatal.If(t, err)
	for _, name := range []string{"pods.table", "grants.table", "explain-unmatched.table", "explain-from-peer.table", "audit-example"} {
		want, err := os.ReadFile(filepath.Join("testdata", name+".golden"))
		fatal.If(t, err)
		diff.Has(t, "\n"+string(want), string(text), "docs/commands.md does not show", name, "as it is printed", want)
	}
}

// TestFieldsOfDocs: docs/commands.md lists every field of the answers for programs,
// and no other.
func TestFieldsOfDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/commands.md")
	fatal.If(t, err)
	for heading, of := range map[string]reflect.Type{
		"### Fields of pods": reflect.TypeFor[console.PodRow](), "### Fields of grants": reflect.TypeFor[console.GrantRow](), "### Fields of an explanation": reflect.TypeFor[explain.Explanation](),
	} {
		_, section, found := strings.Cut(string(text), heading+"\n")
		if section, _, _ = strings.Cut(section, "\n#"); !found {
			t.Errorf("docs/commands.md has no %q", heading)
		}
		listed := map[string]bool{}
		for line := range strings.Lines(section) {
			if cell, ok := strings.CutPrefix(line, "| `"); ok {
				cell, _, _ = strings.Cut(cell, "` |")
				for _, field := range strings.Split(cell, "`, `") {
					listed[field] = true
				}
			}
		}
		wanted := map[string]bool{}
		fields(of, "", wanted)
		for f := range wanted {
			if !listed[f] {
				t.Errorf("%s does not list %s", heading, f)
			}
		}
		for f := range listed {
			if !wanted[f] {
				t.Errorf("%s lists %s, which there is not", heading, f)
			}
		}
	}
}

// fields gathers the fields of a type as they are in JSON: a.b, a[].b.
func fields(of reflect.Type, before string, into map[string]bool) {
	for i := range of.NumField() {
		f := of.Field(i)
		if !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		name = before + name
		t := f.Type
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Slice {
			name, t = name+"[]", t.Elem()
		}
		if t.Kind() == reflect.Struct && !t.Implements(reflect.TypeFor[json.Marshaler]()) {
			fields(t, name+".", into)
			continue
		}
		into[name] = true
	}
}
