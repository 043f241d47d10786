package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/namegate/namegate/agent/health"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/enforcer/dataplane/nftables"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/stats"
)

// unusable says why iptables, which the Corefile names, does not work on this node.
type unusable struct{ why error }

func (u *unusable) Error() string {
	return fmt.Sprintf("dataplane iptables does not work on this node: %v; "+
		`install the package iptables and load the kernel modules ip_set and xt_set, or write "dataplane nftables" in the Corefile (corefile.dataplane in the chart's values)`, u.why)
}

func (u *unusable) Unwrap() error { return u.why }

// choose returns the dataplane that the Corefile wants, and the reason for it. lacks is why
// iptables does not work on this node, nil if it does.
func choose(want corefile.Dataplane, lacks error) (d corefile.Dataplane, reason string, err error) {
	switch {
	case want == corefile.IPTables && lacks != nil:
		return want, "", &unusable{lacks}
	case want != corefile.Auto:
		return want, "the Corefile names it", nil
	case lacks != nil:
		return corefile.NFTables, fmt.Sprintf("iptables does not work on this node: %v", lacks), nil
	}
	return corefile.IPTables, "iptables and ipset work on this node", nil
}

// chooseDataplane opens the dataplane that the Corefile wants. variant is that of iptables,
// Default for the host's.
func (k *kernel) chooseDataplane(ctx context.Context, want corefile.Dataplane, variant iptables.Variant) error {
	x, lacks := k.openIPTables(ctx, variant)
	d, reason, err := choose(want, lacks)
	if err != nil {
		return err
	}
	k.dataplane = stats.Dataplane{Name: string(d), Reason: reason}
	if d == corefile.IPTables {
		k.dataplane.Variant = string(k.variant)
		k.Dataplane = x.New
		k.Other = &enforcer.Other{Left: k.tables().DecidedNamespace, New: nftables.Config{Tables: k.Tables}.New}
		return nil
	}
	k.Dataplane = nftables.Config{Tables: k.Tables}.New
	k.Other = &enforcer.Other{New: x.New, Unreadable: lacks != nil, Left: x.Left}
	return nil
}

// openIPTables opens what the node has of the dataplane iptables. The error says what does not
// work.
func (k *kernel) openIPTables(ctx context.Context, variant iptables.Variant) (xtables.Config, error) {
	x := xtables.Config{RemoveChains: k.Tables.RemoveChains}
	sets, lacks := ipset.Open()
	if lacks == nil {
		x.Sets, k.closers = sets, append(k.closers, sets.Close)
	}
	var err error
	k.variant, k.why = variant, "--iptables says so"
	if variant == iptables.Default {
		if k.variant, k.why, err = iptables.Detect(ctx, xtables.ChainPrefix); err != nil {
			return x, err
		}
	}
	if other := iptables.OpenOther(k.variant); other != nil {
		x.Other = other
	}
	chains, err := iptables.NewExec(k.variant)
	if err != nil {
		return x, err
	}
	chains.Around(k.Tables.Own)
	if x.Chains = chains; lacks != nil {
		return x, lacks
	}
	return x, chains.CheckSets(ctx)
}

// openForRemoval opens what an agent of any dataplane may have left objects in. Parts that the
// node lacks hold none, but for chains of the legacy variant: without its program the error of
// the removal says that they may remain.
func (k *kernel) openForRemoval(ctx context.Context, variant iptables.Variant) error {
	x, lacks := k.openIPTables(ctx, variant)
	if x.Chains == nil && !iptables.IsMissing(lacks) {
		return lacks
	}
	if x.Chains == nil || k.variant == iptables.NFT && x.Other == nil {
		byNFT := x.RemoveChains
		x.RemoveChains = func(ctx context.Context, prefix string) error {
			err := byNFT(ctx, prefix)
			if iptables.LegacyInUse() {
				err = errors.Join(err, errLegacyUnread)
			}
			return err
		}
	}
	k.Dataplane = x.New
	return nil
}

var errLegacyUnread = errors.New("tables of iptables-legacy are in use, and its program is missing: chains NAMEGATE-… may remain there; " +
	"run `namegate cleanup` with the program, as the image has it")

// parseVariant reads --iptables.
func parseVariant(text string) (iptables.Variant, error) {
	v := iptables.Variant(text)
	if !slices.Contains([]iptables.Variant{iptables.Default, iptables.Legacy, iptables.NFT}, v) {
		return v, fmt.Errorf("--iptables %q is not known; write legacy or nft", text)
	}
	return v, nil
}

// dataplanePause is how often an agent tries again whether its dataplane works.
const dataplanePause = 5 * time.Second

// awaitDataplane opens the kernel as soon as the dataplane works, or returns another error.
// Until then h has the reason.
func awaitDataplane(ctx context.Context, open func() (*kernel, error), h *health.Health, log *slog.Logger) (*kernel, error) {
	for said := ""; ; {
		k, err := open()
		var u *unusable
		if !errors.As(err, &u) {
			h.Blocked(nil)
			return k, err
		}
		h.Blocked(err)
		if said != err.Error() {
			log.Error("the agent cannot start; trying again", "every", dataplanePause, "error", err)
		}
		said = err.Error()
		if wait(ctx, dataplanePause) != nil {
			return nil, err
		}
	}
}
