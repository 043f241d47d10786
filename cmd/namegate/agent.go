package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/namegate/namegate/agent"
	"github.com/namegate/namegate/console/cli"
)

const (
	defaultConfig = "/etc/namegate/Corefile"
	defaultSocket = cli.DefaultSocket
	// gcPercent is how much the heap grows before it is collected, where GOGC does not
	// say: Go's 100 needs 9 MiB more with 100,000 grants (docs/performance.md).
	gcPercent = 75
)

// agentFlags are the flags of which more than one option, or none as it is, is made.
type agentFlags struct {
	agent.Options
	source    string
	newPods   string
	podRanges []string
	cluster   clusterFlags
	listen    listenFlags
}

func agentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Serve this node: answer DNS, enforce policies",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			outliveReaders()
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			return agent.Run(cmd.Context(), o)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func (f *agentFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.source, "source", "", "where policies and pods come from: kube or dir:PATH")
	fl.StringVar(&f.Node, "node-name", "", "this node's name; with dir: pods of other nodes are then known and not served (default there: every pod is local)")
	fl.StringVar(&f.Corefile, "config", defaultConfig, "the Corefile")
	fl.StringVar(&f.Socket, "socket", defaultSocket, "unix socket for the other commands")
	fl.StringVar(&f.HealthSocket, "health-socket", "", "unix socket for `namegate health`, this agent's own (default: none)")
	fl.StringVar(&f.MetricsAddr, "metrics-addr", "", "ADDRESS:PORT of /metrics, /healthz and /readyz (default: none)")
	fl.BoolVar(&f.Profiles, "pprof", false, "serve profiles of the agent there too, at /debug/pprof/")
	fl.StringVar(&f.IPTables, "iptables", "", "iptables variant: legacy or nft (default: what the host uses)")
	fl.BoolVar(&f.Standby, "standby", false, "wait while another agent serves this node, instead of failing")
	fl.StringVar(&f.newPods, "new-pods", hold, "what happens to queries of an address in the node's pod ranges that is no known pod's: Hold or Open")
	fl.StringSliceVar(&f.podRanges, "pod-range", nil, "the node's pod ranges (default: what its Node object says)")
	fl.BoolVar(&f.Nodes, "nodes", false, "enforce policies for nodes on this node")
	fl.StringVar(&f.ResolvConf, "resolv-conf", "/etc/resolv.conf", "the file with the resolvers of the host, which --nodes needs")
	fl.BoolVar(&f.EnforceNetworkPolicies, "enforce-network-policies", false, "enforce NetworkPolicies in both directions for every pod of the node (default: beside policies of other kinds, for the pods and in the directions of these)")
	f.cluster.add(fl)
	f.listen.add(fl)
}

// How --new-pods treats queries of pods that are not known yet: they wait for their pod
// to be known, or go to the resolver.
const (
	hold = "Hold"
	open = "Open"
)

// options checks the flags and returns the agent's options.
func (f *agentFlags) options() (agent.Options, error) {
	o := f.Options
	o.Version, o.Park = version, f.newPods == hold
	if o.Profiles && o.MetricsAddr == "" {
		return o, errors.New("--pprof has no listener to serve on; give --metrics-addr too")
	}
	var err error
	if o.PodRanges, err = f.ranges(); err != nil {
		return o, err
	}
	inCluster := f.source == "kube"
	if o.Nodes && o.Node == "" {
		return o, errors.New("--nodes needs the name of this node; give --node-name")
	}
	if o.Nodes && !f.cluster.watchNodes {
		return o, errors.New("--nodes needs the addresses of all Nodes, which each node reaches whatever its policies say; leave out --watch-nodes=false, or --nodes")
	}
	if o.EnforceNetworkPolicies && !f.cluster.watchNodes {
		return o, errors.New("--enforce-network-policies needs the addresses of all Nodes; leave out --watch-nodes=false, or --enforce-network-policies")
	}
	addrs, err := f.listen.parse(inCluster)
	if err != nil {
		return o, err
	}
	if inCluster {
		o.Cluster, err = f.cluster.options(o.Node, addrs)
		return o, err
	}
	var isDir bool
	if o.Manifests, isDir = strings.CutPrefix(f.source, "dir:"); !isDir || o.Manifests == "" {
		return o, fmt.Errorf("--source %q is not known; write --source kube or --source dir:PATH", f.source)
	}
	return o, nil
}

// ranges returns what --pod-range says.
func (f *agentFlags) ranges() (out []netip.Prefix, err error) {
	if f.newPods != hold && f.newPods != open {
		return nil, fmt.Errorf("--new-pods %q is not known; write %s or %s", f.newPods, hold, open)
	}
	for _, r := range f.podRanges {
		p, err := netip.ParsePrefix(r)
		if err != nil {
			return nil, fmt.Errorf("--pod-range %q is not a range; write for example 10.244.1.0/24", r)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// outliveReaders makes a write to the standard output or error fail where its reader has
// ended, instead of ending the agent.
func outliveReaders() { signal.Ignore(syscall.SIGPIPE) }
