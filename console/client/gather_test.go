package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/diff"
)

// TestGather: replies count, failures are reported, and a pod that one agent knows need
// not be known to the others.
func TestGather(t *testing.T) {
	answers := consoletest.New("node-1").Agent("node-1", serve.Everything{})
	unknown := &consoletest.Agent{Name: "node-2", Err: console.Refuse(http.StatusNotFound, "no such pod")}
	refuses := &consoletest.Agent{Name: "node-3", Err: console.Refuse(http.StatusForbidden, "you may not")}
	away := consoletest.Away("node-4")
	for _, c := range []struct {
		what    string
		agents  []client.Agent
		replies int
		failed  int
		err     string
		exit    int
	}{
		{"one", []client.Agent{answers}, 1, 0, "", 0},
		{"all but those that know nothing", []client.Agent{unknown, answers, unknown}, 1, 0, "", 0},
		{"some", []client.Agent{away, answers, refuses}, 1, 2, "", 0},
		{"nobody", nil, 0, 0, "there is no agent to ask", 3},
		{"one away", []client.Agent{away}, 0, 0, "no agent answers at 192.0.2.2:9954", 3},
		{"nobody knows", []client.Agent{unknown, unknown}, 0, 0, "no such pod", 5},
		{"away or unknown", []client.Agent{unknown, away}, 0, 0, "node-4: no agent answers", 3},
	} {
		replies, failed, err := client.Gather[console.PodRows](context.Background(), c.agents, console.PodsPath, nil)
		if len(replies) != c.replies || len(failed) != c.failed || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || console.ExitCode(err) != c.exit {
			t.Errorf("%s: %d replies, %d failed, %v", c.what, len(replies), len(failed), err)
		}
	}
}

// counting is an agent that counts how many are asked at a time.
type counting struct {
	*consoletest.Agent
	now, most *atomic.Int32
	full      func() // as many are asked as may be
	gate      <-chan struct{}
}

func (c *counting) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for m := c.most.Load(); n > m && !c.most.CompareAndSwap(m, n); m = c.most.Load() {
	}
	if n == client.AskedAtOnce {
		c.full()
	}
	<-c.gate
	return c.Agent.Ask(ctx, path, query)
}

// TestGatherIsBounded: many agents are asked at a time, and not all of a cluster.
func TestGatherIsBounded(t *testing.T) {
	var now, most atomic.Int32
	gate := make(chan struct{})
	full := sync.OnceFunc(func() { close(gate) })
	var agents []client.Agent
	for range 3 * client.AskedAtOnce {
		agents = append(agents, &counting{consoletest.Away(""), &now, &most, full, gate})
	}
	if _, _, err := client.Gather[console.PodRows](context.Background(), agents, console.PodsPath, nil); err == nil {
		t.Error("nobody answered, without an error")
	}
	diff.Equal(t, client.AskedAtOnce, most.Load(), "asked at once")
}

// TestReceived: an answer that is no refusal of ours says so.
func TestReceived(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":"do that"}`: "do that",
		`<html>`:              "the agent answered 502 Bad Gateway without a reason; is it of the same version as this command?",
		`{}`:                  "the agent answered 502 Bad Gateway without a reason; is it of the same version as this command?",
	} {
		_, err := client.Received(&http.Response{Status: "502 Bad Gateway", StatusCode: http.StatusBadGateway, Body: io.NopCloser(strings.NewReader(body))})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v", body, err)
		}
	}
	_, err := client.Received(&http.Response{Status: "404 Not Found", StatusCode: http.StatusNotFound, Body: io.NopCloser(strings.NewReader("404 page not found\n"))})
	diff.Equal(t, console.ExitNo, console.ExitCode(err), "exit code of an agent that does not know the question")
}

// TestBrokenAnswers: half an answer is none.
func TestBrokenAnswers(t *testing.T) {
	for _, body := range []string{"", `{"pods":[`, "<html>"} {
		a := consoletest.Fixed(body)
		if _, _, err := client.Gather[console.PodRows](context.Background(), []client.Agent{a}, console.PodsPath, nil); err == nil || !strings.Contains(err.Error(), "another version") {
			t.Errorf("%q: %v", body, err)
		}
	}
}

// flood is an agent with a long answer in lines.
type flood int64

func (flood) Node() string { return "node-1" }

func (f flood) Ask(context.Context, string, url.Values) (*http.Response, error) {
	return &http.Response{Body: io.NopCloser(io.MultiReader(io.LimitReader(blank{}, int64(f)), strings.NewReader(`{"pods":[]}`)))}, nil
}

// blank is an endless text of long lines.
type blank struct{}

func (blank) Read(p []byte) (int, error) {
	copy(p, strings.Repeat(" ", len(p)))
	p[len(p)-1] = '\n'
	return len(p), nil
}

// TestAnswersAreBounded: an answer of any size takes bounded memory, those of all agents too, and the error names
// the way out.
func TestAnswersAreBounded(t *testing.T) {
	const mib = 1 << 20
	if _, _, err := client.GatherWithin[console.PodRows](t.Context(), []client.Agent{flood(1 << 40)}, console.GrantsPath, 2*mib, 8*mib); err == nil ||
		err.Error() != "the agent's answer has more than 2 MiB, the limit; ask for one namespace (-n), one pod or one node (--node) instead" {
		t.Errorf("a long answer: %v", err)
	}
	many := slices.Repeat([]client.Agent{flood(mib)}, 6)
	answers, failed, err := client.GatherWithin[console.PodRows](t.Context(), many, console.GrantsPath, 2*mib, 4*mib)
	if err != nil || len(answers) != 3 || len(failed) != 3 || !strings.Contains(failed[0].Error(), "the agents' answers have more than 4 MiB together, the limit; ask for one namespace") {
		t.Errorf("long answers: %d, %d failed, %v", len(answers), len(failed), err)
	}
	const small = 64 << 10
	passing := slices.Repeat([]client.Agent{flood(small)}, 2*client.AskedAtOnce)
	if err := errors.Join(client.PassWithin(t.Context(), passing, console.GrantsPath, (client.AskedAtOnce+2)*small)...); err != nil {
		t.Errorf("answers that are not kept: %v", err)
	}
	lines := &client.Lines{Agents: func(context.Context) ([]client.Agent, error) { return []client.Agent{flood(1 << 40)}, nil }, Take: func([]byte, bool) error { return nil }}
	if _, err := lines.Show(t.Context(), false); err == nil || !strings.Contains(err.Error(), "more than 64 MiB, the limit") {
		t.Errorf("an endless log: %v", err)
	}
}
