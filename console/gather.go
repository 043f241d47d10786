package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
)

const (
	// askedAtOnce bounds how many agents are asked at a time.
	askedAtOnce = 8
	// maxAnswer bounds an answer: a full node's grants are some ten MiB.
	maxAnswer = 256 << 20
)

// Failure is an agent that could not be asked, or refused.
type Failure struct {
	Node string
	Err  error
}

// Error returns the error, with the node if there are several.
func (f *Failure) Error() string {
	if f.Node == "" {
		return f.Err.Error()
	}
	return f.Node + ": " + f.Err.Error()
}

// Unwrap returns the error.
func (f *Failure) Unwrap() error { return f.Err }

// Reply is the answer of one agent.
type Reply[T any] struct {
	Node  string // as of Agent
	Value T
}

// Gather sends the same request to all agents and returns the replies in the order of the
// agents, and the failed agents. If some know a pod and others do not, the others are no
// failures. The error is for the case that no agent answered.
func Gather[T any](ctx context.Context, agents []Agent, path string, query url.Values) (replies []Reply[T], failed []*Failure, err error) {
	type result struct {
		value T
		err   error
	}
	results := make([]result, len(agents))
	each(agents, func(i int, a Agent) {
		results[i].err = ask(ctx, a, path, query, &results[i].value)
	})
	var unknown []*Failure
	for i, r := range results {
		var refusal *Refusal
		switch f := (&Failure{agents[i].Node(), r.err}); {
		case r.err == nil:
			replies = append(replies, Reply[T]{agents[i].Node(), r.value})
		case errors.As(r.err, &refusal) && refusal.Status == http.StatusNotFound:
			unknown = append(unknown, f)
		default:
			failed = append(failed, f)
		}
	}
	if len(replies) > 0 {
		return replies, failed, nil
	}
	return nil, nil, first(failed, unknown)
}

// first returns the error if no agent answered.
func first(failed, unknown []*Failure) error {
	switch all := append(failed, unknown...); {
	case len(all) == 0:
		return &Unreachable{Err: errors.New("there is no agent to ask; is Namegate installed here?")}
	case len(all) == 1:
		return all[0].Err
	default:
		return fmt.Errorf("no agent answered, the first of %d: %w", len(all), all[0])
	}
}

// each calls do for every agent, some at once, and waits.
func each(agents []Agent, do func(int, Agent)) {
	var wg sync.WaitGroup
	places := make(chan struct{}, askedAtOnce)
	for i, a := range agents {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			do(i, a)
		})
	}
	wg.Wait()
}

// ask decodes the answer of one agent into v.
func ask(ctx context.Context, a Agent, path string, query url.Values, v any) error {
	resp, err := a.Ask(ctx, path, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &Unreachable{Err: fmt.Errorf("the agent's answer ends early, ask again: %w", err)}
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("read the agent's answer, is it of another version than this command? %w", err)
	}
	return nil
}
