// Package client asks agents: the one of this node at its socket, or those of a cluster, which it finds as kubectl
// finds pods. It calls each agent with the credentials of the caller, and only a server with the agent's key.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"github.com/namegate/namegate/console"
)

// Agent is one agent that can be asked.
type Agent interface {
	// Node is its node's name, "" where that is not known.
	Node() string
	// Ask sends GET path?query and returns the answer's body, which the caller closes,
	// if the status is 200, and else the *console.Refusal that the agent gave. An agent that
	// cannot be reached is a *console.Unreachable.
	Ask(ctx context.Context, path string, query url.Values) (*http.Response, error)
}

// maxRefusal bounds the part of a refusal that is read.
const maxRefusal = 64 << 10

// Received tells an agent's answer from its refusal: it returns the answer whose
// status is 200, and else the *console.Refusal, with the body closed. Agents end with it.
func Received(resp *http.Response) (*http.Response, error) {
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	r := &console.Refusal{}
	if err != nil || json.Unmarshal(body, r) != nil || r.Message == "" {
		// Of another version, or no agent at all: the meaning of its status is unknown,
		// and it must not mean that there is no such pod.
		return nil, console.Refuse(http.StatusBadGateway, "the agent answered %s without a reason; is it of the same version as this command?", resp.Status)
	}
	r.Status = resp.StatusCode
	return nil, r
}

// localTime bounds how long the agent of this node may take to begin its answer.
const localTime = 10 * time.Second

// Local is the agent of this node, at a unix socket.
type Local struct{ Socket string }

// Node returns "": the caller is on the node.
func (l Local) Node() string { return "" }

// Ask sends one question.
func (l Local) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", l.Socket)
		},
		ResponseHeaderTimeout: localTime, DisableKeepAlives: true,
	}}
	at := url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make the question: %w", err)
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = fmt.Errorf("no agent at socket %s: there is no such file; is the agent running on this node? (--socket names another)", l.Socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		err = fmt.Errorf("no agent at socket %s: no program listens there, the agent that made it is gone; start the agent (--socket names another)", l.Socket)
	case errors.Is(err, os.ErrPermission):
		return nil, console.Refuse(http.StatusForbidden, "socket %s is root's; run this as root", l.Socket)
	case err != nil:
		err = fmt.Errorf("ask the agent at %s: %w", l.Socket, err)
	default:
		return Received(resp)
	}
	return nil, &console.Unreachable{Err: err}
}
