package enforcer

import (
	"context"
	"errors"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/intercept"
)

// Cleanup removes all objects of Namegate from the kernel: interception first, then the
// verdict, chains, sets, admissions and addresses. The serving addresses are in Config;
// it need not have been started. It continues after an error.
func (e *Enforcer) Cleanup(ctx context.Context) error {
	e.apply.Lock()
	defer e.apply.Unlock()
	isolated, err := e.tablesInForce().Selected(ctx)
	ingress, failed := e.tablesInForce().IngressSubjects(ctx)
	err = errors.Join(err, failed, e.k.Tables.Remove(ctx))
	planes := []dataplane.Interface{e.plane}
	if e.k.Other != nil {
		planes = append(planes, e.k.Other.New(e.owner))
	}
	for _, p := range planes {
		had, failed := p.Remove(ctx)
		isolated, err = append(isolated, had...), errors.Join(err, failed)
	}
	return errors.Join(err, e.flows.Withdraw(isolated), e.withdrawTo(ingress), e.removeAddrs())
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
