package enforcer

import (
	"context"
	"slices"

	"github.com/namegate/namegate/enforcer/intercept"
)

// Cleanup removes all objects of Namegate from the kernel: interception first, then the
// verdict, chains, sets, admissions and addresses. The serving addresses are in Config;
// it need not have been started. It continues after an error and returns the first.
func (e *Enforcer) Cleanup(ctx context.Context) error {
	e.apply.Lock()
	defer e.apply.Unlock()
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	selected, err := e.tablesInForce().Selected(ctx)
	keep(err)
	keep(e.k.Tables.Remove(ctx))
	isolated, err := e.plane.Remove(ctx)
	keep(err)
	if e.k.Other != nil {
		others, err := e.k.Other.New(e.owner).Remove(ctx)
		keep(err)
		isolated = append(isolated, others...)
	}
	keep(e.flows.Withdraw(append(isolated, selected...)))
	keep(e.removeAddrs())
	return first
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
