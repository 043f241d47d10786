package xtables

import (
	"cmp"
	"context"
	"strings"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
)

// checks bounds how often a family is asked.
const checks = 5

// Check returns why rules cannot ask sets on this node, nil if they can. For the time of the
// call there is a set of each family; no rule is written. checkSet is a method of
// iptables.Exec.
func Check(ctx context.Context, sets ipset.Interface, checkSet func(ctx context.Context, f iptables.Family, set string) error) error {
	for _, f := range families {
		probe := ipset.Set{Name: setPrefix(f) + setProbe, Type: ipset.HashIP, IPv6: f == iptables.IPv6}
		for n := 1; ; n++ {
			if err := sets.Ensure(probe); err != nil {
				return err
			}
			asked := checkSet(ctx, f, probe.Name)
			err := sets.Destroy(probe.Name)
			// Another agent that checks, or another program, destroyed the set: an answer
			// without it tells nothing about the node.
			gone := ipset.IsNotFound(err)
			if asked != nil && gone && n < checks {
				continue
			}
			if gone {
				err = nil
			}
			if err := cmp.Or(asked, err); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// Left tells whether an agent left objects: its sets go last.
func (cfg Config) Left(context.Context) (bool, error) {
	if cfg.Sets == nil {
		return false, nil
	}
	sizes, err := cfg.Sets.Sizes()
	for name := range sizes {
		if ownSet(name) && !strings.HasSuffix(name, "-"+setProbe) {
			return true, nil
		}
	}
	return false, err
}
