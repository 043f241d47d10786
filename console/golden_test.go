package console

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/testkit/fatal"
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
		golden(t, name+"."+format, out.String())
	}
}

func twoNodes(t *testing.T) []Agent {
	second := newWorld(t, "node-2")
	second.open, second.flows, second.trouble = second.open[:1], nil, nil
	return []Agent{agentOf("node-1", newWorld(t, "node-1"), Everything{}), agentOf("node-2", second, Everything{}), &agent{node: "node-3", err: errAway}}
}

func TestPodsGolden(t *testing.T) { showsNodes(t, "pods", PodsPath, (*Printer).Pods) }

func TestGrantsGolden(t *testing.T) { showsNodes(t, "grants", GrantsPath, (*Printer).Grants) }

// showsNodes shows what the agents of one node, and of two and a node that is away, reply.
func showsNodes[T any](t *testing.T, what, path string, show func(*Printer, []Reply[T], int) error) {
	for name, agents := range map[string][]Agent{what: {agentOf("", newWorld(t, "node-1"), Everything{})}, what + "-nodes": twoNodes(t)} {
		shows(t, name, func(p *Printer) error {
			replies, failed, err := Gather[T](context.Background(), agents, path, nil)
			if err != nil {
				return err
			}
			if err := show(p, replies, len(agents)); err != nil {
				return err
			}
			return p.Failed(failed)
		})
	}
}

func TestStatusGolden(t *testing.T) {
	w := newWorld(t, "node-1")
	w.status = busy()
	for name, agents := range map[string][]Agent{"status": {agentOf("", w, Everything{})}, "status-nodes": append(twoNodes(t)[1:], agentOf("node-1", w, Everything{}))} {
		shows(t, name, func(p *Printer) error {
			replies, failed, err := Gather[Status](context.Background(), agents, StatusPath, nil)
			if err != nil {
				return err
			}
			out := p.Out.(*bytes.Buffer)
			if err := p.Statuses(replies); err != nil {
				return err
			}
			text := withoutTotals(out.String())
			out.Reset()
			out.WriteString(text)
			return p.Failed(failed)
		})
	}
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
	healthy, failing, unread := newWorld(t, "node-1"), newWorld(t, "node-1"), newWorld(t, "node-1")
	cluster := clusterWorld(t, "198.51.100.0/24")
	cluster.trouble = nil
	unread.unread, unread.trouble = "they are being read", nil
	healthy.trouble, failing.failing = nil, "the kernel is full"
	for name, c := range map[string]struct {
		pod, to string
		viewer  Viewer
		exit    int
	}{
		"explain-open":      {"shop/cart-7d9f", "www.example.org:443", Everything{}, 0},
		"explain-in-use":    {"shop/cart-7d9f", "[2001:db8::6]:443", Everything{}, 0},
		"explain-unmatched": {"shop/cart-7d9f", "bank.test:443", Everything{}, ExitNo},
		"explain-address":   {"shop/cart-7d9f", "203.0.113.7:443", Everything{}, ExitNo},
		"explain-hidden":    {"shop/cart-7d9f", "203.0.113.7:443", some{"shop"}, ExitNo},
		"explain-audit":     {"shop/front-1", "www.example.org", Everything{}, 0},
		"explain-free":      {"shop/batch", "192.0.2.1/icmp", Everything{}, 0},
		"explain-far":       {"shop/far", "www.example.org", Everything{}, ExitUnknown},
		"explain-host":      {"logs", "www.example.org", Everything{}, 0},
		"explain-service":   {"shop/cart-7d9f", "10.96.0.20:5432", Everything{}, 0},
		"explain-peer":      {"shop/cart-7d9f", "db-admin.shop.svc.cluster.local:80", Everything{}, ExitNo},
		"explain-unseen":    {"shop/cart-7d9f", "10.2.0.30:80", some{"shop"}, ExitNo},
		"explain-cluster":   {"shop/cart-7d9f", "x.paste.test:443", Everything{}, ExitNo},
		"explain-tier":      {"shop/cart-7d9f", "x.paste.test:443", some{"shop"}, ExitNo},
		"explain-unread":    {"shop/cart-7d9f", "10.2.0.99:5432", Everything{}, ExitUnknown},
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
		a := agentOf("", w, c.viewer)
		shows(t, name, func(p *Printer) error {
			replies, _, err := Gather[explain.Explanation](context.Background(), []Agent{a}, ExplainPath, url.Values{"pod": {c.pod}, "to": {c.to}})
			if err != nil {
				return err
			}
			err = p.Explained(&replies[0].Value)
			if got := ExitCode(err); got != c.exit {
				t.Errorf("%s: exit code %d, want %d", name, got, c.exit)
			}
			return nil
		})
	}
}

var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestColours: colours come only from the table: text in policies and pods cannot move
// the cursor.
func TestColours(t *testing.T) {
	w := newWorld(t, "node-1")
	w.status = busy()
	p, out, _ := printed(FormatTable, true)
	replies, _, err := Gather[Status](context.Background(), []Agent{agentOf("", w, Everything{})}, StatusPath, nil)
	fatal.If(t, err)
	fatal.If(t, p.Statuses(replies))
	if len(sgr.FindAllString(out.String(), -1)) < 10 {
		t.Error("the table has no colours")
	}
	rest := sgr.ReplaceAllString(out.String(), "")
	if strings.ContainsAny(rest, "\x1b\a") || !strings.Contains(rest, `a bell \a and \x1b[31mred`) {
		t.Errorf("the message of a policy reaches the terminal as it is:\n%q", rest)
	}
}

func TestSafe(t *testing.T) {
	for text, want := range map[string]string{
		"www.example.org": "www.example.org", "": "", "Bücher ×": "Bücher ×", "a\nb\tc": `a\nb\tc`, "\u202egnp.exe": `\u202egnp.exe`,
		"\u009b31m": `\u009b31m`, "x\xffy": `x\ufffdy`, "a\u00a0b": `a\u00a0b`,
	} {
		if got := safe(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

// TestColumns: each column begins at the same place in all lines.
func TestColumns(t *testing.T) {
	table := Table{Head: []string{"A", "B", "C"}}
	table.add(Cell{"é", Red}, Cell{"", Plain}, Cell{"x", Green})
	table.add(Cell{"long word", Plain}, Cell{"b", Plain}, Cell{"y", Plain})
	var columns [][]int
	for _, colour := range []bool{false, true} {
		var out strings.Builder
		fatal.If(t, table.print(&out, colour))
		for line := range strings.Lines(sgr.ReplaceAllString(out.String(), "")) {
			if strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") {
				t.Errorf("spaces at the end of %q", line)
			}
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
