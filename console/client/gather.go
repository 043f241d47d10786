package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/namegate/namegate/console"
)

// askedAtOnce bounds how many agents are asked at a time.
const askedAtOnce = 8

// Gather sends the same request to all agents and returns the answers in the order of the
// agents, and the failed agents. If some know a pod and others do not, the others are no
// failures. The error is for the case that no agent answered.
func Gather[T any](ctx context.Context, agents []Agent, path string, query url.Values) (answers []T, failed []*console.Failure, err error) {
	return gather[T](ctx, agents, path, query, newBudget())
}

func gather[T any](ctx context.Context, agents []Agent, path string, query url.Values, size *budget) (answers []T, failed []*console.Failure, err error) {
	values, errs := make([]T, len(agents)), make([]error, len(agents))
	each(agents, askedAtOnce, func(i int, a Agent) { errs[i] = ask(ctx, a, path, query, size, &values[i]) })
	var unknown []*console.Failure
	for i, err := range errs {
		var refusal *console.Refusal
		switch f := (&console.Failure{Node: agents[i].Node(), Err: err}); {
		case err == nil:
			answers = append(answers, values[i])
		case errors.As(err, &refusal) && refusal.Status == http.StatusNotFound:
			unknown = append(unknown, f)
		default:
			failed = append(failed, f)
		}
	}
	if len(answers) > 0 {
		return answers, failed, nil
	}
	return nil, nil, first(append(failed, unknown...))
}

// first returns the error if no agent answered.
func first(failed []*console.Failure) error {
	switch len(failed) {
	case 0:
		return &console.Unreachable{Err: errors.New("there is no agent to ask; is Namegate installed here?")}
	case 1:
		return failed[0].Err
	default:
		return fmt.Errorf("no agent answered, the first of %d: %w", len(failed), failed[0])
	}
}

// each calls do for every agent, at most so many at once, and waits.
func each(agents []Agent, most int, do func(int, Agent)) {
	var wg sync.WaitGroup
	places := make(chan struct{}, most)
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
func ask(ctx context.Context, a Agent, path string, query url.Values, size *budget, v any) error {
	resp, err := a.Ask(ctx, path, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(size.bound(resp.Body))
	var large *tooLarge
	switch {
	case errors.As(err, &large):
		return err
	case err != nil:
		return &console.Unreachable{Err: fmt.Errorf("the agent's answer ends early, ask again: %w", err)}
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("read the agent's answer, is it of another version than this command? %w", err)
	}
	return nil
}
