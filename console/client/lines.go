package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/namegate/namegate/console"
)

// againAfter is how long a follower waits before it asks again after an agent ended.
const againAfter = time.Second

// Logs asks all agents for lines of their audit logs and calls read with the answer of each, several at once. Answers
// with the lines that come, which end with ctx, are read all at once. It returns the error of each agent.
func Logs(ctx context.Context, agents []Agent, query url.Values, read func(i int, resp *http.Response) error) []error {
	most, size := AskedAtOnce, newBudget()
	if query.Has("follow") {
		most, size = len(agents), nil
	}
	return askAll(ctx, agents, most, console.AuditPath, func(int) url.Values { return query }, size, read)
}

// Complete returns for how long an agent's answer with lines is complete; false where the
// agent does not say it.
func Complete(resp *http.Response) (time.Duration, bool) {
	seconds, err := strconv.ParseUint(resp.Header.Get(console.CompleteHeader), 10, 31)
	return time.Duration(seconds) * time.Second, err == nil
}

// Lines hands over lines of the audit log.
type Lines struct {
	Filter console.AuditFilter
	// Agents finds the agents, again when one has ended.
	Agents func(context.Context) ([]Agent, error)
	// After is time.After.
	After func(time.Duration) <-chan time.Time
	// Take takes a line; several tells whether lines are of more than one agent. Ended is told of an agent that
	// ended and is awaited. They are called one at a time.
	Take  func(line []byte, several bool) error
	Ended func(*console.Failure)

	mu      sync.Mutex // guards Take and Ended
	several bool
}

// Show hands over the lines that the agents keep, in their order, and with follow new lines,
// until ctx ends. It returns the failed agents; the error is for the case that no agent answered.
func (l *Lines) Show(ctx context.Context, follow bool) ([]*console.Failure, error) {
	if err := l.Filter.Check(); err != nil {
		return nil, err
	}
	agents, err := l.Agents(ctx)
	if err != nil {
		return nil, err
	}
	l.several = len(agents) > 1
	show := l.recent
	if follow {
		show = l.follow
	}
	errs, err := show(ctx, agents)
	if err != nil {
		return nil, err
	}
	var failed []*console.Failure
	for i, err := range errs {
		if err != nil {
			failed = append(failed, &console.Failure{Node: agents[i].Node(), Err: err})
		}
	}
	if len(failed) == len(agents) && ctx.Err() == nil {
		return nil, first(failed)
	}
	return failed, nil
}

// recent hands over the lines that all remember, the oldest first.
func (l *Lines) recent(ctx context.Context, agents []Agent) ([]error, error) {
	of := make([][][]byte, len(agents))
	errs := Logs(ctx, agents, l.Filter.Query(false), func(i int, resp *http.Response) error {
		return linesOf(resp.Body, func(line []byte) { of[i] = append(of[i], line) })
	})
	all := slices.Concat(of...)
	if l.several {
		slices.SortStableFunc(all, func(a, b []byte) int { return timesOf(a).Time.Compare(timesOf(b).Time) })
	}
	for _, line := range all {
		if err := l.Take(line, l.several); err != nil {
			return nil, err
		}
	}
	return errs, nil
}

// follow hands over new lines. If an agent refuses the first request, that is a failure; an
// agent that ends later is asked again.
func (l *Lines) follow(ctx context.Context, agents []Agent) ([]error, error) {
	errs := make([]error, len(agents))
	each(agents, len(agents), func(i int, a Agent) { errs[i] = l.followOne(ctx, a) })
	if ctx.Err() != nil {
		return nil, nil // the follower has seen enough
	}
	return errs, nil
}

// followOne follows the agent of one node, and its successors.
func (l *Lines) followOne(ctx context.Context, a Agent) error {
	s, node := Stream{l.Filter}, a.Node()
	for reported, began := false, false; ; {
		err := s.Read(ctx, a, func() { began = true }, func(line []byte) {
			reported = false
			l.mu.Lock()
			defer l.mu.Unlock()
			_ = l.Take(line, l.several) // a reader that is gone ends the program
		})
		var refusal *console.Refusal
		switch {
		case ctx.Err() != nil:
			return nil
		case !began, errors.As(err, &refusal) && refusal.Status != http.StatusServiceUnavailable:
			return err
		}
		if !reported {
			reported = true
			l.mu.Lock()
			l.Ended(&console.Failure{Node: node, Err: errEnded})
			l.mu.Unlock()
		}
		if a, err = l.again(ctx, node); err != nil {
			return nil // the follower has seen enough
		}
	}
}

// Stream is the lines of one agent as they come and, after a break, those of its successor from then on.
type Stream struct {
	Filter console.AuditFilter
}

var errEnded = errors.New("the agent ended; its lines go on as soon as it, or its successor, answers")

// Read asks an agent and hands over its lines. began is called when the answer begins. The error is why the lines end.
func (s *Stream) Read(ctx context.Context, a Agent, began func(), take func(line []byte)) error {
	resp, err := a.Ask(ctx, console.AuditPath, s.Filter.Query(true))
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	began()
	err = linesOf(resp.Body, func(line []byte) {
		at := timesOf(line)
		for _, t := range []time.Time{at.Time, at.Last} {
			if !t.IsZero() && !t.Before(s.Filter.Since) {
				s.Filter.Since = t.Add(time.Microsecond) // the log's smallest step
			}
		}
		take(line)
	})
	return cmp.Or(err, errEnded)
}

// times are those of a line, Last of the counted connections.
type times struct{ Time, Last time.Time }

func timesOf(line []byte) (t times) {
	_ = json.Unmarshal(line, &t) // a line that is none has no time
	return t
}

// again waits, and finds the agent of a node again: it may have been replaced.
func (l *Lines) again(ctx context.Context, node string) (Agent, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.After(againAfter):
		}
		agents, err := l.Agents(ctx)
		if err != nil {
			continue // as long as that takes
		}
		for _, a := range agents {
			if a.Node() == node {
				return a, nil
			}
		}
	}
}

// maxLine bounds one line: an agent's are far shorter.
const maxLine = 1 << 20

var errLongLine = errors.New("a line is longer than 1 MiB; is this an agent of Namegate?")

// linesOf hands over each line of an answer, with its end.
func linesOf(body io.Reader, take func([]byte)) error {
	in := bufio.NewScanner(body)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	in.Split(wholeLines)
	for in.Scan() {
		take(bytes.Clone(in.Bytes()))
	}
	var large *tooLarge
	switch err := in.Err(); {
	case err == nil, errors.As(err, &large):
		return err
	case errors.Is(err, bufio.ErrTooLong):
		return &console.Unreachable{Err: fmt.Errorf("the agent's lines end early: %w", errLongLine)}
	default:
		return &console.Unreachable{Err: fmt.Errorf("the agent's lines end early: %w", err)}
	}
}

// wholeLines splits at the ends of lines, and drops a line without an end.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i+1], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}
