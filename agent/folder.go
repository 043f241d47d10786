package agent

import (
	"context"
	"fmt"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/source/manifest"
)

// source is where policies and pods come from.
type source interface {
	// run calls receive with each state until ctx ends.
	run(ctx context.Context, receive func(rollout.State)) error
	// follow watches the Services that a Corefile forwards to.
	follow(*corefile.Config) error
}

// openSource opens the source of the options.
func (a *agent) openSource() error {
	if a.o.Cluster != nil {
		return a.openCluster(*a.o.Cluster)
	}
	s, err := manifest.New(a.o.Manifests, a.o.Node, a.log)
	a.source = folder{s, a.o.Node, a.o.EnforceNetworkPolicies}
	return err
}

// folder is a source of manifests.
type folder struct {
	*manifest.Source
	node string // this node's name
	// enforce: NetworkPolicies are enforced alone.
	enforce bool
}

func (f folder) run(ctx context.Context, receive func(rollout.State)) error {
	return f.Run(ctx, func(s manifest.State) {
		s.Input.EnforceNetworkPolicies = f.enforce
		receive(rollout.State{Input: s.Input, Problems: s.Problems, Files: s.FileErrors, Cluster: f.cluster(s.Input.Nodes)})
	})
}

func (f folder) follow(c *corefile.Config) error {
	if services := c.Services(); len(services) > 0 {
		return fmt.Errorf("%s forwards to the Service %s, which a folder of manifests does not know; write addresses", c.File, services[0])
	}
	return nil
}

// cluster returns what the Nodes of a folder tell about the cluster.
func (f folder) cluster(nodes []*policy.Pod) (out policy.Cluster) {
	for _, n := range nodes {
		out.Nodes = append(out.Nodes, n.IPs...)
		if n.Name == f.node {
			out.Own = &policy.Host{Labels: n.Labels, Addrs: n.IPs}
		}
	}
	return out
}
