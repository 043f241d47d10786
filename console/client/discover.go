package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/entry"
)

// podsPage is how many pods are listed at a time.
const podsPage = 500

// OfPod returns the agent of a pod's node. Errors are *console.Refusal (there is no
// such pod, or it is not to be read), or *console.Unreachable.
func (c *Cluster) OfPod(ctx context.Context, namespace, name string) (Agent, error) {
	what := "pod " + namespace + "/" + name
	p, err := c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, console.Refuse(http.StatusNotFound, "there is no pod %s/%s; kubectl get pods -n %s lists those there are", namespace, name, namespace)
	case apierrors.IsForbidden(err):
		return nil, console.Refuse(http.StatusForbidden, "you may not get %s, so its node is not known; --node NODE names it", what)
	case err != nil:
		return nil, c.failed("read "+what, err)
	case p.Spec.NodeName == "":
		return nil, console.Refuse(http.StatusNotFound, "%s is on no node yet, so no agent knows it; kubectl describe pod -n %s %s says why", what, namespace, name)
	}
	return c.OfNode(ctx, p.Spec.NodeName)
}

// OfNode returns the agent of a node.
func (c *Cluster) OfNode(ctx context.Context, node string) (Agent, error) {
	e, err := c.entry(ctx, node)
	if err != nil {
		return nil, err
	}
	return &remote{c, e}, nil
}

// OfNamespace returns the agents of the nodes on which a namespace has pods, or all
// agents if the caller may not list its pods. For a node without an agent it returns one
// that reports this.
func (c *Cluster) OfNamespace(ctx context.Context, namespace string) ([]Agent, error) {
	nodes := map[string]bool{}
	err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.client.CoreV1().Pods(namespace).List(ctx, o)
	}).EachListItem(ctx, metav1.ListOptions{Limit: podsPage}, func(o runtime.Object) error {
		if p := o.(*corev1.Pod); p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			nodes[p.Spec.NodeName] = true
		}
		return nil
	})
	switch {
	case apierrors.IsForbidden(err):
		return c.All(ctx)
	case err != nil:
		return nil, c.failed("list the pods of "+namespace, err)
	}
	if len(nodes) == 0 {
		return c.All(ctx) // agents may still know denied connections of deleted pods
	}
	found, err := c.entries(ctx)
	if err != nil {
		return nil, err
	}
	var out []Agent
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		if a, ok := found[node]; ok {
			out = append(out, a)
		} else {
			out = append(out, away{node, c.noAgent(node)})
		}
	}
	return c.one(out)
}

// All returns all agents, by the names of their nodes. Each agent sees the token of its caller: a caller with one is
// refused, unless the login says that all agents may have it.
func (c *Cluster) All(ctx context.Context) ([]Agent, error) {
	if !c.login.AllAgents {
		token, err := c.sendsToken(ctx)
		if err != nil {
			return nil, err
		}
		if token {
			return nil, console.Refuse(http.StatusForbidden, "this would send your token to the agents of all nodes, and who is root on one of them can take it; ask one agent with --node NODE, or a namespace with pods with -n, or send it to all with --all-agents; a client certificate needs neither")
		}
	}
	found, err := c.entries(ctx)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, c.noAgents()
	}
	var out []Agent
	for _, node := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[node])
	}
	return c.one(out)
}

// noAgents says that no agent is found.
func (c *Cluster) noAgents() error {
	return &console.Unreachable{Err: fmt.Errorf("no agent published a console in namespace %s; is Namegate installed there, with console.enabled? --agents names another namespace", c.login.Agents)}
}

// one refuses several agents where one address is to be dialled.
func (c *Cluster) one(agents []Agent) ([]Agent, error) {
	if c.login.Address != "" && len(agents) > 1 {
		return nil, &console.Misused{Err: errors.New("--address is that of one agent; name its node with --node, or a pod")}
	}
	return agents, nil
}

// entry returns the published entry of a node's agent.
func (c *Cluster) entry(ctx context.Context, node string) (entry.Entry, error) {
	lease, err := c.lease(ctx, entry.LeaseOf(node))
	if err != nil {
		return entry.Entry{}, err
	}
	if lease != nil {
		if text, ok := lease.Annotations[(entry.Entry{Node: node}).Key()]; ok {
			return c.decode(node, text)
		}
	}
	return entry.Entry{}, c.noAgent(node)
}

// entries returns all agents that published, by the names of their nodes.
func (c *Cluster) entries(ctx context.Context) (map[string]Agent, error) {
	names := entry.LeaseNames()
	leases := make([]*coordinationv1.Lease, len(names))
	g, ctx := errgroup.WithContext(ctx)
	for i, name := range names {
		g.Go(func() (err error) {
			leases[i], err = c.lease(ctx, name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := map[string]Agent{}
	for _, lease := range leases {
		if lease == nil {
			continue
		}
		for key, text := range lease.Annotations {
			node, ours := strings.CutSuffix(key, entry.Suffix)
			if !ours || entry.LeaseOf(node) != lease.Name {
				continue
			}
			if e, err := c.decode(node, text); err == nil {
				out[node] = &remote{c, e}
			} else {
				out[node] = away{node, err}
			}
		}
	}
	return out, nil
}

// lease reads one Lease, nil if there is none.
func (c *Cluster) lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	lease, err := c.client.CoordinationV1().Leases(c.login.Agents).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return nil, console.Refuse(http.StatusForbidden,
			"you may not read where the agents are (get Leases %s0 to %sf in namespace %s); have an administrator add a group of yours to the chart's console.readers, or bind the Role there whose name ends in -console to you; is Namegate in another namespace, --agents names it",
			entry.LeasePrefix, entry.LeasePrefix, c.login.Agents)
	case err != nil:
		return nil, c.failed("read where the agents are", err)
	}
	return lease, nil
}

func (c *Cluster) decode(node, text string) (entry.Entry, error) {
	e, err := entry.Decode(node, text)
	if err != nil {
		return entry.Entry{}, &console.Unreachable{Err: fmt.Errorf("%w; is the agent of another version than this command?", err)}
	}
	return e, nil
}

// noAgent says that a node has no agent that published.
func (c *Cluster) noAgent(node string) error {
	return &console.Unreachable{Err: fmt.Errorf("node %s has no agent that could be asked; kubectl -n %s get pods -o wide shows the agents (--agents names another namespace)", node, c.login.Agents)}
}

// failed wraps an error of a request to the API server.
func (c *Cluster) failed(what string, err error) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return console.Refuse(http.StatusUnauthorized, "the API server does not know you; log in again, as for kubectl")
	case apierrors.IsForbidden(err):
		return console.Refuse(http.StatusForbidden, "%s: %v", what, err)
	}
	return &console.Unreachable{Err: fmt.Errorf("%s: %w", what, err)}
}
