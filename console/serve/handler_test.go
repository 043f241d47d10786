package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestRefusals: each error with its message, status and exit code.
func TestRefusals(t *testing.T) {
	empty := consoletest.New("node-1")
	empty.Snap = nil
	off := consoletest.New("node-1")
	off.NoLog = true
	for _, c := range []struct {
		what, path, query string
		source            *consoletest.World
		viewer            serve.Viewer
		status, exit      int
		want              string
	}{
		{
			what: "unknown pod", path: console.GrantsPath, query: "pod=shop/nobody", status: http.StatusNotFound, exit: console.ExitUnknown,
			want: "the agent of node-1 knows no pod shop/nobody; `namegate pods` lists those it knows",
		},
		{
			what: "unknown pod of pods", path: console.PodsPath, query: "pod=nobody", status: http.StatusNotFound, exit: console.ExitUnknown,
			want: "the agent of node-1 knows no pod nobody; `namegate pods` lists those it knows",
		},
		{
			what: "pod of another node", path: console.GrantsPath, query: "pod=far", status: http.StatusNotFound, exit: console.ExitUnknown,
			want: "the pod shop/far runs on the node node-2: ask the agent there, or by kubectl namegate",
		},
		{
			what: "pods of another node", path: console.PodsPath, query: "pod=shop/far", status: http.StatusNotFound, exit: console.ExitUnknown,
			want: "the pod shop/far runs on the node node-2: ask the agent there, or by kubectl namegate",
		},
		{
			what: "the begin of a pod's name", path: console.ExplainPath, query: "pod=cart&namespace=shop&to=x.test", status: http.StatusNotFound, exit: console.ExitUnknown,
			want: "the agent of node-1 knows no pod shop/cart; is one of these meant: shop/cart-7d9f?",
		},
		{
			what: "ambiguous pod", path: console.ExplainPath, query: "pod=cart-7d9f&to=x.test", status: http.StatusConflict, exit: console.ExitUnknown,
			want: "pods of that name are in several namespaces: pay/cart-7d9f, shop/cart-7d9f; write NAMESPACE/NAME",
		},
		{
			what: "two namespaces", path: console.GrantsPath, query: "pod=shop/cart-7d9f&namespace=pay", status: http.StatusBadRequest, exit: console.ExitUsage,
			want: "the pod shop/cart-7d9f is not in the namespace pay; leave one of them out",
		},
		{what: "no name", path: console.GrantsPath, query: "pod=shop/", status: http.StatusBadRequest, exit: console.ExitUsage, want: `"shop/" is no pod; write NAMESPACE/NAME or NAME`},
		{what: "no pod to explain", path: console.ExplainPath, query: "to=x.test", status: http.StatusBadRequest, exit: console.ExitUsage, want: "no pod is asked about; write explain POD NAME|IP[:PORT]"},
		{
			what: "no target", path: console.ExplainPath, query: "pod=batch&to=x.test:0", status: http.StatusBadRequest, exit: console.ExitUsage,
			want: `"x.test:0": "0" is no port; write 1 to 65535`,
		},
		{
			what: "no verdict", path: console.AuditPath, query: "verdict=allowed,deny", status: http.StatusBadRequest, exit: console.ExitUsage,
			want: `verdict "deny" is not known; write allowed, unmatched, refused, blocked, failed, renewed, denied, would-deny, would-allow`,
		},
		{what: "no kind", path: console.AuditPath, query: "kind=dns&kind=tcp", status: http.StatusBadRequest, exit: console.ExitUsage, want: `kind "tcp" is not known; write dns, flow`},
		{what: "no time", path: console.AuditPath, query: "since=5m", status: http.StatusBadRequest, exit: console.ExitUsage, want: `since="5m" is no time; write one as in 2006-01-02T15:04:05Z`},
		{
			what: "no log", path: console.AuditPath, source: off, status: http.StatusServiceUnavailable, exit: console.ExitNo,
			want: "the node node-1 keeps no audit log: its Corefile says `audit off`; write `audit stdout` there",
		},
		{
			what: "starting", path: console.ExplainPath, query: "pod=batch&to=x.test", source: empty, status: http.StatusServiceUnavailable, exit: console.ExitNo,
			want: "the agent of node-1 is starting: no policies are in force yet; ask again in a moment",
		},
		{
			what: "another namespace", path: console.PodsPath, query: "namespace=pay", viewer: consoletest.Some{"shop"}, status: http.StatusForbidden, exit: console.ExitForbidden,
			want: "you may not see the namespace pay: that takes the right to get fqdnnetworkpolicies.namegate.io in it; ask your administrator for the ClusterRole namegate-viewer there",
		},
		{
			what: "all namespaces", path: console.GrantsPath, viewer: consoletest.Some{"shop"}, status: http.StatusForbidden, exit: console.ExitForbidden,
			want: "you may not see all namespaces: that takes the right to get fqdnnetworkpolicies.namegate.io in the whole cluster; name one that you may see with -n NAMESPACE",
		},
		{
			what: "whether a pod is there", path: console.GrantsPath, query: "pod=pay/nobody", viewer: consoletest.Some{"shop"}, status: http.StatusForbidden, exit: console.ExitForbidden,
			want: "you may not see the namespace pay: that takes the right to get fqdnnetworkpolicies.namegate.io in it; ask your administrator for the ClusterRole namegate-viewer there",
		},
		{
			what: "the node", path: console.StatusPath, viewer: consoletest.Some{"shop"}, status: http.StatusForbidden, exit: console.ExitForbidden,
			want: "you may not see all namespaces: that takes the right to get fqdnnetworkpolicies.namegate.io in the whole cluster; name one that you may see with -n NAMESPACE",
		},
		{what: "no path", path: "/v1/weather", status: http.StatusNotImplemented, exit: console.ExitNo, want: "this agent does not know GET /v1/weather: it is of another version than the command"},
	} {
		t.Run(c.what, func(t *testing.T) {
			if c.source == nil {
				c.source = consoletest.New("node-1")
			}
			if c.viewer == nil {
				c.viewer = serve.Everything{}
			}
			query, err := url.ParseQuery(c.query)
			fatal.If(t, err)
			_, err = c.source.Agent("", c.viewer).Ask(context.Background(), c.path, query)
			var r *console.Refusal
			if !errors.As(err, &r) || r.Status != c.status || r.Message != c.want {
				t.Errorf("%#v, want %d %s", err, c.status, c.want)
			}
			diff.Equal(t, c.exit, console.ExitCode(err), "exit code")
		})
	}
}

