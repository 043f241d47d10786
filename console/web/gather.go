package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/print"
)

// askedAtOnce bounds how many agents are asked at a time for one answer.
const askedAtOnce = 32

// slowness is 1 for a slow agent, and else 0.
func slowness(g *following) int {
	if g.now().State == Slow {
		return 1
	}
	return 0
}

// gather asks all agents for one page's answer, the more than one at a time, and hands over each
// answer; take is called by one goroutine at a time. Agents that do not answer within the time of
// within, refuse, or are away are returned. An agent whose lines do not arrive is not asked: the
// answers of the others do not wait for it. The error is for the case that no agent answers.
func gather[T any](ctx context.Context, f *feed, path string, query func(first bool) url.Values, take func(*T)) (failed []Failed, err error) {
	ctx, stop := f.o.within(ctx)
	defer stop()
	var (
		all      sync.WaitGroup
		mu       sync.Mutex
		answered bool
		first    = true
		places   = make(chan struct{}, askedAtOnce)
	)
	fail := func(node string, cause error) {
		failed = append(failed, Failed{Node: node, Message: print.OneLine(cause.Error())})
		if err == nil {
			err = cause
		}
	}
	agents := f.list()
	slices.SortStableFunc(agents, func(a, b *following) int { return cmp.Compare(slowness(a), slowness(b)) }) // places are for the quick ones first
	for _, g := range agents {
		state := g.now()
		if state.State == Unreachable {
			mu.Lock()
			fail(state.Node, console.Refuse(http.StatusServiceUnavailable, "%s", state.Message))
			mu.Unlock()
			continue
		}
		agent, q := g.current(), query(first)
		first = false
		all.Go(func() {
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
			case <-ctx.Done():
			}
			answers, _, err := client.Gather[T](ctx, []client.Agent{agent}, path, q)
			mu.Lock()
			defer mu.Unlock()
			var refusal *console.Refusal
			switch {
			case err == nil:
				answered = true
				take(&answers[0])
			case ctx.Err() != nil:
				fail(state.Node, console.Refuse(http.StatusGatewayTimeout, "the agent did not answer within %s; the page asks again", patience))
			case errors.As(err, &refusal) && refusal.Status == http.StatusNotFound:
				answered = true // the pod is another agent's
			default:
				fail(state.Node, err)
			}
		})
	}
	all.Wait()
	switch {
	case answered:
		return failed, nil
	case err == nil:
		return nil, console.Refuse(http.StatusServiceUnavailable, "no agent is found yet; the page asks again")
	}
	return nil, err
}
