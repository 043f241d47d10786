package compile

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestBadNetworkPolicies has invalid parts, the position in their message, and the parts
// that still work.
func TestBadNetworkPolicies(t *testing.T) {
	const good, bad = "10.1.0.1 tcp 5432", "198.51.100.7 tcp 443"
	for name, test := range map[string]struct {
		spec     string
		problems []string // the beginnings of "REASON PATH: MESSAGE"
		open     []string
	}{
		"podSelector":       {spec: `{podSelector: {matchLabels: {"a b": c}}, egress: [{}]}`, problems: []string{"Invalid spec.podSelector: key: Invalid value"}},
		"policyTypes":       {spec: `{policyTypes: [egress], egress: [{}]}`, problems: []string{`PartiallyInvalid spec.policyTypes[0]: "egress" is unknown`}},
		"another type":      {spec: `{policyTypes: [All, Egress], egress: [{}]}`, problems: []string{"PartiallyInvalid spec.policyTypes[0]"}, open: []string{good, bad}},
		"only bad entries":  {spec: `egress: [{to: [{}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].to[0]: the entry names nothing"}},
		"one bad entry":     {spec: `egress: [{to: [{}, {podSelector: {}}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].to[0]"}, open: []string{good}},
		"both":              {spec: `egress: [{to: [{podSelector: {}, ipBlock: {cidr: 0.0.0.0/0}}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].to[0]: ipBlock stands beside"}},
		"peer's pods":       {spec: `egress: [{to: [{podSelector: {matchExpressions: [{key: a, operator: In}]}}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].to[0].podSelector: values"}},
		"peer's namespaces": {spec: `egress: [{}, {to: [{namespaceSelector: {matchLabels: {a: "b c"}}}]}]`, problems: []string{"PartiallyInvalid spec.egress[1].to[0].namespaceSelector: values"}, open: []string{good, bad}},
		"no CIDR":           {spec: `egress: [{to: [{ipBlock: {cidr: 198.51.100.7}}]}]`, problems: []string{`PartiallyInvalid spec.egress[0].to[0].ipBlock.cidr: "198.51.100.7" is no network`}},
		"leading zeros":     {spec: `egress: [{to: [{ipBlock: {cidr: 198.051.100.0/24}}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].to[0].ipBlock.cidr"}},
		"v4-mapped":         {spec: `egress: [{to: [{ipBlock: {cidr: "::ffff:198.51.100.0/120"}}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].to[0].ipBlock.cidr: \"::ffff:198.51.100.0/120\" is an IPv4"}},
		"except outside": {spec: `egress: [{to: [{ipBlock: {cidr: 198.51.100.0/24, except: [198.51.100.0/30, 192.0.2.0/24]}}, {ipBlock: {cidr: 10.1.0.0/16}}]}]`,
			problems: []string{"PartiallyInvalid spec.egress[0].to[0].ipBlock.except[1]: 192.0.2.0/24 is not inside 198.51.100.0/24"}, open: []string{good}},
		"except is wider":        {spec: `egress: [{to: [{ipBlock: {cidr: 198.51.100.0/24, except: [198.51.100.0/23]}}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].to[0].ipBlock.except[0]"}},
		"except of other family": {spec: `egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: ["2001:db8::/32"]}}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].to[0].ipBlock.except[0]"}},
		"except is all":          {spec: `egress: [{to: [{ipBlock: {cidr: 198.51.100.1/24, except: [198.51.100.9/24]}}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].to[0].ipBlock.except[0]: 198.51.100.9/24 leaves nothing"}},
		"except unreadable":      {spec: `egress: [{to: [{ipBlock: {cidr: 198.51.100.0/24, except: [x]}}]}]`, problems: []string{`PartiallyInvalid spec.egress[0].to[0].ipBlock.except[0]: "x" is no network`}},
		"both unreadable": {spec: `egress: [{to: [{ipBlock: {cidr: y, except: [x, 10.0.0.0/8]}}]}]`,
			problems: []string{"PartiallyInvalid spec.egress[0].to[0].ipBlock.cidr", "PartiallyInvalid spec.egress[0].to[0].ipBlock.except[0]"}},
		"protocol":            {spec: `egress: [{ports: [{protocol: tcp}, {port: 5432}]}]`, problems: []string{`PartiallyInvalid spec.egress[0].ports[0].protocol: "tcp" is unknown`}, open: []string{good}},
		"only bad ports":      {spec: `egress: [{ports: [{port: 0}, {port: 65536}, {port: -1}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].ports[0].port: 0 is no port", "PartiallyInvalid spec.egress[0].ports[1].port", "PartiallyInvalid spec.egress[0].ports[2].port"}},
		"endPort alone":       {spec: `egress: [{ports: [{endPort: 9}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].ports[0].endPort: endPort 9 stands alone"}},
		"endPort below":       {spec: `egress: [{ports: [{port: 500, endPort: 9}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].ports[0].endPort: endPort 9 is below port 500"}},
		"endPort too big":     {spec: `egress: [{ports: [{port: 1, endPort: 65536}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].ports[0].endPort: 65536 is no port"}},
		"endPort zero":        {spec: `egress: [{ports: [{port: 1, endPort: 0}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].ports[0].endPort: 0 is no port"}},
		"name and range":      {spec: `egress: [{ports: [{port: sql, endPort: 9}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].ports[0].endPort: a range begins with a number"}},
		"number as text":      {spec: `egress: [{ports: [{port: "5432"}]}]`, problems: []string{`PartiallyInvalid spec.egress[0].ports[0].port: "5432" is no name of a port`}},
		"name of a name":      {spec: `egress: [{ports: [{port: "sql of anywhere"}]}]`, problems: []string{"PartiallyInvalid spec.egress[0].ports[0].port"}},
		"ingress is not ours": {spec: `{policyTypes: [Ingress], egress: [{ports: [{port: 0}]}], ingress: [{ports: [{port: 0}]}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := New().Compile(besideInput(shopCluster(), aNet(t, "np", test.spec)))
			for i, p := range s.Problems {
				got := fmt.Sprintf("%s %s: %s", p.Reason, p.Path, p.Message)
				if p.Object != "networkpolicy shop/np" || i >= len(test.problems) || !strings.HasPrefix(got, test.problems[i]) {
					t.Errorf("problem %d: %s %s", i, p.Object, got)
				}
			}
			diff.Equal(t, len(test.problems), len(s.Problems), "problems")
			diff.Error(t, test.open, append([]string(nil), allows(s, good, bad)...), "open")
		})
	}
}

// TestNetworkPolicyGivenTwice: the first counts, in whatever order they were seen before.
func TestNetworkPolicyGivenTwice(t *testing.T) {
	c := New()
	open, closed := aNet(t, "np", `egress: [{}]`), aNet(t, "np", `policyTypes: [Egress]`)
	for i, in := range []Input{besideInput(nil, open, closed), besideInput(nil, closed, open), besideInput(nil, open, closed, nil)} {
		s := c.Compile(in)
		if len(s.Views[0].PeerRules()) != 1-i%2 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Message, "given twice") {
			t.Errorf("%d: %v, problems %v", i, ruleTexts(s.Views[0]), problemTexts(s))
		}
	}
}

// TestDocumentedBadInput compares the table of the document with the messages.
func TestDocumentedBadInput(t *testing.T) {
	text, err := os.ReadFile("../../docs/networkpolicy.md")
	fatal.If(t, err)
	_, part, _ := strings.Cut(string(text), "\n## Bad input\n")
	rows := 0
	for line := range strings.Lines(part) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != 2 {
			continue
		}
		rows++
		written, said := strings.Trim(cells[0], " `"), strings.TrimSpace(cells[1])
		n := aNet(t, "np", "{}")
		if strings.HasPrefix(written, "metadata: ") {
			fatal.If(t, yaml.UnmarshalStrict([]byte(written), n))
			n.Namespace = "shop"
		} else {
			n = aNet(t, "np", written)
		}
		s := New().Compile(besideInput(nil, n))
		var got []string
		for _, p := range s.Problems {
			got = append(got, p.Path+": "+p.Message)
		}
		diff.Equal(t, said, strings.Join(got, "; "), written, "in the document (want)")
	}
	if rows < 3 {
		t.Errorf("%d rows", rows)
	}
}
