package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// explained returns the answer as text and as it is.
func explained(t *testing.T, w *consoletest.World, v serve.Viewer, pod, to string) (string, explain.Explanation) {
	t.Helper()
	resp, err := w.Agent("", v).Ask(context.Background(), console.ExplainPath, url.Values{"pod": {pod}, "to": {to}})
	fatal.If(t, err)
	text, err := io.ReadAll(resp.Body)
	fatal.If(t, err)
	var e explain.Explanation
	fatal.If(t, json.Unmarshal(text, &e))
	return string(text), e
}

// contestedWorld has an address that pods of two namespaces claim.
func contestedWorld(t *testing.T) *consoletest.World {
	t.Helper()
	w := consoletest.New("node-1")
	w.Snap = compile.New().Compile(compile.Input{Policies: w.Input.Policies, Pods: []policy.Pod{
		consoletest.Pod("shop", "cart-7d9f", "10.1.0.10", nil, "app=cart"), consoletest.Pod("pay", "till", "10.1.0.10", nil),
		consoletest.Pod("shop", "other", "10.1.0.11", nil, "app=cart"),
	}})
	return w
}

// TestConflictsAreHidden: other pods that claim an address are shown only to callers who
// may see them, and nothing is allowed for it.
func TestConflictsAreHidden(t *testing.T) {
	w := contestedWorld(t)
	for _, pod := range []string{"shop/cart-7d9f", "shop/other"} {
		for _, to := range []string{"www.example.org:443", "10.1.0.10"} {
			if text, _ := explained(t, w, consoletest.Some{"shop"}, pod, to); strings.Contains(text, "till") || strings.Contains(text, "pay") {
				t.Errorf("%s to %s tells of another namespace's pod:\n%s", pod, to, text)
			}
		}
	}
	text, e := explained(t, w, consoletest.Some{"shop"}, "shop/cart-7d9f", "www.example.org:443")
	if e.Verdict != explain.Denied || !strings.Contains(text, "several pods claim one of its addresses") {
		t.Errorf("%s", text)
	}
	if text, _ := explained(t, w, consoletest.Some{"shop", "pay", ""}, "shop/cart-7d9f", "www.example.org:443"); !strings.Contains(text, "pay/till") {
		t.Errorf("who sees all is not told who claims the address:\n%s", text)
	}
	w.Seen = []recent.Sighting{{Pod: policy.PodRef{Namespace: "shop", Name: "cart-7d9f+pay/till"}, Name: policytest.Name("secret.pay.test"), Address: netip.MustParseAddr("203.0.113.9"), Asked: consoletest.Noon}}
	if text, _ := explained(t, w, consoletest.Some{"shop"}, "shop/other", "203.0.113.9"); strings.Contains(text, "secret") || strings.Contains(text, "till") {
		t.Errorf("what both claimants asked for is told:\n%s", text)
	}
}

// TestConflictLines: the lines of an address that pods of several namespaces claim are
// for callers who may see all of these.
func TestConflictLines(t *testing.T) {
	w := consoletest.New("node-1")
	asked := strings.Replace(consoletest.Line(1, "shop/other", "denied"), `"pod":"pay/cart-7d9f"`, `"pod":"shop/cart-7d9f+pay/till"`, 1)
	w.Recent = []byte(strings.Replace(consoletest.Line(0, "shop/cart-7d9f", "allowed"), "cart-7d9f", "cart-7d9f+pay/till", 1) + asked)
	got := askedFor(t, w.Agent("", consoletest.Some{"shop"}), "namespace=shop")
	if strings.Contains(got, "till") || strings.Contains(got, "secret") || strings.Count(got, "\n") != 1 {
		t.Errorf("it is shown:\n%s", got)
	}
	diff.Equal(t, string(w.Recent), askedFor(t, w.Agent("", consoletest.Some{"shop", "pay"}), "namespace=shop"), "who sees both gets")
}

