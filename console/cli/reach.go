package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/namegate/namegate/console"
)

// DefaultSocket is the unix socket at which an agent answers on its node.
const DefaultSocket = "/run/namegate/agent.sock"

// reach is how the commands for people find the agents that they ask: the one of
// this node at its socket, or those of a cluster as kubectl would.
type reach struct {
	socket    string
	namespace string
	cluster   clusterReach
}

// add adds the flags that say whom to ask.
func (r *reach) add(fl *pflag.FlagSet) {
	fl.StringVar(&r.socket, "socket", DefaultSocket, "unix socket of the agent")
	fl.StringVarP(&r.namespace, "namespace", "n", "", "the namespace of the pods (default: all; in a cluster that of the context)")
	r.cluster.add(fl)
}

// scope returns the namespace that is asked for, "" for all.
func (r *reach) scope() (string, error) {
	if err := r.cluster.check(r.namespace); err != nil {
		return "", err
	}
	if !r.cluster.on || r.cluster.all || r.namespace != "" {
		return r.namespace, nil
	}
	c, err := r.cluster.connect(r.namespace)
	if err != nil {
		return "", err
	}
	return c.Namespace(), nil
}

// agents returns whom to ask: about one pod, "namespace/name" or a bare name, the
// agent that knows it; "" is for those that know the pods of the scope.
func (r *reach) agents(ctx context.Context, pod string) ([]console.Agent, error) {
	scope, err := r.scope()
	if err != nil {
		return nil, err
	}
	if !r.cluster.on {
		return []console.Agent{local{r.socket}}, nil
	}
	return r.cluster.agents(ctx, scope, pod)
}

// ofNode returns the agent to ask about a node itself.
func (r *reach) ofNode(ctx context.Context, node string) ([]console.Agent, error) {
	if !r.cluster.on {
		return []console.Agent{local{r.socket}}, nil
	}
	c, err := r.cluster.connect("")
	if err != nil {
		return nil, err
	}
	agent, err := c.OfNode(ctx, node)
	if err != nil {
		return nil, err
	}
	return []console.Agent{agent}, nil
}

// everybody returns whom to ask about the nodes themselves: all agents.
func (r *reach) everybody(ctx context.Context) ([]console.Agent, error) {
	if err := r.cluster.check(r.namespace); err != nil {
		return nil, err
	}
	if !r.cluster.on {
		return []console.Agent{local{r.socket}}, nil
	}
	return r.cluster.agents(ctx, "", "")
}

// local is the agent of this node, over its unix socket.
type local struct{ socket string }

// answerTime bounds how long an agent may take to begin its answer.
const answerTime = 10 * time.Second

// Node returns "": the caller is on the node.
func (l local) Node() string { return "" }

// Ask sends one question.
func (l local) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", l.socket)
		},
		ResponseHeaderTimeout: answerTime, DisableKeepAlives: true,
	}}
	at := url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make the question: %w", err)
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = fmt.Errorf("no agent at socket %s: there is no such file; is the agent running on this node? (--socket names another)", l.socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		err = fmt.Errorf("no agent at socket %s: nobody listens there, the agent that made it is gone; start the agent (--socket names another)", l.socket)
	case errors.Is(err, os.ErrPermission):
		return nil, console.Refuse(http.StatusForbidden, "socket %s is root's; run this as root", l.socket)
	case err != nil:
		err = fmt.Errorf("ask the agent at %s: %w", l.socket, err)
	default:
		return console.Received(resp)
	}
	return nil, &console.Unreachable{Err: err}
}
