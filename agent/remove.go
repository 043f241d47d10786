package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/namegate/namegate/agent/handover"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/kernel/inject"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/status"
)

// Cleanup removes every rule, set, table and address of Namegate from this node, of any
// dataplane, also where programs of iptables or ipset are missing. Of o it
// needs Corefile, Socket, IPTables and Log. It fails while an agent has the node.
func Cleanup(ctx context.Context, o Options) error {
	if os.Geteuid() != 0 {
		return errors.New("cleanup needs root (CAP_NET_ADMIN); run it as root")
	}
	// Without a Corefile that can be read, the defaults say what to look for.
	c, err := corefile.Load(o.Corefile)
	if err != nil {
		c = corefile.Default()
	}
	release, err := handover.NewLock(o.Socket).Claim()
	if err != nil {
		return err
	}
	defer release()
	variant, err := parseVariant(o.IPTables)
	if err != nil {
		return err
	}
	k, err := openKernel(c, func(k *kernel) error { return k.openForRemoval(ctx, variant) })
	if err != nil {
		return err
	}
	defer k.close()
	e, err := enforcer.New(enforcerConfig(c), k.Kernel, nil, o.Log)
	if err != nil {
		return err
	}
	return errors.Join(e.Cleanup(ctx), inject.Remove())
}

// uninstallTime bounds Uninstall: it must not hang on the API server.
const uninstallTime = time.Minute

// Uninstall removes the objects that the agents of a cluster wrote to the API server, and
// marks their DaemonSet so that they write nothing again.
func Uninstall(ctx context.Context, o Cluster, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, uninstallTime)
	defer cancel()
	c, err := connect(o.Kubeconfig)
	if err != nil {
		return err
	}
	r, err := status.New(status.Options{Client: c, Dynamic: c.dynamic, Namespace: o.Namespace, DaemonSet: o.DaemonSet, Log: log})
	if err != nil {
		return err
	}
	return r.Withdraw(ctx)
}