// TestCutLinesBeginAlike: redacted lines still begin like lines.
func TestCutLinesBeginAlike(t *testing.T) {
	w := consoletest.New("node-1")
	w.Recent = []byte(consoletest.Line(1, "shop/cart-7d9f", "denied"))
	got := askedFor(t, w.Agent("", consoletest.Some{"shop"}), "namespace=shop")
	if begin := `{"v":1,"kind":"flow","time":"2026-05-01T12:00:01Z",`; !strings.HasPrefix(got, begin) || strings.Contains(got, "secret") {
		t.Errorf("%s", got)
	}
}

// TestSourcesAreHidden: who may not see the namespace of a source sees its address.
func TestSourcesAreHidden(t *testing.T) {
	w := consoletest.New("node-1")
	w.Recent = []byte(consoletest.IngressLine)
	if got := askedFor(t, w.Agent("", consoletest.Some{"shop"}), "namespace=shop"); strings.Contains(got, "pay") || !strings.Contains(got, `"source":{"address":"10.1.0.20"}`) {
		t.Errorf("%s", got)
	}
	diff.Equal(t, string(w.Recent), askedFor(t, w.Agent("", consoletest.Some{"shop", "pay"}), "namespace=shop"), "who sees both gets")
	diff.Equal(t, "", askedFor(t, w.Agent("", consoletest.Some{"pay"}), "namespace=pay"), "who sees the source alone gets")
}

// TestFailureIsTheNodes: why policies are not in force may be about anybody's pods.
func TestFailureIsTheNodes(t *testing.T) {
	w := consoletest.New("node-1")
	w.Failing = "restore the chain of pay/till: no such set"
	if text, e := explained(t, w, consoletest.Some{"shop"}, "shop/cart-7d9f", "www.example.org"); strings.Contains(text, "pay") || !strings.Contains(strings.Join(e.Notes, ";"), "the latest policies are not in force") {
		t.Errorf("%s", text)
	}
	if text, _ := explained(t, w, serve.Everything{}, "shop/cart-7d9f", "www.example.org"); !strings.Contains(text, "pay/till") {
		t.Errorf("root is not told why:\n%s", text)
	}
}

// TestRunningPodOfAName: of an ended pod and a running one of the same name, here or
// elsewhere, the running one is meant.
func TestRunningPodOfAName(t *testing.T) {
	ended := func(p *policy.Pod) { p.Phase, p.UID = "Failed", "ended" }
	far := func(p *policy.Pod) { p.NodeName, p.UID = "node-2", "far" }
	here := func(p *policy.Pod) { p.UID = "here" }
	for what, c := range map[string]struct {
		pods []func(*policy.Pod)
		want string
	}{
		"it moved away":        {[]func(*policy.Pod){far, ended}, "far"},
		"it moved away, other": {[]func(*policy.Pod){ended, far}, "far"},
		"it came here":         {[]func(*policy.Pod){ended, here}, "here"},
		"it came here, other":  {[]func(*policy.Pod){here, ended}, "here"},
		"it is in both":        {[]func(*policy.Pod){far, here}, "here"},
		"it has ended":         {[]func(*policy.Pod){ended}, "ended"},
	} {
		w := consoletest.New("node-1")
		in := compile.Input{}
		for _, change := range c.pods {
			in.Pods = append(in.Pods, consoletest.Pod("shop", "db-0", "", change))
		}
		w.Snap = compile.New().Compile(in)
		if got, err := serve.Find(w.State(), "shop", "db-0"); err != nil || got.UID != c.want {
			t.Errorf("%s: %+v, %v; want %s", what, got, err, c.want)
		}
	}
}

