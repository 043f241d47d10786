package failsafes

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"time"

	"k8s.io/utils/clock"

	"github.com/namegate/namegate/kernel/underlay"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

// Options are the parameters of a Keeper. All but Connected and Clock are needed.
type Options struct {
	// Node is the name of the agent's Node object.
	Node string
	// APIServer is HOST:PORT of the API server as the agent dials it.
	APIServer string
	// Host has the host's files, as os.DirFS returns them. Links are followed inside it.
	Host     fs.FS
	Underlay underlay.Interface
	Resolver Resolver
	Log      *slog.Logger
	Clock    clock.Clock // nil: the system's
}

func (o *Options) check() error {
	switch {
	case o.Node == "" || o.APIServer == "":
		return errors.New("failsafes need the name of the node and the address of the API server")
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

// Corefile is the Corefile's part of the sources.
type Corefile struct {
	// Failsafes are the entries of the directive failsafe.
	Failsafes []policy.Failsafe
	// Upstreams are the addresses of the forwards.
	Upstreams []netip.AddrPort
	// Ranges are the pod and Service ranges.
	Ranges []netip.Prefix
}

// Keeper keeps the failsafes of a node.
type Keeper struct{ o Options }

// New returns a Keeper. It reads nothing before Run.
func New(o Options) (*Keeper, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Keeper{o: o}, nil
}

// SetCluster takes over the objects of the cluster. It may be called at any time.
func (k *Keeper) SetCluster(Cluster) {}

// SetCorefile takes over the configuration. It may be called at any time.
func (k *Keeper) SetCorefile(Corefile) {}

// Learn takes over the addresses that a query of the host for one of List.Names was answered
// with. It may be called at any time.
func (k *Keeper) Learn(name string, addrs []netip.Addr) {}

// Run calls receive with the failsafes, from one goroutine, whenever they changed, until ctx
// ends. The first call waits for SetCluster, for SetCorefile and for the first answer or error
// of every name.
func (k *Keeper) Run(ctx context.Context, receive func(*failsafe.List)) error {
	<-ctx.Done()
	return nil
}
