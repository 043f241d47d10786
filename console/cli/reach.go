package cli

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/namegate/namegate/console/client"
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
func (r *reach) agents(ctx context.Context, pod string) ([]client.Agent, error) {
	scope, err := r.scope()
	if err != nil {
		return nil, err
	}
	if !r.cluster.on {
		return []client.Agent{client.Local{Socket: r.socket}}, nil
	}
	return r.cluster.agents(ctx, scope, pod)
}

// ofNode returns the agent to ask about a node itself.
func (r *reach) ofNode(ctx context.Context, node string) ([]client.Agent, error) {
	if !r.cluster.on {
		return []client.Agent{client.Local{Socket: r.socket}}, nil
	}
	c, err := r.cluster.connect("")
	if err != nil {
		return nil, err
	}
	agent, err := c.OfNode(ctx, node)
	if err != nil {
		return nil, err
	}
	return []client.Agent{agent}, nil
}

// everybody returns whom to ask about the nodes themselves: all agents.
func (r *reach) everybody(ctx context.Context) ([]client.Agent, error) {
	if err := r.cluster.check(r.namespace); err != nil {
		return nil, err
	}
	if !r.cluster.on {
		return []client.Agent{client.Local{Socket: r.socket}}, nil
	}
	return r.cluster.agents(ctx, "", "")
}
