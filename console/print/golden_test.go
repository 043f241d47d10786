package print

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/golden"
)

// each format, once with colours.
var formats = []string{FormatTable, FormatWide, FormatJSON, FormatYAML, "colour"}

// shows runs show for every format and compares with golden files.
func shows(t *testing.T, name string, show func(*Printer) error) {
	t.Helper()
	for _, format := range formats {
		p, out, warn := printed(format, false)
		if format == "colour" {
			p.Format, p.Colour = FormatTable, true
		}
		if err := show(p); err != nil {
			fmt.Fprintf(out, "# ends with %T: %v\n", err, err)
		}
		for line := range strings.Lines(warn.String()) {
			fmt.Fprintf(out, "# warns: %s", line)
		}
		golden.Compare(t, name+"."+format, out.String())
	}
}

// printed returns a printer and its output.
func printed(format string, colour bool) (*Printer, *bytes.Buffer, *bytes.Buffer) {
	var out, warn bytes.Buffer
	return &Printer{Out: &out, Warn: &warn, Format: format, Colour: colour, Now: consoletest.Clock}, &out, &warn
}

func twoNodes(t *testing.T) []client.Agent {
	second := consoletest.New("node-2")
	second.Open, second.Flows, second.Trouble = second.Open[:1], nil, nil
	return []client.Agent{consoletest.New("node-1").Agent("node-1", serve.Everything{}), second.Agent("node-2", serve.Everything{}), consoletest.Away("node-3")}
}

func TestPodsGolden(t *testing.T) { showsNodes(t, "pods", console.PodsPath, (*Printer).Pods) }

func TestGrantsGolden(t *testing.T) { showsNodes(t, "grants", console.GrantsPath, (*Printer).Grants) }

// showsNodes shows what the agents of one node, and of two and a node that is away, reply.
func showsNodes[T any](t *testing.T, what, path string, show func(*Printer, []T, int) error) {
	for name, agents := range map[string][]client.Agent{what: {consoletest.New("node-1").Agent("", serve.Everything{})}, what + "-nodes": twoNodes(t)} {
		shows(t, name, func(p *Printer) error {
			answers, failed, err := client.Gather[T](context.Background(), agents, path, nil)
			if err != nil {
				return err
			}
			if err := show(p, answers, len(agents)); err != nil {
				return err
			}
			return p.Failed(failed)
		})
	}
}

func TestStatusGolden(t *testing.T) {
	w := consoletest.New("node-1")
	w.Status = consoletest.Busy()
	for name, agents := range map[string][]client.Agent{"status": {w.Agent("", serve.Everything{})}, "status-nodes": append(twoNodes(t)[1:], w.Agent("node-1", serve.Everything{}))} {
		shows(t, name, func(p *Printer) error {
			answers, failed, err := client.Gather[console.Status](context.Background(), agents, console.StatusPath, nil)
			if err != nil {
				return err
			}
			out := p.Out.(*bytes.Buffer)
			if err := p.Statuses(answers, len(agents) == 1); err != nil {
				return err
			}
			text := withoutTotals(out.String())
			out.Reset()
			out.WriteString(text)
			return p.Failed(failed)
		})
	}
}

// TestClusterStatusGolden: what the API server knows of nodes and policies.
func TestClusterStatusGolden(t *testing.T) {
	shows(t, "status-cluster", func(p *Printer) error {
		return p.ClusterStatus(&console.ClusterStatus{
			Nodes: []console.NodeReport{
				{Node: "node-a", Version: "v1", InSync: true, Enforce: console.EnforceAll, Renewed: consoletest.Noon.Add(-12 * time.Second)},
				{Node: "node-b", Version: "v1", Enforce: console.EnforceSelected, Renewed: consoletest.Noon}, {Node: "node-c", Renewed: consoletest.Noon.Add(-time.Hour), Silent: true},
			},
			Problems: []console.PolicyCondition{
				{Kind: "FQDNNetworkPolicy", Namespace: "shop", Name: "base", Condition: "Accepted=False", Reason: "Invalid", Message: "a bell \a"},
				{Kind: "ClusterFQDNNetworkPolicy", Name: "rest", Condition: "Enforced=False", Reason: "NotSeen", Message: "netfilter does not see a pod"},
			},
			Left: []string{"clusternetworkpolicies.policy.networking.k8s.io"},
		})
	})
}

// withoutTotals leaves out the counters below "proxy" and "enforcer" in JSON, whose names
// describe them.
func withoutTotals(text string) string {
	var b strings.Builder
	skip := -1 // deeper lines are left out
	for line := range strings.Lines(text) {
		word := strings.TrimLeft(line, " -\"")
		depth := len(line) - len(strings.TrimLeft(line, " -"))
		if skip >= 0 && depth > skip {
			continue
		}
		skip = -1
		if strings.HasPrefix(word, "proxy:") || strings.HasPrefix(word, "enforcer:") || strings.HasPrefix(word, `proxy":`) || strings.HasPrefix(word, `enforcer":`) {
			skip = depth
		}
		b.WriteString(line)
	}
	return b.String()
}