// TestMethods: nothing is changed here, so nothing but GET is answered.
func TestMethods(t *testing.T) {
	a := consoletest.New("node-1").Agent("", serve.Everything{})
	for _, path := range []string{console.StatusPath, console.PodsPath, console.GrantsPath, console.ExplainPath, console.AuditPath} {
		w := httptest.NewRecorder()
		a.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		if w.Code < 400 {
			t.Errorf("POST %s: %d", path, w.Code)
		}
	}
}

// TestViewerErrors: a failure to identify the caller has its own status.
func TestViewerErrors(t *testing.T) {
	for err, want := range map[error]int{
		console.Refuse(http.StatusUnauthorized, "your token is not valid"): http.StatusUnauthorized,
		errors.New("the API server is away"):                               http.StatusServiceUnavailable,
	} {
		h := serve.Handler(consoletest.New("node-1").State, func(*http.Request) (serve.Viewer, error) { return nil, err }, consoletest.Clock)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, console.StatusPath, nil))
		_, got := client.Received(w.Result())
		var r *console.Refusal
		if !errors.As(got, &r) || r.Status != want || r.Message != err.Error() {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestRowsOfANamespace: a viewer of one namespace gets its rows and no others.
func TestRowsOfANamespace(t *testing.T) {
	ctx, a, query := context.Background(), []client.Agent{consoletest.New("node-1").Agent("", consoletest.Some{"shop"})}, url.Values{"namespace": {"shop"}}
	pods, _, err := client.Gather[console.PodRows](ctx, a, console.PodsPath, query)
	fatal.If(t, err)
	var names []string
	for _, p := range pods[0].Pods {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	diff.Error(t, []string{"shop/batch", "shop/cart-7d9f", "shop/front-1", "shop/logs"}, names, "pods")
	grants, _, err := client.Gather[console.GrantRows](ctx, a, console.GrantsPath, query)
	fatal.If(t, err)
	if rows := grants[0].Grants; len(rows) != 2 || slices.ContainsFunc(rows, func(g console.GrantRow) bool { return g.Namespace != "shop" }) {
		t.Errorf("grants: %+v", rows)
	}
}

// TestExplainHides: names that only pods asked for whose namespaces may not be seen
// are nowhere in the answer, nor are the pods.
func TestExplainHides(t *testing.T) {
	w := consoletest.New("node-1")
	for _, c := range []struct {
		viewer serve.Viewer
		to     string
		shown  bool
	}{
		{serve.Everything{}, "203.0.113.7", true},
		{consoletest.Some{"shop", "pay"}, "203.0.113.7", true},
		{consoletest.Some{"shop"}, "203.0.113.7", false},
		{consoletest.Some{"shop"}, "10.1.0.20", false},
		{serve.Everything{}, "10.1.0.20", true},
	} {
		resp, err := w.Agent("", c.viewer).Ask(context.Background(), console.ExplainPath, url.Values{"pod": {"shop/cart-7d9f"}, "to": {c.to}})
		fatal.If(t, err)
		var text json.RawMessage
		fatal.If(t, json.NewDecoder(resp.Body).Decode(&text))
		if got := strings.Contains(string(text), "secret.pay.test") || strings.Contains(string(text), "pay/cart"); got != c.shown {
			t.Errorf("%v asks for %s: what is another namespace's is shown: %v\n%s", c.viewer, c.to, got, text)
		}
	}
}

// TestPodsOfAName: a bare name lists the pods of all namespaces that have it.
func TestPodsOfAName(t *testing.T) {
	for pod, want := range map[string]int{"cart-7d9f": 2, "shop/cart-7d9f": 1, "done": 0} {
		answers, _, err := client.Gather[console.PodRows](context.Background(), []client.Agent{consoletest.New("node-1").Agent("", serve.Everything{})}, console.PodsPath, url.Values{"pod": {pod}})
		if err != nil || len(answers[0].Pods) != want {
			t.Errorf("%s: %+v, %v; want %d", pod, answers, err, want)
		}
	}
}

// TestBeforeTheFirstSnapshot: an agent that starts has no pods to tell of yet, and
// says so where one is asked about.
func TestBeforeTheFirstSnapshot(t *testing.T) {
	w := consoletest.New("node-1")
	w.Snap = nil
	for _, path := range []string{console.PodsPath, console.GrantsPath} {
		resp, err := w.Agent("", serve.Everything{}).Ask(context.Background(), path, nil)
		fatal.If(t, err)
		var got map[string][]any
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || len(got) != 1 || len(got[strings.TrimPrefix(path, "/v1/")]) != 0 {
			t.Errorf("%s: %v, %v", path, got, err)
		}
		if _, err := w.Agent("", serve.Everything{}).Ask(context.Background(), path, url.Values{"pod": {"shop/batch"}}); console.ExitCode(err) != console.ExitNo {
			t.Errorf("%s about a pod: %v", path, err)
		}
	}
}

// TestFree: the pods that a policy for the workload would select, beside pods that are
// default-deny already.
func TestFree(t *testing.T) {
	w := consoletest.New("node-1")
	pods := w.Snap.Pods()
	for name, want := range map[string][]string{"cart-7d9f": nil, "front-1": nil, "batch": nil} {
		i := slices.IndexFunc(pods, func(p policy.Pod) bool { return p.Namespace == "shop" && p.Name == name })
		diff.Error(t, want, serve.Free(w.Snap, &pods[i], w.Input.Policies), name)
	}
	like := consoletest.Pod("shop", "new", "", nil, "tier=front")
	diff.Error(t, []string{"shop/front-1"}, serve.Free(w.Snap, &like, w.Input.Policies), "free pods beside one that only an Audit policy selects")
	like.Labels = map[string]string{"app": "cart"}
	diff.Error(t, []string{"shop/far"}, serve.Free(w.Snap, &like, nil), "free pods of another node")
}

// TestOneStateOfAQuestion: an answer is of one state of the agent, however many come meanwhile.
func TestOneStateOfAQuestion(t *testing.T) {
	for _, path := range []string{console.StatusPath, console.PodsPath, console.GrantsPath, console.PoliciesPath, console.AuditPath, console.ExplainPath + "?pod=shop/cart-7d9f&to=bank.test"} {
		w, states := consoletest.New("node-1"), 0
		h := serve.Handler(func() *serve.State { states++; return w.State() }, func(*http.Request) (serve.Viewer, error) { return serve.Everything{}, nil }, consoletest.Clock)
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
		if r.Code != http.StatusOK || states != 1 {
			t.Errorf("%s: status %d of %d states", path, r.Code, states)
		}
	}
}
