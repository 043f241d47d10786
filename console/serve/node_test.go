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
	"github.com/namegate/namegate/policy/failsafe"
	"github.com/namegate/namegate/testkit/consoletest"
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

// TestFailsafesInStatus: the status lists failsafes with reason and source, and what is not known, for
// callers who may get the cluster kind.
func TestFailsafesInStatus(t *testing.T) {
	list := &failsafe.List{
		Entries: append(failsafe.Fixed()[:1], failsafe.Entry{Failsafe: policy.Failsafe{Prefix: netip.MustParsePrefix("192.0.2.1/32"),
			Ports: failsafe.Port(policy.TCP, 6443), Reason: "API server", Source: "the kubelet's kubeconfig"}}),
		Findings: []failsafe.Finding{{Source: "/etc/chrony.conf", Message: "cannot be read", Failed: true}, {Source: "ntp.test", Message: "does not resolve", Stale: true}},
	}
	w := consoletest.New("node-1")
	w.Status.Failsafes = console.FailsafesOf(list)
	shown := func(v serve.Viewer) string {
		answers, _, err := client.Gather[console.Status](context.Background(), []client.Agent{w.Agent("", v)}, console.StatusPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := (&print.Printer{Out: &out, Format: "table"}).Statuses(answers, true); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(out.String()), " ")
	}
	all := shown(serve.Everything{})
	for _, want := range []string{
		"failsafe every protocol every address oifname lo: loopback (every node)", "failsafe TCP 192.0.2.1 port 6443: API server (the kubelet's kubeconfig)",
		"failsafe unknown /etc/chrony.conf: cannot be read; until then this node only audits policies for nodes", "failsafe is stale ntp.test: does not resolve; its last values count",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in %s", want, all)
		}
	}
	if s := console.FailsafesOf(list); s.Enforced || console.FailsafesOf(nil) != nil {
		t.Errorf("%+v", s)
	}
	if text := shown(everywhere{}); strings.Contains(text, "failsafe") {
		t.Error(text)
	}
}

// everywhere sees all namespaces and no cluster policy.
type everywhere struct{ serve.Everything }

func (everywhere) SeesCluster(context.Context, bool) (bool, error) { return false, nil }
