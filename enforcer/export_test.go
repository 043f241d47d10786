package enforcer

import (
	"cmp"
	"context"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
)

// Compare compares the kernel with the wanted state and repairs it, as RunReconcile does at
// times of its own choice.
func (e *Enforcer) Compare() error { return e.compare(context.Background(), true, true) }

// RecheckDue looks at connections again where that is due, and tells whether nothing more
// will be.
func (e *Enforcer) RecheckDue() bool {
	e.recheckDue(context.Background())
	return len(e.flows.Recorded()) == 0
}

// InForce is what the nft tables hold.
func (e *Enforcer) InForce() layout.InForce { return e.tablesInForce() }

// Beat renews the interception, by which the tables learn that timeouts move in place.
func (e *Enforcer) Beat() error {
	return e.intercept.Beat(context.Background(), func(context.Context) error { return nil })
}

// Listed returns all grants in the kernel, by their ports or rule and their address.
func (e *Enforcer) Listed() (map[string]dataplane.Grant, error) {
	var sets []dataplane.GrantSet
	for _, id := range ruleset.RulesOf(e.inForce()) {
		sets = append(sets, dataplane.GrantSet{Rule: id})
	}
	out := map[string]dataplane.Grant{}
	for set := range e.grants.Bounds() {
		sets = append(sets, set)
	}
	err := e.entries.ListGrants(sets, func(set dataplane.GrantSet, part []dataplane.Grant) {
		for _, g := range part {
			out[cmp.Or(string(set.Rule), string(set.Ports))+" "+g.Addr.String()] = g
		}
	})
	return out, err
}
