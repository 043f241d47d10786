package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/policy/manifest"
	"github.com/namegate/namegate/proxy"
	"github.com/namegate/namegate/proxy/audit"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/spf13/cobra"
)

const (
	defaultConfig = "/etc/namegate/Corefile"
	defaultSocket = "/run/namegate/agent.sock"
	// drainTime is how long queries under way may take when the agent stops.
	drainTime = 5 * time.Second
)

type agentFlags struct {
	source, nodeName, config, socket, variant string
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
	fl.StringVar(&f.source, "source", "", "where policies and pods come from: dir:PATH")
	fl.StringVar(&f.nodeName, "node-name", "", "this node's name; pods of other nodes are then known and not served (default: every pod is local)")
	fl.StringVar(&f.config, "config", defaultConfig, "the Corefile")
	fl.StringVar(&f.socket, "socket", defaultSocket, "unix socket for the other commands")
	fl.StringVar(&f.variant, "iptables", "", "iptables variant: legacy or nft (default: what the host's iptables is)")
	return cmd
}

// outliveReaders makes the end of whoever reads the standard output or error fail
// the writes there, not end the agent.
func outliveReaders() { signal.Ignore(syscall.SIGPIPE) }

// agent is the wiring of one running agent.
type agent struct {
	log     *slog.Logger
	config  *corefile.Config
	text    *corefile.Source // of config
	nodes   *nodeAddresses
	kernel  *kernel
	enforce *enforcer.Enforcer
	proxy   *proxy.Server
	audit   *audit.Log
	source  *manifest.Source
	rollout *rollout
}

func runAgent(ctx context.Context, f agentFlags) error {
	if os.Geteuid() != 0 {
		return errors.New("agent needs root (CAP_NET_ADMIN) to program the kernel; run it as root")
	}
	outliveReaders()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	dir, ok := strings.CutPrefix(f.source, "dir:")
	if !ok || dir == "" {
		return fmt.Errorf("--source %q is not known; write --source dir:PATH", f.source)
	}
	a := &agent{log: log}
	l, err := load(ctx, f.config)
	if err = errors.Join(err, l.err); err != nil {
		return err
	}
	a.config, a.text = l.config, l.source
	if a.source, err = manifest.New(dir, log, manifest.NodeName(f.nodeName)); err != nil {
		return err
	}
	if a.kernel, err = openKernel(a.config.Mark, f.variant); err != nil {
		return err
	}
	defer a.kernel.close()
	if a.audit, err = openAudit(a.config.Audit, f.nodeName); err != nil {
		return err
	}
	if a.enforce, err = enforcer.New(enforcerConfig(a.config), a.kernel.Kernel, nil, log); err != nil {
		return err
	}
	return a.run(ctx, f)
}

// run brings everything up in the order of the design and takes it down in the
// reverse. What the kernel enforces stays when it returns.
func (a *agent) run(ctx context.Context, f agentFlags) error {
	release, err := claim(f.socket, namespaceLock)
	if err != nil {
		return err
	}
	defer release()
	serving, err := a.enforce.Start(ctx)
	if err != nil {
		return err
	}
	defer a.enforce.Stop()
	if err := a.startProxy(serving); err != nil {
		return err
	}
	defer a.stopProxy()
	a.rollout = newRollout(a)
	socket, err := serveSocket(f.socket, a.status)
	if err != nil {
		return err
	}
	defer socket.close()
	return a.work(ctx, serving)
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

func openAudit(c corefile.Audit, node string) (*audit.Log, error) {
	if c.Off {
		return nil, nil
	}
	if node == "" {
		node, _ = os.Hostname()
	}
	return audit.Open(audit.Options{Node: node, Path: c.Path, Size: c.Size, Keep: c.Keep})
}
