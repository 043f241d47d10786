package agent

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/namegate/namegate/console/access"
	"github.com/namegate/namegate/console/serve"
)

const (
	// listenRetry is how long a console that failed waits for its next try: the agent
	// before this one may have the port for a moment yet.
	listenRetry = time.Second
	// maxListenRetry is how long after many failures.
	maxListenRetry = 30 * time.Second
)

// listening is a console at a port.
type listening interface {
	Run(ctx context.Context, h http.Handler) error
	Viewer(r *http.Request) (serve.Viewer, error)
}

// openConsole makes the listener of this agent, with a client of its own: requests that
// callers cause do not delay the agent's own.
func (a *agent) openConsole() (listening, error) {
	o := a.o.Cluster
	c, err := connect(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return access.New(access.Options{
		Client: c, Namespace: o.Namespace, DaemonSet: o.DaemonSet, Node: a.o.Node, Addresses: o.ConsoleAddrs, Leaving: a.leaving, Log: a.log,
	})
}

// keepListening runs a console again and again until ctx ends: a port that another program has is no
// reason to leave pods without DNS.
func keepListening(ctx context.Context, open func() (listening, error), answer answers, log *slog.Logger, pause func(context.Context, time.Duration) error) {
	for after := listenRetry; ; after = min(2*after, maxListenRetry) {
		l, err := open()
		if err == nil {
			err = l.Run(ctx, answer(l.Viewer))
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn("cannot serve kubectl namegate; trying again", "after", after, "error", err)
		if pause(ctx, after) != nil {
			return
		}
	}
}
