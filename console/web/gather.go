package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
)

// slowness is the more, the less an answer is to be expected of an agent.
func slowness(g *following) int { return slices.Index([]string{Slow, Unreachable}, g.now().State) }

// gather asks all agents, or the one of a node, for one page's answer, and hands over each
// answer; take is called by one goroutine at a time. Agents that do not answer within the time of
// within, refuse, or are away are returned. An agent whose lines do not arrive is not asked: the
// answers of the others do not wait for it. The error is for the case that no agent answers.
func gather[T any](ctx context.Context, f *feed, node, path string, query func(first bool) url.Values, take func(*T)) (failed []Failed, err error) {
	ctx, stop := f.o.within(ctx)
	defer stop()
	followed := slices.DeleteFunc(f.list(), func(g *following) bool { return node != "" && g.Node() != node })
	if len(followed) == 0 {
		return nil, console.Refuse(http.StatusServiceUnavailable, "no agent is found yet; the page asks again")
	}
	slices.SortStableFunc(followed, func(a, b *following) int { return cmp.Compare(slowness(a), slowness(b)) }) // the quick ones are asked first
	agents := make([]client.Agent, len(followed))
	for i, g := range followed {
		agents[i] = g
	}
	answered := false
	for i, cause := range client.EachAnswer(ctx, agents, path, func(i int) url.Values { return query(i == 0) }, func(_ int, v *T) { take(v) }) {
		var refusal *console.Refusal
		switch {
		case cause == nil, client.Unknown(cause): // the pod is another agent's
			answered = true
			continue
		case ctx.Err() != nil && !errors.As(cause, &refusal):
			cause = console.Refuse(http.StatusGatewayTimeout, "the agent did not answer within %s; the page asks again", patience)
		}
		failed = append(failed, Failed{Node: agents[i].Node(), Message: console.OneLine(cause.Error())})
		err = cmp.Or(err, cause)
	}
	if answered {
		return failed, nil
	}
	return nil, err
}
