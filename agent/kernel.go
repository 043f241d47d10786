package agent

import (
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/stats"
)

// kernel holds the real seams and closes them.
type kernel struct {
	enforcer.Kernel
	closers   []func()
	dataplane stats.Dataplane
	// variant of iptables, and the reason for it.
	variant iptables.Variant
	why     string
}

// openKernel opens the seams, and by dataplane that one.
func openKernel(c *corefile.Config, dataplane func(*kernel) error) (_ *kernel, err error) {
	k := &kernel{}
	defer func() {
		if err != nil {
			k.close()
		}
	}()
	if k.Tables, err = layout.Open(); err != nil {
		return nil, err
	}
	k.closers = append(k.closers, k.Tables.Close)
	if err := dataplane(k); err != nil {
		return nil, err
	}
	flows, err := conntrack.Open()
	if err != nil {
		return nil, err
	}
	k.Flows, k.closers = flows, append(k.closers, flows.Close)
	links, err := link.Open()
	if err != nil {
		return nil, err
	}
	k.Links, k.closers = links, append(k.closers, links.Close)
	return k, nil
}

// tables are the nft tables as they are in force.
func (k *kernel) tables() layout.InForce { return layout.InForce{Tables: k.Tables} }

func (k *kernel) close() {
	for _, c := range k.closers {
		c()
	}
}

// enforcerConfig selects the enforcer's part of the Corefile.
func enforcerConfig(c *corefile.Config) enforcer.Config {
	return enforcer.Config{Mark: c.Mark, Candidate: c.Candidate, Accepted: c.Accepted, Hold: c.Hold, Endpoint: c.Bind, FailClosed: c.FailClosed, Resolvers: c.Resolvers()}
}
