package webtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
)

// Node is a node with an agent. Its methods may be called from any goroutine.
type Node struct {
	name string
	now  func() time.Time

	mu        sync.Mutex // of what follows
	input     compile.Input
	snap      *policy.Snapshot
	status    console.Status
	grants    []policy.GrantInfo
	recent    []byte
	followers map[*follower]bool
	gone      bool
	hung      chan struct{} // closed when the agent answers again; nil while it does
	asked     map[string]int
	refused   *console.Refusal // of followers
	streams   int
}

// NewNode returns a node with policies and pods.
func NewNode(name string, in compile.Input, now func() time.Time) *Node {
	return &Node{
		name: name, now: now, input: in, snap: compile.New().Compile(in), followers: map[*follower]bool{}, asked: map[string]int{},
		status: console.Status{Node: name, Version: "v1", InSync: true},
	}
}

// Log writes lines of the audit log.
func (n *Node) Log(lines ...audit.Line) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var text []byte
	for i := range lines {
		lines[i].V, lines[i].Node = audit.Version, n.name
		line, err := json.Marshal(&lines[i])
		if err != nil {
			panic(err) // a Line can be written
		}
		text = append(append(text, line...), '\n')
	}
	n.recent = append(n.recent, text...)
	for f := range n.followers {
		f.add(text, 0)
	}
}

// Lose makes lines missing for the followers.
func (n *Node) Lose(count uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for f := range n.followers {
		f.add(nil, count)
	}
}

// SetStatus changes what the agent says of itself.
func (n *Node) SetStatus(change func(*console.Status)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.status)
}

// SetGrants sets what is open.
func (n *Node) SetGrants(grants ...policy.GrantInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.grants = grants
}

// Refuse makes the agent refuse followers, with nil no more.
func (n *Node) Refuse(r *console.Refusal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused = r
}

// Stop ends the agent: its streams end, and it does not answer. Its log is lost.
func (n *Node) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone, n.recent = true, nil
	for f := range n.followers {
		f.end()
	}
	clear(n.followers)
}

// Start begins the agent again.
func (n *Node) Start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = false
}

// Hang makes the agent accept questions and answer none; its streams go on. Answer ends that.
func (n *Node) Hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hung = make(chan struct{})
}

// Answer answers what was asked since Hang, and goes on.
func (n *Node) Answer() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.hung)
	n.hung = nil
}

// Asked tells how often a path was asked for.
func (n *Node) Asked(path string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[path]
}

// Streams tells how many follow the log.
func (n *Node) Streams() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.streams
}

// Agent returns the agent as a caller with some rights reaches it.
func (n *Node) Agent(v console.Viewer) console.Agent {
	viewer := func(*http.Request) (console.Viewer, error) { return v, nil }
	return &agent{n, console.Handler(&source{node: n}, viewer, n.now)}
}

// Viewer sees the namespaces that it lists, and no cluster policies.
type Viewer []string

// Sees tells whether the namespace is listed.
func (v Viewer) Sees(_ context.Context, namespace string) (bool, error) {
	return slices.Contains(v, namespace), nil
}

// SeesCluster says no.
func (v Viewer) SeesCluster(context.Context, bool) (bool, error) { return false, nil }

// errGone is what the caller of a stopped agent gets.
var errGone = &console.Unreachable{Err: errors.New("no agent answers at 192.0.2.2:9954: is it running?")}

// agent asks the handler.
type agent struct {
	node    *Node
	handler http.Handler
}

// Node returns the node's name.
func (a *agent) Node() string { return a.node.name }

// Ask sends one question.
func (a *agent) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	n := a.node
	n.mu.Lock()
	n.asked[path]++
	gone, hung, refused := n.gone, n.hung, n.refused
	n.mu.Unlock()
	if hung != nil {
		select {
		case <-hung:
		case <-ctx.Done():
			return nil, &console.Unreachable{Err: ctx.Err()}
		}
	}
	switch {
	case gone:
		return nil, errGone
	case refused != nil && query.Has("follow"):
		return nil, refused
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	body, in := io.Pipe()
	w := &writer{head: http.Header{}, began: make(chan struct{}), body: in}
	stop := context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
	go func() {
		a.handler.ServeHTTP(w, req)
		w.begin(http.StatusOK)
		stop()
		in.Close()
	}()
	<-w.began
	return console.Received(&http.Response{StatusCode: w.status, Status: http.StatusText(w.status), Header: w.head, Body: body, Request: req})
}

// writer is the http.ResponseWriter of one answer.
type writer struct {
	head   http.Header
	once   sync.Once
	began  chan struct{}
	status int
	body   *io.PipeWriter
}

