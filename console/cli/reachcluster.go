package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
)

// clusterReach finds the agents of a cluster, with kubectl's own files and words.
type clusterReach struct {
	on    bool // else the agent of this node is asked
	all   bool
	node  string
	login client.Login
	known *client.Cluster
}

// add adds the flags. The default of --kube is what on says.
func (r *clusterReach) add(fl *pflag.FlagSet) {
	r.addLogin(fl)
	fl.StringVar(&r.node, "node", "", "with --kube: ask the agent of this node alone")
}

// addLogin adds the flags that say which cluster is meant.
func (r *clusterReach) addLogin(fl *pflag.FlagSet) {
	fl.BoolVar(&r.on, "kube", r.on, "ask the agents of a cluster, as kubectl namegate does")
	fl.BoolVarP(&r.all, "all-namespaces", "A", false, "of all namespaces")
	fl.StringVar(&r.login.Kubeconfig, "kubeconfig", "", "with --kube: how to reach the cluster (default: as kubectl)")
	fl.StringVar(&r.login.Context, "context", "", "with --kube: the kubeconfig's context")
	fl.StringVar(&r.login.Agents, "agents", client.DefaultNamespace, "with --kube: the namespace that Namegate is installed in")
	fl.BoolVar(&r.login.AllAgents, "all-agents", false, "with --kube: ask the agents of all nodes, also with a token, which each of them sees")
	fl.StringVar(&r.login.Address, "address", "", "with --kube: HOST:PORT at which the agent is reached, such as that of a forwarded port")
}

// check refuses flags that say two things.
func (r *clusterReach) check(namespace string) error {
	l := r.login
	switch {
	case r.all && namespace != "":
		return &console.Misused{Err: errors.New("--all-namespaces and --namespace say two things; leave one out")}
	case !r.on && (l.Kubeconfig != "" || l.Context != "" || l.Address != "" || l.AllAgents || r.node != "" || l.Agents != client.DefaultNamespace):
		return &console.Misused{Err: errors.New("--kubeconfig, --context, --agents, --node, --all-agents and --address are for --kube, or for kubectl namegate; without it the agent of this node is asked at its --socket")}
	}
	return nil
}

// connect returns the cluster that is asked.
func (r *clusterReach) connect(namespace string) (*client.Cluster, error) {
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

// agents returns the agent of a pod, or those of the nodes with pods of a
// namespace, or with neither all.
func (r *clusterReach) agents(ctx context.Context, namespace, pod string) ([]client.Agent, error) {
	c, err := r.connect(namespace)
	if err != nil {
		return nil, err
	}
	one := func(a client.Agent, err error) ([]client.Agent, error) {
		if err != nil {
			return nil, err
		}
		return []client.Agent{a}, nil
	}
	if in, name, both := strings.Cut(pod, "/"); both {
		namespace, pod = in, name
	}
	switch {
	case r.node != "":
		return one(c.OfNode(ctx, r.node))
	case pod != "" && namespace == "":
		return nil, &console.Misused{Err: errors.New("with --all-namespaces a pod is named NAMESPACE/NAME")}
	case pod != "":
		return one(c.OfPod(ctx, namespace, pod))
	case namespace != "":
		return c.OfNamespace(ctx, namespace)
	}
	return c.All(ctx)
}
