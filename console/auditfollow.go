package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
)

// againAfter is how long a follower waits before it asks again after an agent ended.
const againAfter = time.Second

// Lines shows lines of the audit log.
type Lines struct {
	*Printer
	Filter AuditFilter
	// Agents finds the agents, again when one has ended.
	Agents func(context.Context) ([]Agent, error)
	// After is time.After.
	After func(time.Duration) <-chan time.Time

	mu    sync.Mutex // guards the output
	nodes bool       // lines are of more than one agent
}

// query is the filter as the agent reads it.
func (f *AuditFilter) query(follow bool) url.Values {
	q := url.Values{}
	for key, value := range map[string]string{
		"namespace": f.Namespace, "pod": f.Pod, "verdict": strings.Join(f.Verdicts, ","), "kind": strings.Join(f.Kinds, ","),
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	if follow {
		q.Set("follow", "1")
	}
	return q
}

// Show prints the lines that the agents keep, in their order, and with follow new lines,
// until ctx ends.
func (l *Lines) Show(ctx context.Context, follow bool) error {
	if err := l.Filter.Check(); err != nil {
		return err
	}
	agents, err := l.Agents(ctx)
	if err != nil {
		return err
	}
	l.nodes = len(agents) > 1
	if follow {
		return l.follow(ctx, agents)
	}
	return l.recent(ctx, agents)
}

// recent prints what all remember, the oldest first.
func (l *Lines) recent(ctx context.Context, agents []Agent) error {
	lines := make([][][]byte, len(agents))
	errs := make([]error, len(agents))
	each(agents, func(i int, a Agent) {
		errs[i] = l.receive(ctx, a, l.Filter.query(false), func(line []byte) { lines[i] = append(lines[i], bytes.Clone(line)) })
	})
	all := slices.Concat(lines...)
	if len(agents) > 1 {
		slices.SortStableFunc(all, func(a, b []byte) int { return timeOf(a).Compare(timeOf(b)) })
	}
	for _, line := range all {
		if err := l.print(line); err != nil {
			return err
		}
	}
	return l.ended(agents, errs)
}

// ended says which agents could not be asked.
func (l *Lines) ended(agents []Agent, errs []error) error {
	var failed []*Failure
	for i, err := range errs {
		if err != nil {
			failed = append(failed, &Failure{agents[i].Node(), err})
		}
	}
	if len(failed) == len(agents) {
		return first(failed, nil)
	}
	return l.Failed(failed)
}

func timeOf(line []byte) time.Time {
	var h struct {
		Time time.Time `json:"time"`
	}
	_ = json.Unmarshal(line, &h)
	return h.Time
}

// follow prints new lines. If an agent refuses the first request, that is a failure; an
// agent that ends later is asked again.
func (l *Lines) follow(ctx context.Context, agents []Agent) error {
	var wg sync.WaitGroup
	errs := make([]error, len(agents))
	for i, a := range agents {
		wg.Go(func() { errs[i] = l.followOne(ctx, a) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil // the follower has seen enough
	}
	return l.ended(agents, errs)
}

// followOne follows the agent of one node, and its successors.
func (l *Lines) followOne(ctx context.Context, a Agent) error {
	filter, node := l.Filter, a.Node()
	for said, began := false, false; ; {
		resp, err := a.Ask(ctx, AuditPath, filter.query(true))
		if err == nil {
			began = true
			err = linesOf(resp, func(line []byte) {
				said = false
				if t := timeOf(line); !t.Before(filter.Since) {
					filter.Since = t.Add(time.Microsecond) // the log's smallest step
				}
				_ = l.print(line) // a reader that is gone ends the program
			})
		}
		var refusal *Refusal
		switch {
		case ctx.Err() != nil:
			return nil
		case !began, errors.As(err, &refusal) && refusal.Status != http.StatusServiceUnavailable:
			return err
		}
		if !said {
			said = true
			l.warn(&Failure{node, errors.New("the agent ended; its lines go on as soon as it, or its successor, answers")})
		}
		if a, err = l.again(ctx, node); err != nil {
			return nil // the follower has seen enough
		}
	}
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

func (l *Lines) warn(f *Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.Warn, "namegate: "+safe(f.Error()))
}

// receive hands each line of an answer to take, until it ends.
func (l *Lines) receive(ctx context.Context, a Agent, query url.Values, take func([]byte)) error {
	resp, err := a.Ask(ctx, AuditPath, query)
	if err != nil {
		return err
	}
	return linesOf(resp, take)
}

// linesOf hands over each line of an answer.
func linesOf(resp *http.Response, take func([]byte)) error {
	defer resp.Body.Close()
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := lineOf(in)
		if err == nil {
			take(line)
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return &Unreachable{Err: fmt.Errorf("the agent's lines end early: %w", err)}
	}
}

// maxLine bounds one line: an agent's are far shorter.
const maxLine = 1 << 20

var errLongLine = errors.New("a line is longer than 1 MiB; is this an agent of Namegate?")

// lineOf reads one line with its end.
func lineOf(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		piece, err := in.ReadSlice('\n')
		line = append(line, piece...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > maxLine:
			return nil, errLongLine
		}
	}
}

// print prints one line.
func (l *Lines) print(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lost := lostOf(line); lost > 0 {
		_, err := fmt.Fprintf(l.Warn, "namegate: %d lines are lost: they came faster than they were taken\n", lost)
		return err
	}
	var text []byte
	switch l.Format {
	case FormatJSON:
		text = line
	case FormatYAML:
		y, err := yaml.JSONToYAML(line)
		if err != nil {
			return fmt.Errorf("read the agent's line: %w", err)
		}
		text = append([]byte("---\n"), y...)
	default:
		parsed, err := audit.ParseLine(line)
		if err != nil {
			_, err = fmt.Fprintf(l.Warn, "namegate: a line is left out: %v\n", err)
			return err
		}
		text = []byte(auditLine(&parsed, l.nodes, l.Colour))
	}
	_, err := l.Out.Write(text)
	return err
}

// lostOf returns how many lines were lost, 0 for a line of the log.
func lostOf(line []byte) uint64 {
	if !bytes.HasPrefix(line, []byte(`{"v":1,"kind":"`+audit.KindLost+`"`)) {
		return 0
	}
	var l struct{ Count uint64 }
	_ = json.Unmarshal(line, &l)
	return l.Count
}
