package failsafes

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/namegate/namegate/kernel/underlay"
	"github.com/namegate/namegate/policy"
)

// Options are the parameters of a Keeper. All but APIServer, File and Clock are needed.
type Options struct {
	// Node is the name of the agent's Node object.
	Node string
	// APIServer is HOST:PORT of the API server as the agent dials it; "" for a host that is no
	// node of a cluster.
	APIServer string
	// Host has the host's files, as os.DirFS returns them. Links are followed inside it.
	Host     fs.FS
	Underlay underlay.Interface
	Resolver Resolver
	// File keeps the addresses of names for the next agent; "" for none.
	File  string
	Log   *slog.Logger
	Clock clock.Clock // nil: the system's
}

func (o *Options) check() error {
	switch {
	case o.Node == "":
		return errors.New("failsafes need the name of the node")
	case o.Host == nil || o.Underlay == nil || o.Resolver == nil || o.Log == nil:
		return errors.New("failsafes need the host's files, its underlay, a resolver and a log")
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return nil
}

// Resolver resolves the names of destinations, as the host's programs do.
type Resolver interface {
	// Lookup returns the addresses of a name, and how long they count. ErrNoAddresses: the
	// resolvers answered, and the name has none.
	Lookup(ctx context.Context, name string) (addrs []netip.Addr, ttl time.Duration, err error)
}

// ErrNoAddresses means: a name does not exist or has no address.
var ErrNoAddresses = errors.New("the name has no addresses")

// Cluster is the cluster's part of the sources.
type Cluster struct {
	policy.Cluster
	// Pods are the addresses of this node's pods.
	Pods []netip.Addr
}

// same tells whether two values have the same failsafes. States with other pods alone come
// often.
func (c *Cluster) same(o *Cluster) bool {
	return slices.Equal(c.Hosts, o.Hosts) && slices.Equal(c.Pods, o.Pods) &&
		slices.Equal(c.PodRanges, o.PodRanges) && slices.Equal(c.LocalRanges, o.LocalRanges) && slices.Equal(c.ClusterIPs, o.ClusterIPs) &&
		slices.Equal(c.APIServers.Service, o.APIServers.Service) && slices.Equal(c.APIServers.Endpoints, o.APIServers.Endpoints) &&
		maps.EqualFunc(c.Resolvers, o.Resolvers, func(a, b policy.Resolver) bool {
			return slices.Equal(a.ClusterIPs, b.ClusterIPs) && slices.Equal(a.Endpoints, b.Endpoints)
		})
}

// Corefile is the Corefile's part of the sources.
type Corefile struct {
	// Failsafes are the entries of the directive failsafe.
	Failsafes []policy.Failsafe
	// Upstreams are the addresses of the forwards.
	Upstreams []netip.AddrPort
	// Ranges are the pod and Service ranges.
	Ranges []netip.Prefix
}
