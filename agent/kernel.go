package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/proxy/corefile"
)

// kernel holds the real seams and closes them.
type kernel struct {
	enforcer.Kernel
	closers []func()
	// variant of iptables, and the reason for it.
	variant iptables.Variant
	why     string
}

func openKernel(bits nft.Bits, variant string) (*kernel, error) {
	v := iptables.Variant(variant)
	if !slices.Contains([]iptables.Variant{iptables.Default, iptables.Legacy, iptables.NFT}, v) {
		return nil, fmt.Errorf("--iptables %q is not known; write legacy or nft", variant)
	}
	k := &kernel{why: "--iptables says so"}
	var err error
	if v == iptables.Default {
		if v, k.why, err = iptables.Detect(context.Background(), xtables.ChainPrefix); err != nil {
			return nil, err
		}
	}
	k.variant = v
	chains, err := iptables.NewExec(v)
	if err != nil {
		return nil, err
	}
	filter := xtables.Config{Chains: chains}
	k.closers = append(k.closers, chains.Close)
	if other := iptables.OpenOther(v); other != nil {
		filter.Other, k.closers = other, append(k.closers, other.Close)
	}
	if k.Tables, err = nft.Open(bits); err != nil {
		return nil, err
	}
	chains.Around(k.Tables.Own)
	sets, err := ipset.Open()
	if err != nil {
		return nil, err
	}
	filter.Sets = sets
	k.Dataplane, k.closers = filter.New, append(k.closers, sets.Close)
	flows, err := conntrack.Open()
	if err != nil {
		k.close()
		return nil, err
	}
	k.Flows, k.closers = flows, append(k.closers, flows.Close)
	links, err := link.Open()
	if err != nil {
		k.close()
		return nil, err
	}
	k.Links, k.closers = links, append(k.closers, links.Close)
	return k, nil
}

func (k *kernel) close() {
	for _, c := range k.closers {
		c()
	}
}

// markBits are the bits of marks that the Corefile names.
func markBits(c *corefile.Config) nft.Bits { return nft.Bits{Admitted: c.Mark, Candidate: c.Candidate} }

// enforcerConfig selects the enforcer's part of the Corefile.
func enforcerConfig(c *corefile.Config) enforcer.Config {
	return enforcer.Config{Mark: c.Mark, Candidate: c.Candidate, Hold: c.Hold, Endpoint: c.Bind, FailClosed: c.FailClosed, Resolvers: c.Resolvers()}
}
