package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/agent/health"
	"github.com/namegate/namegate/agent/metrics"
	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/agent/safeguard"
	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/denial"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/proxy"
	"github.com/namegate/namegate/proxy/corefile"
)

// agent is the wiring of one running agent.
type agent struct {
	o        Options
	log      *slog.Logger
	config   atomic.Pointer[corefile.Config] // the running one
	text     *corefile.Source                // as it was read at the start
	health   *health.Health
	source   source
	cluster  *cluster // nil without one
	nodes    *nodeAddresses
	host     *hostNode // nil: policies do not select nodes
	network  *network
	kernel   *kernel
	enforce  *enforcer.Enforcer
	proxy    *proxy.Server
	audit    *audit.Log
	memory   *recent.Memory
	denials  *denial.Denials
	relay    *relaying
	packets  interface{ Lost() uint64 } // of denied connections
	selfTest *selfTest
	// injector makes packets of the self-test and of resets.
	injector injector
	rollout  *rollout.Rollout
	// safeguard decides which policies for the node are only audited.
	safeguard *safeguard.Guard
	timing    *metrics.Timing
}

// Run serves a node until ctx ends or a part of the agent cannot go on. What the kernel
// enforces stays when it returns, unless the agent is not to come back to the node.
func Run(ctx context.Context, o Options) error {
	if os.Geteuid() != 0 {
		return errors.New("agent needs root (CAP_NET_ADMIN) to program the kernel; run it as root")
	}
	a := &agent{o: o, log: o.Log, health: health.New(time.Now), timing: metrics.NewTiming(time.Now)}
	text, err := await(ctx, func() *corefile.Source { return corefile.Read(o.Corefile) })
	if err != nil {
		return err
	}
	config, err := text.Config()
	if err != nil {
		return err
	}
	a.config.Store(config)
	a.text = text
	a.network = &network{agent: a, park: o.Park, ranges: o.PodRanges, host: newHostDNS(a.testLoop, func() { a.rollout.Reconfigure() }, time.Now, a.log)}
	if err := a.openSource(); err != nil {
		return err
	}
	if err := a.source.follow(config); err != nil {
		return err
	}
	if o.HealthSocket != "" {
		s, err := a.health.Serve(o.HealthSocket)
		if err != nil {
			return err
		}
		defer s.Close()
	}
	if err := a.openKernel(ctx); err != nil {
		return err
	}
	defer a.kernel.close()
	if a.audit, err = openAudit(config, o.Node, a.log); err != nil {
		return err
	}
	a.kernel.Inject = a.injector.Send
	wanted := enforcerConfig(config)
	wanted.Attached, wanted.EnforceNetworkPolicies, wanted.Reprepare = a.attached, o.EnforceNetworkPolicies, func() { a.rollout.Reconfigure() }
	wanted.Inside, wanted.RightsLost = a.ofCluster, func() { a.relay.rightsLost() }
	if a.enforce, err = enforcer.New(wanted, a.kernel.Kernel, nil, a.log); err != nil {
		return err
	}
	a.enforce.Grants().SetBounds(config.Limits.GrantsPerPod, config.Limits.Grants)
	a.health.Watch(a.deviations)
	a.relay = a.newRelaying(config)
	if err := a.openDenials(); err != nil {
		return err
	}
	a.safeguard = a.newSafeguard()
	a.rollout = rollout.New(rollout.Options{Stages: &stages{a}, Health: a.health, Timing: a.timing, Log: a.log, Amend: a.safeguard.Amend})
	a.selfTest = newSelfTest(a.testPath, a.views, a.log)
	if o.Nodes {
		a.openHostNode()
	}
	return a.run(ctx)
}

// openKernel opens the kernel. Where probes are answered, a dataplane that does not work is
// their answer, until it works.
func (a *agent) openKernel(ctx context.Context) error {
	variant, err := parseVariant(a.o.IPTables)
	if err != nil {
		return err
	}
	c := a.config.Load()
	choose := func(k *kernel) error { return k.chooseDataplane(ctx, c.Dataplane, variant) }
	open := func() (*kernel, error) { return openKernel(c, choose) }
	if a.o.HealthSocket == "" {
		a.kernel, err = open()
	} else {
		a.kernel, err = awaitDataplane(ctx, open, a.health, a.log)
	}
	return err
}

// deviations names the kernel objects that are not as wanted, and why they are not repaired.
func (a *agent) deviations() (objects []string) {
	for _, d := range a.enforce.Deviations() {
		if d.Error != "" {
			d.Object += " (" + d.Error + ")"
		}
		objects = append(objects, d.Object)
	}
	return objects
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
