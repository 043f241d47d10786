package serve_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/print"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestQuestionsAboutNodes: a node is for callers who may get the cluster kind, and its own agent
// answers.
func TestQuestionsAboutNodes(t *testing.T) {
	ask := func(v serve.Viewer, path, node string) error {
		a := consoletest.New("node-1").Agent("", v)
		query := url.Values{"node": {node}, "to": {"www.example.org:443"}}
		if path == console.GrantsPath {
			_, _, err := client.Gather[console.GrantRow](context.Background(), []client.Agent{a}, path, query)
			return err
		}
		answers, _, err := client.Gather[explain.Explanation](context.Background(), []client.Agent{a}, path, query)
		if err == nil && (answers[0].Pod != "node node-1" || answers[0].Reason != "no policy selects the node: everything is allowed") {
			t.Errorf("%+v", answers[0])
		}
		return err
	}
	for _, path := range []string{console.ExplainPath, console.GrantsPath} {
		if err := ask(serve.Everything{}, path, "node-1"); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for status, err := range map[int]error{http.StatusForbidden: ask(consoletest.Some{"shop"}, path, "node-1"), http.StatusNotFound: ask(serve.Everything{}, path, "node-2")} {
			var r *console.Refusal
			if !errors.As(err, &r) || r.Status != status {
				t.Errorf("%s: %v, want status %d", path, err, status)
			}
		}
	}
}

// TestFailsafesInStatus: the status has the table of failsafes, a line for each row, and what is missing,
// for callers who may get the cluster kind.
func TestFailsafesInStatus(t *testing.T) {
	node := &policy.Node{Missing: "no resolver of the host"}
	for _, networks := range []string{"192.0.2.1/32", "192.0.2.1/32 192.0.2.2/32 192.0.2.3/32 192.0.2.4/32 192.0.2.5/32 192.0.2.6/32 192.0.2.16/28 198.51.100.0/24 2001:db8::1/128 2001:db8::2/128"} {
		f := policy.Failsafe{Name: "nodes", Ports: []policy.PortRange{{Protocol: policy.TCP, First: 10250, Last: 10250}}, Yields: len(node.Failsafes) == 1}
		for n := range strings.FieldsSeq(networks) {
			f.Networks = append(f.Networks, netip.MustParsePrefix(n))
		}
		node.Failsafes = append(node.Failsafes, f)
	}
	w := consoletest.New("node-1")
	w.Status.Failsafes = console.FailsafesOf(node)
	shown := func(v serve.Viewer) string {
		answers, _, err := client.Gather[console.Status](context.Background(), []client.Agent{w.Agent("", v)}, console.StatusPath, nil)
		fatal.If(t, err)
		var out bytes.Buffer
		fatal.If(t, (&print.Printer{Out: &out, Format: "table"}).Statuses(answers, true))
		return strings.Join(strings.Fields(out.String()), " ")
	}
	all := shown(serve.Everything{})
	for _, want := range []string{
		"failsafe always: every protocol to the loopback interface; neighbor discovery", "failsafe nodes: TCP 10250 to 192.0.2.1 ",
		"192.0.2.6, 192.0.2.16/28, 198.51.100.0/24 and 2 more, unless a rule lists the address",
		"failsafe unknown no resolver of the host; until then this node accepts no policies for nodes",
	} {
		diff.Has(t, want, all, "not in")
	}
	if console.FailsafesOf(nil) != nil {
		t.Error("failsafes of no node")
	}
	if text := shown(everywhere{}); strings.Contains(text, "failsafe") {
		t.Error(text)
	}
}

// everywhere sees all namespaces and no cluster policy.
type everywhere struct{ serve.Everything }

func (everywhere) May(_ context.Context, r serve.Right) (bool, error) {
	return r == serve.RowsOf(""), nil
}
