package web

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/print"
	"github.com/namegate/namegate/console/suggest"
	"github.com/namegate/namegate/console/web/traffic"
)

const (
	// maxGrants bounds the grants of an answer: a full node has 100,000.
	maxGrants = 10_000
	// linesDefault and linesMost bound the lines of an answer.
	linesDefault = 200
	linesMost    = 1_000
)

func (s *server) session(*http.Request) (any, error) {
	return Session{Context: s.o.Context, Namespace: s.o.Namespace, Version: s.o.Version, Started: s.started}, nil
}

func (s *server) lines(r *http.Request) (any, error) {
	q := r.URL.Query()
	f, err := filterOf(q)
	if err != nil {
		return nil, err
	}
	before, err := number(q, "before", 0, 0, 1<<63)
	if err != nil {
		return nil, err
	}
	most, err := number(q, "limit", linesDefault, 1, linesMost)
	if err != nil {
		return nil, err
	}
	found, more := s.store.lines(int(most), before, f.wants)
	out := Lines{Lines: []Numbered{}, More: more}
	for _, h := range found {
		out.Lines = append(out.Lines, h.numbered())
	}
	return out, nil
}

// scope is the question for what the page shows, as agents take it.
func (s *server) scope() url.Values {
	q := url.Values{}
	if s.o.Namespace != "" {
		q.Set("namespace", s.o.Namespace)
	}
	return q
}

func (s *server) grants(r *http.Request) (any, error) {
	q, node := s.scope(), r.URL.Query().Get("node")
	if node != "" {
		q = url.Values{"node": {node}}
	}
	out := Grants{Grants: []console.GrantRow{}}
	var err error
	out.Failed, err = gather(r.Context(), s.feed, node, console.GrantsPath, func(bool) url.Values { return q }, out.take)
	return out, err
}

// take adds the grants of one agent, as far as there is room.
func (g *Grants) take(rows *console.GrantRows) {
	room := min(maxGrants-len(g.Grants), len(rows.Grants))
	g.Grants = append(g.Grants, rows.Grants[:room]...)
	g.Left += len(rows.Grants) - room
}

// status answers with what the agents answered last to the feed, which asks each for its problems.
func (s *server) status(*http.Request) (any, error) {
	out := Statuses{Nodes: []console.Status{}}
	refused := ""
	for _, g := range s.feed.list() {
		state, last := g.now(), (*console.Status)(nil)
		if g.locked(func() { last = g.status }); last != nil {
			out.Nodes = append(out.Nodes, *last)
			continue
		}
		refused = cmp.Or(refused, state.NoProblems)
		out.Failed = append(out.Failed, Failed{Node: state.Node, Message: cmp.Or(state.NoProblems, state.Message, "the agent has not sent its status yet; the page asks again")})
	}
	if len(out.Nodes) == 0 && refused != "" {
		return nil, console.Refuse(http.StatusForbidden, "%s", refused)
	}
	return out, nil
}

func (s *server) explain(r *http.Request) (any, error) {
	asked := r.URL.Query()
	subject := asked.Get("pod")
	if node := asked.Get("node"); node != "" {
		subject = "node/" + node
	} else if !strings.Contains(subject, "/") {
		return nil, console.Refuse(http.StatusBadRequest, "the page asks about pod=%q; write pod=NAMESPACE/NAME or node=NODE", subject)
	}
	question, err := questionOf(asked)
	if err != nil {
		return nil, err
	}
	ctx, stop := s.o.within(r.Context())
	defer stop()
	agents, q, err := s.o.About(ctx, subject)
	if err != nil {
		return nil, err
	}
	maps.Copy(q, question)
	answers, _, err := client.Gather[explain.Explanation](ctx, agents, console.ExplainPath, q)
	if err != nil {
		return nil, err
	}
	own := print.OwnExplanation(answers)
	var text bytes.Buffer
	p := print.Printer{Out: &text, Warn: &text, Format: print.FormatTable, Now: s.o.Now}
	answered := (*console.Answered)(nil)
	if err := p.Explained(own); err != nil && !errors.As(err, &answered) {
		return nil, err
	}
	return Explained{Text: text.String(), Explanation: own}, nil
}

// questionOf returns a question of the page as agents take it: to a target, or from a source to a port.
func questionOf(asked url.Values) (q url.Values, err error) {
	port, err := number(asked, "port", 0, 0, 65535)
	if err != nil {
		return nil, err
	}
	to, protocol := asked.Get("target"), asked.Get("protocol")
	if asked.Has("from") {
		if to = protocol; port != 0 {
			to = strings.TrimSuffix(asked.Get("port")+"/"+protocol, "/")
		}
		q = url.Values{"from": {asked.Get("from")}, "port": {to}}
		_, err = explain.ParsePort(to)
	} else {
		if port != 0 {
			to = net.JoinHostPort(to, asked.Get("port"))
		}
		if protocol != "" {
			to += "/" + protocol
		}
		q = url.Values{"to": {to}}
		_, err = explain.ParseTarget(to)
	}
	if err != nil {
		return nil, console.Refuse(http.StatusBadRequest, "%v", err)
	}
	return q, nil
}

// suggest writes the policies that the held lines of a workload ask for.
func (s *server) suggest(r *http.Request) (any, error) {
	asked := r.URL.Query()
	namespace, workload := asked.Get("namespace"), asked.Get("workload")
	if namespace == "" && !strings.HasPrefix(workload, "Node/") {
		return nil, console.Refuse(http.StatusBadRequest, "the page asks for a policy without a namespace; write namespace=NAMESPACE, or workload=Node/NODE")
	}
	lines, _ := s.store.lines(2*maxLines, 0, func(l *audit.Line) bool {
		return l.Pod.Namespace == namespace && (workload == "" || traffic.WorkloadOf(l) == workload)
	})
	slices.Reverse(lines)
	out, text := Suggested{Notes: []string{}}, bytes.Buffer{}
	log := suggest.NewLog()
	log.Guard = s.o.Guard
	for _, h := range lines {
		if err := log.Add(*h.line); err != nil {
			out.Notes = append(out.Notes, "a line is left out: "+console.OneLine(err.Error()))
		}
	}
	suggestion := log.SuggestNodes()
	if namespace != "" {
		suggestion = log.Suggest(suggest.Options{})
	}
	out.Notes = append(out.Notes, suggestion.Warnings()...)
	for _, p := range suggestion.Parts {
		if namespace != "" {
			out.Notes = append(out.Notes, p.Notes...)
		}
	}
	err := suggestion.Write(&text)
	out.YAML = text.String()
	return out, err
}
