package web

import (
	"context"
	"net/netip"
	"net/url"
	"time"

	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/policy/fqdn"
)

// patience is how long an agent may take for an answer, beside its lines: the page shows the others'
// answers then.
const patience = 5 * time.Second

// Options say whom the page asks, and for what.
type Options struct {
	Context   string // of the kubeconfig, "" at an agent's socket
	Namespace string // the namespace that is shown, "" for all
	Version   string // of the program

	// Agents returns all agents of the scope, found anew at each call.
	Agents func(context.Context) ([]client.Agent, error)
	// About returns whom to ask about a pod ("namespace/name") or a node ("node/NAME"), and the
	// question's subject.
	About func(ctx context.Context, subject string) ([]client.Agent, url.Values, error)
	// Guard is that of suggest.Log.
	Guard func(fqdn.Name, netip.Addr) string
	// Now is time.Now, After time.After.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// pause waits, and tells whether ctx goes on.
func (o *Options) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-o.After(d):
		return true
	}
}

// within limits the time for answers of agents.
func (o *Options) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, patience)
}
