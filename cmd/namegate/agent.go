package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/denial"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/kernel/inject"
	"github.com/namegate/namegate/proxy"
	"github.com/namegate/namegate/proxy/corefile"
)

const (
	defaultConfig = "/etc/namegate/Corefile"
	defaultSocket = "/run/namegate/agent.sock"
	// drainTime is how long queries under way may take when the agent stops.
	drainTime = 5 * time.Second
	// gcPercent is how much the heap grows before it is collected, where GOGC does not
	// say: Go's 100 needs 9 MiB more with 100,000 grants (docs/performance.md).
	gcPercent = 75
	// leaveTime bounds how long an agent that is not to come back removes its rules.
	leaveTime = 20 * time.Second
)

type agentFlags struct {
	source, nodeName, config, socket, variant string
	healthSocket, metricsAddr                 string
	pprof                                     bool
	standby                                   bool
	newPods                                   string
	podRanges                                 []string
	cluster                                   clusterFlags
	listen                                    listenFlags
}

func agentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Serve this node: answer DNS, enforce policies",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runAgent(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.source, "source", "", "where policies and pods come from: kube or dir:PATH")
	fl.StringVar(&f.nodeName, "node-name", "", "this node's name; with dir: pods of other nodes are then known and not served (default there: every pod is local)")
	fl.StringVar(&f.config, "config", defaultConfig, "the Corefile")
	fl.StringVar(&f.socket, "socket", defaultSocket, "unix socket for the other commands")
	fl.StringVar(&f.healthSocket, "health-socket", "", "unix socket for `namegate health`, this agent's own (default: none)")
	fl.StringVar(&f.metricsAddr, "metrics-addr", "", "ADDRESS:PORT of /metrics, /healthz and /readyz (default: none)")
	fl.BoolVar(&f.pprof, "pprof", false, "serve profiles of the agent there too, at /debug/pprof/")
	fl.StringVar(&f.variant, "iptables", "", "iptables variant: legacy or nft (default: what the host uses)")
	fl.BoolVar(&f.standby, "standby", false, "wait while another agent serves this node, instead of failing")
	fl.StringVar(&f.newPods, "new-pods", hold, "what happens to queries of an address in the node's pod ranges that is no known pod's: Hold or Open")
	fl.StringSliceVar(&f.podRanges, "pod-range", nil, "the node's pod ranges (default: what its Node object says)")
	f.cluster.add(fl)
	f.listen.add(fl)
	return cmd
}

// What happens to queries of pods that are not known yet: they wait for their
// pod to be known, or go to the resolver.
const (
	hold = "Hold"
	open = "Open"
)

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

// outliveReaders makes the end of whoever reads the standard output or error fail
// the writes there, not end the agent.
func outliveReaders() { signal.Ignore(syscall.SIGPIPE) }

// agent is the wiring of one running agent.
type agent struct {
	log     *slog.Logger
	config  atomic.Pointer[corefile.Config] // the running one
	text    *corefile.Source                // as it was read at the start
	health  *health
	source  source
	cluster *cluster // nil without one
	nodes   *nodeAddresses
	network *network
	kernel  *kernel
	enforce *enforcer.Enforcer
	proxy   *proxy.Server
	audit   *audit.Log
	memory  *recent.Memory
	denials *denial.Denials
	packets interface{ Lost() uint64 } // of denied connections
	paths   *pathTests
	// injector makes packets of the self-test; nil before the first.
	injector inject.Interface
	rollout  *rollout
}

func runAgent(ctx context.Context, f agentFlags) error {
	if os.Geteuid() != 0 {
		return errors.New("agent needs root (CAP_NET_ADMIN) to program the kernel; run it as root")
	}
	if err := f.checkMetrics(); err != nil {
		return err
	}
	outliveReaders()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	a := &agent{log: log, health: newHealth(time.Now)}
	l, err := load(ctx, f.config)
	if err = errors.Join(err, l.err); err != nil {
		return err
	}
	a.config.Store(l.config)
	a.text = l.source
	ranges, err := f.ranges()
	if err != nil {
		return err
	}
	if _, err := f.listen.parse(f.source == "kube"); err != nil {
		return err
	}
	a.network = &network{agent: a, hold: f.newPods == hold, ranges: ranges}
	if err := a.openSource(f); err != nil {
		return err
	}
	if err := a.source.follow(l.config); err != nil {
		return err
	}
	if a.kernel, err = openKernel(l.config.Mark, f.variant); err != nil {
		return err
	}
	defer a.kernel.close()
	if a.audit, err = openAudit(l.config, f.nodeName, log); err != nil {
		return err
	}
	if a.enforce, err = enforcer.New(enforcerConfig(l.config), a.kernel.Kernel, nil, log); err != nil {
		return err
	}
	a.health.set(func(h *health) { h.deviations = a.enforce.Deviations })
	if err := a.openDenials(); err != nil {
		return err
	}
	return a.run(ctx, f)
}

