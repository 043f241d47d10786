package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/entry"
)

const (
	// handOverTries is how often an agent is looked for that is not where it was
	// published: in an upgrade the next one publishes within a second.
	handOverTries = 4
	handOverWait  = 500 * time.Millisecond
)

// remote is the agent of one node.
type remote struct {
	cluster *Cluster
	entry   entry.Entry
}

// Node returns the node's name.
func (a *remote) Node() string { return a.entry.Node }

// Ask sends one question, with the caller's own credentials and to the agent's key alone.
func (a *remote) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	now := a.entry
	for try := 1; ; try++ {
		resp, err := a.cluster.ask(ctx, now, path, query)
		if err == nil {
			return Received(resp)
		}
		moved := errors.Is(err, entry.ErrWrongKey) || errors.Is(err, syscall.ECONNREFUSED)
		if !moved || try == handOverTries {
			return nil, a.cluster.unreachable(ctx, now, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(handOverWait):
		}
		if now, err = a.cluster.entry(ctx, now.Node); err != nil {
			return nil, err
		}
	}
}

// ask tries an agent's addresses in turn.
func (c *Cluster) ask(ctx context.Context, e entry.Entry, path string, query url.Values) (*http.Response, error) {
	way, err := c.roundTripper(e.Pin)
	if err != nil {
		return nil, err
	}
	client := http.Client{
		Transport: way,
		// The target of a redirect would get the caller's token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	err = errNoAddress
	for _, address := range c.dial(e) {
		at := url.URL{Scheme: "https", Host: address, Path: path, RawQuery: query.Encode()}
		req, bad := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if bad != nil {
			return nil, &console.Misused{Err: fmt.Errorf("--address %s: %w", address, bad)}
		}
		var resp *http.Response
		if resp, err = client.Do(req); err == nil || ctx.Err() != nil {
			return resp, err
		}
	}
	return nil, err
}

// errNoAddress says that an agent listens for its own node alone.
var errNoAddress = errors.New("the agent published no address")

// dial returns where to dial an agent.
func (c *Cluster) dial(e entry.Entry) (out []string) {
	if c.login.Address != "" {
		return []string{c.login.Address}
	}
	for _, a := range e.Addresses {
		out = append(out, netip.AddrPort.String(a))
	}
	return out
}

// unreachable says what to do about an agent that cannot be asked.
func (c *Cluster) unreachable(ctx context.Context, e entry.Entry, err error) error {
	var misused *console.Misused
	if ctx.Err() != nil || errors.As(err, &misused) {
		return err
	}
	var why error
	switch {
	case errors.Is(err, entry.ErrWrongKey):
		why = fmt.Errorf("the server at the address of the agent of node %s has another key than that agent published, so it was sent nothing; an agent that starts publishes within seconds, try again: %w", e.Node, err)
	case errors.Is(err, errNoAddress):
		why = fmt.Errorf("the agent of node %s can be asked through a forwarded port alone: %s", e.Node, c.forward(e.Node))
	case errors.Is(err, syscall.ECONNREFUSED):
		why = fmt.Errorf("no program listens at the address of the agent of node %s; is it running? kubectl -n %s get pods -o wide shows it: %w", e.Node, c.login.Agents, err)
	default:
		why = fmt.Errorf("the agent of node %s cannot be reached; where nodes are not reached from here, %s: %w", e.Node, c.forward(e.Node), err)
	}
	return &console.Unreachable{Err: why}
}

// forward says how to reach an agent by way of the API server.
func (c *Cluster) forward(node string) string {
	return fmt.Sprintf("forward the port (kubectl -n %s port-forward POD 9954, with the agent's pod on that node) and add --node %s --address 127.0.0.1:9954", c.login.Agents, node)
}

// away is the agent of a node that has none that could be asked.
type away struct {
	node string
	err  error
}

// Node returns the node's name.
func (a away) Node() string { return a.node }

// Ask returns why not.
func (a away) Ask(context.Context, string, url.Values) (*http.Response, error) { return nil, a.err }