func (w *writer) begin(status int) {
	w.once.Do(func() {
		w.status = status
		close(w.began)
	})
}

// Header returns the headers.
func (w *writer) Header() http.Header { return w.head }

// WriteHeader begins the answer.
func (w *writer) WriteHeader(status int) { w.begin(status) }

// Write waits until the reader has taken all.
func (w *writer) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.body.Write(p)
}

// Flush begins the answer.
func (w *writer) Flush() { w.begin(http.StatusOK) }

// source is the console's Source of a node.
type source struct{ node *Node }

func locked[T any](s *source, get func(*Node) T) T {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	return get(s.node)
}

func (s *source) Node() string { return s.node.name }
func (s *source) Status() console.Status {
	return locked(s, func(n *Node) console.Status { return n.status })
}
func (s *source) Snapshot() *policy.Snapshot {
	return locked(s, func(n *Node) *policy.Snapshot { return n.snap })
}
func (s *source) Policies(namespace string) (out []v1alpha1.FQDNNetworkPolicy) {
	for _, p := range s.node.input.Policies {
		if namespace == "" || p.Namespace == namespace {
			out = append(out, p)
		}
	}
	return out
}
func (s *source) NetworkPolicies(string) []*networkingv1.NetworkPolicy { return nil }
func (s *source) Remote() ([]*policy.Pod, string)                      { return nil, "" }
func (s *source) Services() map[netip.Addr]*policy.Service             { return nil }
func (s *source) Problems() []policy.Problem                           { return s.Snapshot().Problems }
func (s *source) Failing() string                                      { return "" }
func (s *source) Trouble() map[policy.PodRef][]string                  { return nil }
func (s *source) Grants(p policy.PodRef) []policy.GrantInfo {
	return locked(s, func(n *Node) (out []policy.GrantInfo) {
		for _, g := range n.grants {
			if g.Pod == p {
				out = append(out, g)
			}
		}
		return out
	})
}
func (s *source) Ended(policy.PodRef, netip.Addr) []policy.GrantInfo             { return nil }
func (s *source) Denied(policy.PodRef) []audit.Flow                              { return nil }
func (s *source) Seen(policy.PodRef, netip.Addr) []recent.Sighting               { return nil }
func (s *source) SeenByAnybody(netip.Addr) []recent.Sighting                     { return nil }
func (s *source) Asked(policy.PodRef, fqdn.Name) (d recent.Decision, known bool) { return d, false }
func (s *source) LedBy(policy.PodRef, fqdn.Name) (via, aliases []fqdn.Name)      { return nil, nil }
func (s *source) DeniesResolver(policy.PodRef, netip.Addr) (bool, *policy.Rule)  { return false, nil }
func (s *source) Guard() func(fqdn.Name, netip.Addr) string {
	return func(fqdn.Name, netip.Addr) string { return "" }
}
func (s *source) Inside(netip.Addr) string { return "" }
func (s *source) Domain() fqdn.Name {
	n, _ := fqdn.ParseName("cluster.local") // is a name
	return n
}
func (s *source) Resolvers() []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.96.0.10")} }
func (s *source) Recent() []byte {
	return locked(s, func(n *Node) []byte { return bytes.Clone(n.recent) })
}
func (s *source) Follow() console.Follower {
	f := &follower{node: s.node, wake: make(chan struct{}, 1)}
	return locked(s, func(n *Node) console.Follower {
		n.followers[f] = true
		n.streams++
		return f
	})
}

// follower yields lines as they are logged.
type follower struct {
	node *Node
	wake chan struct{}
	// Under the lock of node:
	lines  []byte
	lost   uint64
	ended  bool
	closed bool
}

// add takes lines; the caller holds the lock.
func (f *follower) add(lines []byte, lost uint64) {
	f.lines, f.lost = append(f.lines, lines...), f.lost+lost
	f.rouse()
}

func (f *follower) end() {
	f.ended = true
	f.rouse()
}

func (f *follower) rouse() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Next waits for lines.
func (f *follower) Next(ctx context.Context) (lines []byte, lost uint64, err error) {
	for {
		f.node.mu.Lock()
		lines, lost, f.lines, f.lost = f.lines, f.lost, nil, 0
		ended := f.ended
		f.node.mu.Unlock()
		switch {
		case len(lines) > 0 || lost > 0:
			return lines, lost, nil
		case ended:
			return nil, 0, io.EOF
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// Close ends the following.
func (f *follower) Close() {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	if delete(f.node.followers, f); !f.closed {
		f.closed = true
		f.node.streams--
	}
	f.end()
}
