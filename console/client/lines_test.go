package client_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/print"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// shown runs Lines over agents until ctx ends or they do, and returns the output.
func show(ctx context.Context, t *testing.T, format string, follow bool, f console.AuditFilter, agents func(context.Context) ([]client.Agent, error)) (out, warn string, err error) {
	t.Helper()
	var o, w bytes.Buffer
	p := &print.Printer{Out: &o, Warn: &w, Format: format, Now: consoletest.Clock}
	failed, err := (&client.Lines{Filter: f, Agents: agents, Take: p.Line, Ended: p.Warned, After: func(time.Duration) <-chan time.Time {
		c := make(chan time.Time)
		close(c)
		return c
	}}).Show(ctx, follow)
	if err == nil {
		err = p.Failed(failed)
	}
	return o.String(), w.String(), err
}

// TestLinesOfSeveral: the lines of all agents, by their times; an unavailable agent is
// reported.
func TestLinesOfSeveral(t *testing.T) {
	one, two := consoletest.New("node-1"), consoletest.New("node-2")
	one.Recent = []byte(consoletest.Line(0, "shop/a", "allowed") + consoletest.Line(2, "shop/a", "allowed"))
	two.Recent = []byte(consoletest.Line(1, "shop/b", "allowed") + consoletest.Line(3, "shop/b", "allowed"))
	agents := []client.Agent{one.Agent("node-1", serve.Everything{}), two.Agent("node-2", serve.Everything{}), consoletest.Away("node-3")}
	out, warn, err := show(context.Background(), t, print.FormatJSON, false, console.AuditFilter{}, func(context.Context) ([]client.Agent, error) { return agents, nil })
	if want := consoletest.Line(0, "shop/a", "allowed") + consoletest.Line(1, "shop/b", "allowed") + consoletest.Line(2, "shop/a", "allowed") + consoletest.Line(3, "shop/b", "allowed"); out != want {
		t.Errorf("the lines are:\n%s", out)
	}
	if console.ExitCode(err) != console.ExitUnreachable || warn != "namegate: node-3: no agent answers at 192.0.2.2:9954\n" {
		t.Errorf("%v, %q", err, warn)
	}
}

// TestUnreadableLines: unreadable lines are reported, and cost no other line.
func TestUnreadableLines(t *testing.T) {
	body := consoletest.Line(0, "shop/a", "allowed") + `{"v":2,"kind":"dns"}` + "\n" + `{"v":1,"kind":"lost","count":3}` + "\n" + consoletest.Line(1, "shop/a", "denied")
	out, warn, err := show(context.Background(), t, print.FormatTable, false, console.AuditFilter{}, func(context.Context) ([]client.Agent, error) { return []client.Agent{consoletest.Fixed(body)}, nil })
	if err != nil || strings.Count(out, "\n") != 2 {
		t.Errorf("%v:\n%s", err, out)
	}
	if !strings.Contains(warn, "a line is left out: its version is 2") || !strings.Contains(warn, "3 lines are lost") {
		t.Errorf("warned of %q", warn)
	}
}

// TestLinesRefuse: words that no log has cost no question.
func TestLinesRefuse(t *testing.T) {
	_, _, err := show(context.Background(), t, print.FormatTable, false, console.AuditFilter{Verdicts: []string{"deny"}}, func(context.Context) ([]client.Agent, error) {
		return nil, errors.New("somebody was asked")
	})
	diff.Fails(t, `verdict "deny" is not known`, err)
}

// relay answers each question with the next of its agents.
type relay struct{ agents []client.Agent }

func (r *relay) next(context.Context) ([]client.Agent, error) {
	if len(r.agents) == 0 {
		return nil, consoletest.ErrAway
	}
	a := r.agents[0]
	if len(r.agents) > 1 {
		r.agents = r.agents[1:]
	}
	return []client.Agent{a}, nil
}

// TestFollowContinuesWithTheNextAgent: an agent that ends is asked again, from the last
// line on, and so is its successor; no line is shown twice.
func TestFollowContinuesWithTheNextAgent(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first, second := consoletest.New("node-1"), consoletest.New("node-1")
	first.Recent = []byte(consoletest.Line(0, "shop/a", "allowed"))
	counted := strings.Replace(consoletest.Line(1, "shop/a", "denied"), `"count":1`, `"count":9,"last":"2026-05-01T12:00:01.5Z"`, 1) // the last of several connections
	played := consoletest.NewTape(consoletest.Batch{Lines: counted})
	close(played.Batches)
	first.Follow = func() serve.Follower { return played }
	second.Recent = []byte(counted + consoletest.Line(2, "shop/a", "denied"))
	second.Follow = func() serve.Follower { return endless{cancel} }
	r := &relay{agents: []client.Agent{first.Agent("", serve.Everything{}), consoletest.Away(""), second.Agent("", serve.Everything{})}}
	out, warn, err := show(ctx, t, print.FormatJSON, true, console.AuditFilter{}, r.next)
	fatal.If(t, err)
	diff.Equal(t, consoletest.Line(0, "shop/a", "allowed")+counted+consoletest.Line(2, "shop/a", "denied"), out, "shown")
	diff.Equal(t, 1, strings.Count(warn, "the agent ended"), "warned of", warn)
}

// endless ends the follower once it asks for new lines.
type endless struct{ cancel func() }

func (e endless) Next(ctx context.Context) ([]byte, uint64, error) {
	e.cancel()
	<-ctx.Done()
	return nil, 0, ctx.Err()
}

func (endless) Close() {}

// TestFollowRefused: a caller without rights, or without any reachable agent, gets an
// error.
func TestFollowRefused(t *testing.T) {
	for want, a := range map[int]client.Agent{console.ExitUnreachable: consoletest.Away(""), console.ExitForbidden: consoletest.New("node-1").Agent("", consoletest.Some{})} {
		_, _, err := show(context.Background(), t, print.FormatTable, true, console.AuditFilter{}, func(context.Context) ([]client.Agent, error) { return []client.Agent{a}, nil })
		diff.Equal(t, want, console.ExitCode(err), err, "exit code")
	}
}
