package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
)

// DefaultSocket is the unix socket at which an agent answers on its node.
const DefaultSocket = "/run/namegate/agent.sock"

// reach is how the commands for people find the agents that they ask: the one of
// this node at its socket, or those of a cluster, with kubectl's own files and words.
type reach struct {
	socket    string
	namespace string
	kube      bool // else the agent of this node is asked
	all       bool
	node      string
	login     client.Login
	known     *client.Cluster
}

// add adds the flags that say whom to ask.
func (r *reach) add(fl *pflag.FlagSet) {
	fl.StringVar(&r.socket, "socket", DefaultSocket, "unix socket of the agent")
	fl.StringVarP(&r.namespace, "namespace", "n", "", "the namespace of the pods (default: all; in a cluster that of the context)")
	fl.StringVar(&r.node, "node", "", "with --kube: ask the agent of this node alone")
	r.addLogin(fl)
}

// addLogin adds the flags that say which cluster is meant. The default of --kube is what kube says.
func (r *reach) addLogin(fl *pflag.FlagSet) {
	fl.BoolVar(&r.kube, "kube", r.kube, "ask the agents of a cluster, as kubectl namegate does")
	fl.BoolVarP(&r.all, "all-namespaces", "A", false, "of all namespaces")
	fl.StringVar(&r.login.Kubeconfig, "kubeconfig", "", "with --kube: how to reach the cluster (default: as kubectl)")
	fl.StringVar(&r.login.Context, "context", "", "with --kube: the kubeconfig's context")
	fl.StringVar(&r.login.Agents, "agents", client.DefaultNamespace, "with --kube: the namespace that Namegate is installed in")
	fl.BoolVar(&r.login.AllAgents, "all-agents", false, "with --kube: ask the agents of all nodes, also with a token, which each of them sees")
	fl.StringVar(&r.login.Address, "address", "", "with --kube: HOST:PORT at which the agent is reached, such as that of a forwarded port")
}

// check refuses flags that say two things.
func (r *reach) check() error {
	l := r.login
	switch {
	case r.all && r.namespace != "":
		return &console.Misused{Err: errors.New("--all-namespaces and --namespace say two things; leave one out")}
	case !r.kube && (l.Kubeconfig != "" || l.Context != "" || l.Address != "" || l.AllAgents || r.node != "" || l.Agents != client.DefaultNamespace):
		return &console.Misused{Err: errors.New("--kubeconfig, --context, --agents, --node, --all-agents and --address are for --kube, or for kubectl namegate; without it the agent of this node is asked at its --socket")}
	}
	return nil
}

// connect returns the cluster that is asked.
func (r *reach) connect(namespace string) (*client.Cluster, error) {
	if r.known == nil {
		r.login.Namespace = namespace
		c, err := client.Connect(r.login)
		if err != nil {
			return nil, err
		}
		r.known = c
	}
	return r.known, nil
}

// scope returns the namespace that is asked for, "" for all.
func (r *reach) scope() (string, error) {
	if err := r.check(); err != nil {
		return "", err
	}
	if !r.kube || r.all || r.namespace != "" {
		return r.namespace, nil
	}
	c, err := r.connect("")
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
	return r.agentsOf(ctx, r.node, scope, pod)
}

// agentsOf returns the agent of a node, or of a pod, or those of the nodes with pods of a
// namespace, or with none of these all; without a cluster the one of this node.
func (r *reach) agentsOf(ctx context.Context, node, namespace, pod string) ([]client.Agent, error) {
	if !r.kube {
		return []client.Agent{client.Local{Socket: r.socket}}, nil
	}
	c, err := r.connect(namespace)
	if err != nil {
		return nil, err
	}
	if in, name, both := strings.Cut(pod, "/"); both {
		namespace, pod = in, name
	}
	switch {
	case node != "":
		return one(c.OfNode(ctx, node))
	case pod != "" && namespace == "":
		return nil, &console.Misused{Err: errors.New("with --all-namespaces a pod is named NAMESPACE/NAME")}
	case pod != "":
		return one(c.OfPod(ctx, namespace, pod))
	case namespace != "":
		return c.OfNamespace(ctx, namespace)
	}
	return c.All(ctx)
}

func one(a client.Agent, err error) ([]client.Agent, error) {
	if err != nil {
		return nil, err
	}
	return []client.Agent{a}, nil
}