func TestExplainGolden(t *testing.T) {
	healthy, failing, unread := consoletest.New("node-1"), consoletest.New("node-1"), consoletest.New("node-1")
	cluster := consoletest.ClusterWorld("198.51.100.0/24")
	cluster.Trouble = nil
	unread.Unread, unread.Trouble = "they are being read", nil
	healthy.Trouble, failing.Failing = nil, "the kernel is full"
	for name, c := range map[string]struct {
		pod, to string
		viewer  serve.Viewer
		exit    int
	}{
		"explain-open":      {"shop/cart-7d9f", "www.example.org:443", serve.Everything{}, 0},
		"explain-in-use":    {"shop/cart-7d9f", "[2001:db8::6]:443", serve.Everything{}, 0},
		"explain-unmatched": {"shop/cart-7d9f", "bank.test:443", serve.Everything{}, console.ExitNo},
		"explain-address":   {"shop/cart-7d9f", "203.0.113.7:443", serve.Everything{}, console.ExitNo},
		"explain-hidden":    {"shop/cart-7d9f", "203.0.113.7:443", consoletest.Some{"shop"}, console.ExitNo},
		"explain-audit":     {"shop/front-1", "www.example.org", serve.Everything{}, 0},
		"explain-free":      {"shop/batch", "192.0.2.1/icmp", serve.Everything{}, 0},
		"explain-far":       {"shop/far", "www.example.org", serve.Everything{}, console.ExitUnknown},
		"explain-host":      {"logs", "www.example.org", serve.Everything{}, 0},
		"explain-service":   {"shop/cart-7d9f", "10.96.0.20:5432", serve.Everything{}, 0},
		"explain-peer":      {"shop/cart-7d9f", "db-admin.shop.svc.cluster.local:80", serve.Everything{}, console.ExitNo},
		"explain-unseen":    {"shop/cart-7d9f", "10.2.0.30:80", consoletest.Some{"shop"}, console.ExitNo},
		"explain-cluster":   {"shop/cart-7d9f", "x.paste.test:443", serve.Everything{}, console.ExitNo},
		"explain-tier":      {"shop/cart-7d9f", "x.paste.test:443", consoletest.Some{"shop"}, console.ExitNo},
		"explain-unread":    {"shop/cart-7d9f", "10.2.0.99:5432", serve.Everything{}, console.ExitUnknown},
		"explain-from":      {"shop/cart-7d9f", "8080 from pay/ledger-0", serve.Everything{}, console.ExitNo},
		"explain-from-peer": {"shop/cart-7d9f", "8080 from db-0", serve.Everything{}, 0},
	} {
		w := healthy
		switch name {
		case "explain-free", "explain-open":
			w = failing
		case "explain-cluster", "explain-tier":
			w = cluster
		case "explain-unread":
			w = unread
		}
		a := w.Agent("", c.viewer)
		shows(t, name, func(p *Printer) error {
			question := url.Values{"pod": {c.pod}, "to": {c.to}}
			if port, from, is := strings.Cut(c.to, " from "); is {
				question = url.Values{"pod": {c.pod}, "port": {port}, "from": {from}}
			}
			answers, _, err := client.Gather[explain.Explanation](context.Background(), []client.Agent{a}, console.ExplainPath, question)
			if err != nil {
				return err
			}
			err = p.Explained(&answers[0])
			diff.Equal(t, c.exit, console.ExitCode(err), name, "exit code")
			return nil
		})
	}
}

var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestColours: colours come only from the table: text in policies and pods cannot move
// the cursor.
func TestColours(t *testing.T) {
	w := consoletest.New("node-1")
	w.Status = consoletest.Busy()
	p, out, _ := printed(FormatTable, true)
	answers, _, err := client.Gather[console.Status](context.Background(), []client.Agent{w.Agent("", serve.Everything{})}, console.StatusPath, nil)
	fatal.If(t, err)
	fatal.If(t, p.Statuses(answers, true))
	if len(sgr.FindAllString(out.String(), -1)) < 10 {
		t.Error("the table has no colours")
	}
	rest := sgr.ReplaceAllString(out.String(), "")
	if strings.ContainsAny(rest, "\x1b\a") || !strings.Contains(rest, `a bell \a and \x1b[31mred`) {
		t.Errorf("the message of a policy reaches the terminal as it is:\n%q", rest)
	}
}

// TestColumns: each column begins at the same place in all lines.
func TestColumns(t *testing.T) {
	table := table{Head: []string{"A", "B", "C"}}
	table.add(cell{"é", red}, cell{"", plain}, cell{"x", green})
	table.add(cell{"long word", plain}, cell{"b", plain}, cell{"y", plain})
	var columns [][]int
	for _, colour := range []bool{false, true} {
		var out strings.Builder
		fatal.If(t, table.print(&out, colour))
		for line := range strings.Lines(sgr.ReplaceAllString(out.String(), "")) {
			diff.Equal(t, strings.TrimRight(line, "\n"), strings.TrimRight(line, " \n"), "spaces at the end")
			var at []int
			for i, r := range []rune(line) {
				if r != ' ' && r != '\n' && (i == 0 || i > 1 && string([]rune(line)[i-2:i]) == "  ") {
					at = append(at, i)
				}
			}
			columns = append(columns, at)
		}
	}
	if len(columns) != 6 || slices.ContainsFunc(columns, func(c []int) bool { return !slices.Equal(c, []int{0, 11, 14}) }) {
		t.Errorf("columns begin at %v", columns)
	}
}

// TestFailedAgentsAreReported: of the others' failures each is a warning, and the first decides
// the exit code.
func TestFailedAgentsAreReported(t *testing.T) {
	p, _, warn := printed(FormatTable, false)
	err := p.Failed([]*console.Failure{{Node: "node-4", Err: consoletest.ErrAway}, {Node: "node-3", Err: console.Refuse(http.StatusForbidden, "you may not\x1b[2J")}})
	want := "namegate: node-4: no agent answers at 192.0.2.2:9954\nnamegate: node-3: you may not\\x1b[2J\n"
	if warn.String() != want || console.ExitCode(err) != console.ExitUnreachable {
		t.Errorf("%q, %v", warn, err)
	}
	if err := p.Failed(nil); err != nil {
		t.Errorf("nobody failed: %v", err)
	}
}