// TestFollowersAreBounded: followers cost memory, so their number is limited, that of each user too;
// root always has a place, and a place is given back.
func TestFollowersAreBounded(t *testing.T) {
	var f serve.Followers
	var leave []func()
	for i := range serve.MaxFollowers {
		l, err := f.Enter(consoletest.Some{fmt.Sprint("user-", i/serve.MaxFollowersOfOne)})
		fatal.If(t, err)
		leave = append(leave, l)
	}
	if _, err := f.Enter(consoletest.Some{"user-1"}); console.ExitCode(err) != console.ExitNo || !strings.Contains(err.Error(), "user-1 follows the log of this node 8 times already") {
		t.Errorf("one too many of a user: %v", err)
	}
	if _, err := f.Enter(consoletest.Some{"shop"}); console.ExitCode(err) != console.ExitNo || !strings.Contains(err.Error(), "24 follow the log of this node already") {
		t.Errorf("one too many: %v", err)
	}
	if _, err := f.Enter(serve.Everything{}); err != nil {
		t.Errorf("root: %v", err)
	}
	leave[0]()
	if _, err := f.Enter(consoletest.Some{"shop"}); err != nil {
		t.Errorf("a place that was given back: %v", err)
	}
	a := consoletest.New("node-1").Agent("", consoletest.Some{"shop"})
	for range 2 * serve.MaxFollowers { // each ends at once, and gives its place back
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		resp, err := a.Ask(ctx, console.AuditPath, url.Values{"namespace": {"shop"}, "follow": {"1"}})
		cancel()
		fatal.If(t, err)
		resp.Body.Close()
	}
}

// TestPieces: lines are sent in pieces that are whole, and nothing is lost.
func TestPieces(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a\n": "a\n", "a\nb\n": "a\nb\n", "a\nb\nc\n": "a\nb\n", "abcdef\ng\n": "abcdef\n", "abcdef": "abcdef", "abcd\nef\n": "abcd\n",
	} {
		diff.Equal(t, want, string(serve.FirstLines([]byte(text), 5)), text, "begins with")
	}
	w := consoletest.New("node-1")
	var all strings.Builder
	for i := range 2000 {
		all.WriteString(consoletest.Line(i, "shop/cart-7d9f", "allowed"))
	}
	w.Recent = []byte(all.String())
	if got := askedFor(t, w.Agent("", consoletest.Some{"shop"}), "namespace=shop"); got != all.String() {
		t.Errorf("%d bytes of %d came", len(got), all.Len())
	}
}

// TestEndedPod: a pod that has ended connects nowhere, and is not said to be allowed
// everything.
func TestEndedPod(t *testing.T) {
	_, err := consoletest.New("node-1").Agent("", serve.Everything{}).Ask(context.Background(), console.ExplainPath, url.Values{"pod": {"shop/done"}, "to": {"www.example.org"}})
	if console.ExitCode(err) != console.ExitUnknown || !strings.Contains(err.Error(), "the pod shop/done has ended (Succeeded)") {
		t.Errorf("%v", err)
	}
}

// TestCostOfOtherNamespacesLines: the cost of a viewer of one namespace does not grow with other
// namespaces' lines.
func TestCostOfOtherNamespacesLines(t *testing.T) {
	var others strings.Builder
	for i := range 200 {
		others.WriteString(consoletest.Line(i, "pay/till", "allowed"))
	}
	text, f := []byte(others.String()), console.AuditFilter{Namespace: "shop"}
	nobody := func(string) bool { t.Error("it is asked who may see what is not asked for"); return false }
	if allocations := testing.AllocsPerRun(10, func() { serve.Choose(&f, nil, text, nobody, nil) }); allocations > 4 {
		t.Errorf("%v allocations for 200 lines", allocations)
	}
}

// away is a Viewer whose API server never answers; it counts the requests.
type away map[serve.Right]int

func (a away) May(_ context.Context, r serve.Right) (bool, error) {
	if a[r]++; r == serve.RowsOf("shop") {
		return true, nil
	}
	return false, consoletest.ErrAway
}

func (away) Name() string { return "somebody" }

// TestRightsAreAskedOnce: an answer about many pods of another namespace asks once for
// the right, also if there is no answer.
func TestRightsAreAskedOnce(t *testing.T) {
	w := consoletest.New("node-1")
	for i := range 50 {
		s := w.Seen[0]
		s.Pod.Name = strings.Repeat("x", i+1)
		w.Seen = append(w.Seen, s)
	}
	asked := away{}
	if text, _ := explained(t, w, asked, "shop/cart-7d9f", "203.0.113.7"); strings.Contains(text, "secret") {
		t.Errorf("%s", text)
	}
	diff.Equal(t, 1, asked[serve.RowsOf("pay")], "times that it is asked", asked)
}