// run reads the source and answers probes from the beginning, and does the
// agent's work as soon as the node is free.
func (a *agent) run(ctx context.Context, f agentFlags) error {
	if f.healthSocket != "" {
		s, err := a.health.serve(f.healthSocket)
		if err != nil {
			return err
		}
		defer s.close()
	}
	a.rollout = newRollout(a)
	a.paths = newPathTests(a.testPath, a.rollout.views, a.log)
	g, ctx := errgroup.WithContext(ctx)
	up := make(chan struct{})
	g.Go(func() error {
		// An agent that stands by has read everything when its turn comes. Another
		// first sees whether it can work at all.
		if !f.standby {
			select {
			case <-up:
			case <-ctx.Done():
				return nil
			}
		}
		return a.source.run(ctx, a.rollout.offer)
	})
	if a.cluster != nil {
		g.Go(func() error { return a.cluster.placement.Run(ctx) })
	}
	g.Go(func() error { return a.serve(ctx, f, func() { close(up) }) })
	return g.Wait()
}

// serve brings everything up in the order of the design and takes it down in the
// reverse. What the kernel enforces stays when it returns, unless the agent is not
// to come back to this node. It calls up when everything that can fail at the start
// has not.
func (a *agent) serve(ctx context.Context, f agentFlags, up func()) error {
	release, err := take(ctx, f.standby, func() (func(), error) { return claim(f.socket, namespaceLock) },
		func() (func(), error) { return claimStandby(f.socket) }, a.health, a.log)
	if ctx.Err() != nil {
		return nil // ended while it stood by
	}
	if err != nil {
		return err
	}
	defer release()
	defer a.leave()
	serving, err := a.startEnforcer(ctx)
	if err != nil {
		return err
	}
	defer a.enforce.Stop()
	if err := a.startProxy(serving); err != nil {
		return err
	}
	defer a.stopProxy()
	socket, err := serveSocket(f.socket, a.console(f)(asRoot))
	if err != nil {
		return err
	}
	defer socket.close()
	a.log.Info("the agent has this node", "iptables", a.kernel.variant, "because", a.kernel.why)
	up()
	return a.work(ctx, f, release)
}

// startTries is how often the enforcer is started, startPause apart: another program may
// take away what a start has just written, and is over soon.
const (
	startTries = 3
	startPause = 200 * time.Millisecond
)

// startEnforcer starts the enforcer and returns the addresses to serve on.
func (a *agent) startEnforcer(ctx context.Context) (serving []netip.Addr, err error) {
	for try := 1; ; try++ {
		if serving, err = a.enforce.Start(ctx); err == nil || try == startTries || enforcer.IsMarkTaken(err) {
			return serving, err
		}
		a.log.Warn("the start failed; trying again", "after", startPause, "error", err)
		if wait(ctx, startPause) != nil {
			return nil, err
		}
	}
}

// leaving tells whether the agent is not to come back to this node.
func (a *agent) leaving() bool { return a.cluster != nil && a.cluster.placement.Leaving() }

// leave removes everything from the kernel if the agent is not to come back.
func (a *agent) leave() {
	if !a.leaving() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := errors.Join(a.enforce.Cleanup(ctx), inject.Remove()); err != nil {
		a.log.Error("something of Namegate stays on this node; run `namegate cleanup` there", "error", err)
		return
	}
	a.log.Info("this node is not Namegate's any more: every rule, set, table and address is removed")
}

// stopPaths removes what the self-test needed of the kernel.
func (a *agent) stopPaths() {
	if a.injector == nil {
		return
	}
	if err := a.injector.Close(); err != nil {
		a.log.Warn("something of the self-test stays; `namegate cleanup` removes it", "error", err)
	}
}

func (a *agent) stopProxy() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := a.proxy.Close(ctx); err != nil {
		a.log.Warn("queries were under way when the agent stopped", "error", err)
	}
	if a.audit == nil {
		return
	}
	if err := a.audit.Close(ctx); err != nil {
		a.log.Warn("the end of the audit log is lost", "error", err)
	}
}

func openAudit(c *corefile.Config, node string, log *slog.Logger) (*audit.Log, error) {
	if c.Audit.Off {
		return nil, nil
	}
	if node == "" {
		node, _ = os.Hostname()
	}
	return audit.Open(audit.Options{Node: node, Path: c.Audit.Path, Size: c.Audit.Size, Keep: c.Audit.Keep, Filter: c.AuditFilter, Logger: log})
}
