package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/namegate/namegate/policy"
)

type pPod = policy.Pod

// TestExitCode: the codes are an interface for scripts.
func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{Refuse(http.StatusServiceUnavailable, "x"), 1},
		{&Answered{Code: ExitNo}, 1},
		{&Misused{errors.New("x")}, 2},
		{Refuse(http.StatusBadRequest, "x"), 2},
		{&Unreachable{errors.New("x")}, 3},
		{&Answered{Code: ExitUnreachable}, 3},
		{Refuse(http.StatusUnauthorized, "x"), 4},
		{Refuse(http.StatusForbidden, "x"), 4},
		{Refuse(http.StatusNotFound, "x"), 5},
		{Refuse(http.StatusConflict, "x"), 5},
		{fmt.Errorf("wrapped: %w", &Failure{"node-1", &Unreachable{errors.New("x")}}), 3},
		{errors.Join(nil, &Answered{Code: 5}), 5},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%#v: %d, want %d", c.err, got, c.want)
		}
	}
}

// TestGather: replies count, failures are reported, and a pod that one agent knows need
// not be known to the others.
func TestGather(t *testing.T) {
	answers := agentOf("node-1", newWorld(t, "node-1"), Everything{})
	unknown := &agent{node: "node-2", err: Refuse(http.StatusNotFound, "no such pod")}
	refuses := &agent{node: "node-3", err: Refuse(http.StatusForbidden, "you may not")}
	away := &agent{node: "node-4", err: errAway}
	for _, c := range []struct {
		what    string
		agents  []Agent
		replies int
		failed  int
		err     string
		exit    int
	}{
		{"one", []Agent{answers}, 1, 0, "", 0},
		{"all but those that know nothing", []Agent{unknown, answers, unknown}, 1, 0, "", 0},
		{"some", []Agent{away, answers, refuses}, 1, 2, "", 0},
		{"nobody", nil, 0, 0, "there is no agent to ask", 3},
		{"one away", []Agent{away}, 0, 0, "no agent answers at 192.0.2.2:9954", 3},
		{"nobody knows", []Agent{unknown, unknown}, 0, 0, "no such pod", 5},
		{"away or unknown", []Agent{unknown, away}, 0, 0, "node-4: no agent answers", 3},
	} {
		replies, failed, err := Gather[PodRows](context.Background(), c.agents, PodsPath, nil)
		if len(replies) != c.replies || len(failed) != c.failed || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || ExitCode(err) != c.exit {
			t.Errorf("%s: %d replies, %d failed, %v", c.what, len(replies), len(failed), err)
		}
	}
}

// TestFailedAgentsAreReported: of the others' failures each is a warning, and the first decides
// the exit code.
func TestFailedAgentsAreReported(t *testing.T) {
	p, _, warn := printed(FormatTable, false)
	err := p.Failed([]*Failure{{"node-4", errAway}, {"node-3", Refuse(http.StatusForbidden, "you may not\x1b[2J")}})
	want := "namegate: node-4: no agent answers at 192.0.2.2:9954\nnamegate: node-3: you may not\\x1b[2J\n"
	if warn.String() != want || ExitCode(err) != ExitUnreachable {
		t.Errorf("%q, %v", warn, err)
	}
	if err := p.Failed(nil); err != nil {
		t.Errorf("nobody failed: %v", err)
	}
}

// counting is an agent that counts how many are asked at a time.
type counting struct {
	agent
	now, most *atomic.Int32
	full      func() // as many are asked as may be
	gate      <-chan struct{}
}

func (c *counting) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for m := c.most.Load(); n > m && !c.most.CompareAndSwap(m, n); m = c.most.Load() {
	}
	if n == askedAtOnce {
		c.full()
	}
	<-c.gate
	return c.agent.Ask(ctx, path, query)
}

// TestGatherIsBounded: many agents are asked at a time, and not all of a cluster.
func TestGatherIsBounded(t *testing.T) {
	var now, most atomic.Int32
	gate := make(chan struct{})
	full := sync.OnceFunc(func() { close(gate) })
	var agents []Agent
	for range 3 * askedAtOnce {
		agents = append(agents, &counting{agent{err: errAway}, &now, &most, full, gate})
	}
	if _, _, err := Gather[PodRows](context.Background(), agents, PodsPath, nil); err == nil {
		t.Error("nobody answered, without an error")
	}
	if most.Load() != askedAtOnce {
		t.Errorf("%d were asked at once, want %d", most.Load(), askedAtOnce)
	}
}

// TestReceived: an answer that is no refusal of ours says so.
func TestReceived(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":"do that"}`: "do that",
		`<html>`:              "the agent answered 502 Bad Gateway without a reason; is it of the same version as this command?",
		`{}`:                  "the agent answered 502 Bad Gateway without a reason; is it of the same version as this command?",
	} {
		_, err := Received(&http.Response{Status: "502 Bad Gateway", StatusCode: http.StatusBadGateway, Body: io.NopCloser(strings.NewReader(body))})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v", body, err)
		}
	}
	_, err := Received(&http.Response{Status: "404 Not Found", StatusCode: http.StatusNotFound, Body: io.NopCloser(strings.NewReader("404 page not found\n"))})
	if code := ExitCode(err); code != ExitNo {
		t.Errorf("an agent that does not know the question has exit code %d, as if it did not know the pod", code)
	}
}

// TestBrokenAnswers: half an answer is none.
func TestBrokenAnswers(t *testing.T) {
	for _, body := range []string{"", `{"pods":[`, "<html>"} {
		a := &fixed{body: body}
		if _, _, err := Gather[PodRows](context.Background(), []Agent{a}, PodsPath, nil); err == nil || !strings.Contains(err.Error(), "another version") {
			t.Errorf("%q: %v", body, err)
		}
	}
}

// fixed answers the same each time.
type fixed struct{ body string }

func (f *fixed) Node() string { return "" }

func (f *fixed) Ask(context.Context, string, url.Values) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(f.body))}, nil
}
