package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/namegate/namegate/console/client"
)

// live asks the agents for the lines that they keep, or follows them. A failing agent
// does not affect the others' lines.
func (s *suggesting) live(ctx context.Context) error {
	agents, query, err := s.ask.found(ctx, s.pod)
	if err != nil {
		return err
	}
	if s.one.cluster { // asks for the right to read the kind
		query.Set("cluster", "1")
	}
	if s.one.nodes {
		query.Set("nodes", "1")
	}
	if s.during > 0 {
		query.Set("follow", "1")
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, s.during)
		defer stop()
	}
	return s.gather(ctx, agents, query)
}

// gather reads the lines of all agents in parallel. That the time to follow them is over is no error; the error is
// for the case that no agent answers.
func (s *suggesting) gather(ctx context.Context, agents []client.Agent, query url.Values) error {
	errs := client.Logs(ctx, agents, query, func(i int, resp *http.Response) error { return s.read(agentName(agents[i]), resp.Body) })
	answered := false
	for i, err := range errs {
		if s.during > 0 && ctx.Err() != nil {
			err = nil
		}
		if answered = answered || err == nil; err != nil && len(agents) > 1 {
			s.say("node %s: %v", agents[i].Node(), err)
		}
		s.broken = cmp.Or(s.broken, err)
	}
	if !answered {
		return s.broken
	}
	return nil
}

// agentName names an agent in messages about its lines.
func agentName(a client.Agent) string {
	if a.Node() == "" {
		return "agent"
	}
	return "agent of " + a.Node()
}

// networkPolicies reads the cluster's NetworkPolicies, of which another engine may need some beside the
// suggested policies. Without the right to list them, the suggestion has none.
func (s *suggesting) networkPolicies(ctx context.Context) {
	at, err := s.ask.reach.connect(s.filter.Namespace)
	if err == nil {
		err = at.List(ctx, networkingv1.SchemeGroupVersion.WithResource("networkpolicies"), s.filter.Namespace, func(u *unstructured.Unstructured) error {
			n := &networkingv1.NetworkPolicy{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, n); err != nil {
				return fmt.Errorf("networkpolicy %s/%s: %w", u.GetNamespace(), u.GetName(), err)
			}
			s.o.NetworkPolicies = append(s.o.NetworkPolicies, n)
			return nil
		})
	}
	if err != nil {
		s.say("without NetworkPolicies for another engine: %v", err)
	}
}
