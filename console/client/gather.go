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

	"golang.org/x/sync/errgroup"

	"github.com/namegate/namegate/console"
)

// AskedAtOnce bounds how many agents are asked at a time.
const AskedAtOnce = 32

// Gather sends the same request to all agents and returns the answers in the order of the
// agents, and the failed agents. If some know a pod and others do not, the others are no
// failures. The error is for the case that no agent answered.
func Gather[T any](ctx context.Context, agents []Agent, path string, query url.Values) (answers []T, failed []*console.Failure, err error) {
	return gather[T](ctx, agents, path, query, newBudget())
}

func gather[T any](ctx context.Context, agents []Agent, path string, query url.Values, size *budget) (answers []T, failed []*console.Failure, err error) {
	values := make([]*T, len(agents))
	errs := eachAnswer(ctx, agents, path, func(int) url.Values { return query }, size, func(i int, v *T) { values[i] = v })
	var unknown []*console.Failure
	for i, err := range errs {
		switch f := (&console.Failure{Node: agents[i].Node(), Err: err}); {
		case err == nil:
			answers = append(answers, *values[i])
		case Unknown(err):
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

// Unknown tells whether an agent's error is that it does not know the pod, which may be another's.
func Unknown(err error) bool {
	var refusal *console.Refusal
	return errors.As(err, &refusal) && refusal.Status == http.StatusNotFound
}

// EachAnswer sends a request to all agents and hands over each answer as it comes, by one goroutine at a time. It
// returns the error of each agent. The bound of all answers is about those that are read at a time.
func EachAnswer[T any](ctx context.Context, agents []Agent, path string, query func(i int) url.Values, take func(i int, answer *T)) []error {
	return eachAnswer(ctx, agents, path, query, &budget{each: maxAnswer, all: maxAnswers, passing: true}, take)
}

func eachAnswer[T any](ctx context.Context, agents []Agent, path string, query func(i int) url.Values, size *budget, take func(i int, answer *T)) []error {
	var mu sync.Mutex
	return askAll(ctx, agents, AskedAtOnce, path, query, size, func(i int, resp *http.Response) error {
		answer := new(T)
		if err := decode(resp.Body, answer); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		take(i, answer)
		return nil
	})
}

// askAll sends a request to all agents, at most so many at once, calls read with the answer of each, and returns the
// error of each. size bounds the answers; nil does not.
func askAll(ctx context.Context, agents []Agent, most int, path string, query func(i int) url.Values, size *budget, read func(i int, resp *http.Response) error) []error {
	errs := make([]error, len(agents))
	each(agents, most, func(i int, a Agent) {
		resp, err := a.Ask(ctx, path, query(i))
		if err == nil {
			defer resp.Body.Close() //nolint:errcheck // it was only read
			if size != nil {
				bounded := &bounded{Reader: resp.Body, of: size}
				defer bounded.end()
				resp.Body = io.NopCloser(bounded)
			}
			err = read(i, resp)
		}
		errs[i] = err
	})
	return errs
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
	var g errgroup.Group
	g.SetLimit(most)
	for i, a := range agents {
		g.Go(func() error {
			do(i, a)
			return nil
		})
	}
	_ = g.Wait() // do keeps its errors
}

// decode reads the answer of one agent into v.
func decode(answer io.Reader, v any) error {
	body, err := io.ReadAll(answer)
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
