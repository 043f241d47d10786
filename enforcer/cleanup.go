package enforcer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
)

// Cleanup removes every trace of Namegate from the kernel: interception first,
// then the verdict, chains, sets, admissions and addresses. What it was told to
// serve is in Config; it need not have been started. It goes on after an error
// and returns the first.
func (e *Enforcer) Cleanup(ctx context.Context) error {
	e.apply.Lock()
	defer e.apply.Unlock()
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	keep(e.k.Tables.Remove(ctx))
	keep(e.rules.Remove(ctx))
	for _, f := range xtables.Families {
		keep(e.forgetSelected(f))
	}
	keep(e.removeSets())
	keep(e.removeAddrs())
	return first
}

func (e *Enforcer) forgetSelected(f iptables.Family) error {
	entries, err := e.k.Sets.List(xtables.SetPrefix(f) + xtables.SetSelected)
	if ipset.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var addrs []netip.Addr
	for _, entry := range entries {
		addrs = append(addrs, entry.Addr)
	}
	return e.flows.Withdraw(addrs)
}

func (e *Enforcer) removeSets() error {
	names, err := e.k.Sets.Names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if !xtables.OwnSet(n) {
			continue
		}
		if err := e.k.Sets.Destroy(n); err != nil && !ipset.IsNotFound(err) {
			return fmt.Errorf("remove set (is a rule of another program asking it?): %w", err)
		}
	}
	return nil
}

func (e *Enforcer) removeAddrs() error {
	addrs, err := e.k.Links.Addrs()
	if err != nil {
		return err
	}
	for _, a := range append(addrs, e.cfg.Endpoint...) {
		if !intercept.InRange(a) && !slices.Contains(e.cfg.Endpoint, a) {
			continue
		}
		if err := e.k.Links.DelAddr(a); err != nil {
			return err
		}
	}
	return e.k.Links.RemoveCarrier()
}
