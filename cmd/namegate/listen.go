package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/access"
)

const (
	// listenAgain is how long a console that failed waits for its next try: the agent
	// before this one may have the port for a moment yet.
	listenAgain = time.Second
	// listenAgainMost is how long after many failures.
	listenAgainMost = 30 * time.Second
)

// listenFlags say where an agent listens for people of the cluster.
type listenFlags struct{ addresses []string }

func (f *listenFlags) add(fl *pflag.FlagSet) {
	fl.StringSliceVar(&f.addresses, "console-addr", nil, "ADDRESS:PORT at which kubectl namegate is answered, may be repeated (default: none)")
}

// parse returns what --console-addr says; addresses are without a cluster's users
// worth nothing.
func (f *listenFlags) parse(inCluster bool) (out []netip.AddrPort, err error) {
	for _, text := range f.addresses {
		host, port, err := net.SplitHostPort(text)
		var a netip.Addr
		var n uint64
		if err == nil {
			a, err = netip.ParseAddr(host)
		}
		if err == nil {
			n, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			return nil, fmt.Errorf("--console-addr %q is not an address and a port; write for example 192.0.2.1:9954 or [2001:db8::1]:9954", text)
		}
		out = append(out, netip.AddrPortFrom(a, uint16(n)))
	}
	if len(out) > 0 && !inCluster {
		return nil, fmt.Errorf("--console-addr needs --source kube: without a cluster nobody knows who asks; the socket is there for root")
	}
	return out, nil
}

// answers makes the handler of a console for callers of a kind.
type answers func(viewer func(*http.Request) (console.Viewer, error)) http.Handler

// listening is what runs a console until ctx ends.
type listening interface {
	Run(ctx context.Context, h http.Handler) error
	Viewer(r *http.Request) (console.Viewer, error)
}

// keepConsole answers people of the cluster until ctx ends. It is for the agent that
// has the node: the next one takes the port from it. A port that another program has
// is no reason to leave pods without DNS.
func (a *agent) keepConsole(ctx context.Context, f agentFlags, answer answers) {
	keepListening(ctx, func() (listening, error) { return f.openConsole(a.leaving, a.log) }, answer, a.log, wait)
}

// openConsole makes the listener of this agent, with a client of its own: what callers
// make it ask does not hold up what the agent itself asks.
func (f *agentFlags) openConsole(leaving func() bool, log *slog.Logger) (listening, error) {
	addresses, err := f.listen.parse(true)
	if err != nil {
		return nil, err
	}
	c, err := f.cluster.connect()
	if err != nil {
		return nil, err
	}
	return access.New(access.Options{
		Client: c, Namespace: f.cluster.namespace, DaemonSet: f.cluster.daemonSet, Node: f.nodeName, Addresses: addresses, Leaving: leaving, Log: log,
	})
}

// keepListening runs a console again and again until ctx ends.
func keepListening(ctx context.Context, open func() (listening, error), answer answers, log *slog.Logger, pause func(context.Context, time.Duration) error) {
	for after := listenAgain; ; after = min(2*after, listenAgainMost) {
		l, err := open()
		if err == nil {
			err = l.Run(ctx, answer(l.Viewer))
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn("kubectl namegate is not answered; trying again", "after", after, "error", err)
		if pause(ctx, after) != nil {
			return
		}
	}
}
