package rollout

import (
	"context"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/source/manifest"
)

// State is the state of a source at one moment.
type State struct {
	Input    compile.Input
	Problems []policy.Problem
	Files    []manifest.FileError // broken ones; a cluster has none
	Cluster  policy.Cluster       // a folder knows none
}

// Status is how far the roll-outs have come.
type Status struct {
	// State is the latest state, Problems its problems and those of its compilation.
	State    State
	Problems []policy.Problem
	InForce  *policy.Snapshot // nil before the first
	Applied  State            // that InForce was compiled from
	Waiting  int              // pods that are not isolated until their names are resolved
	Failing  string           // why the latest snapshot is not in force, "" if it is
}

// InSync tells whether the latest snapshot is in force.
func (s Status) InSync() bool { return s.InForce != nil && s.Failing == "" }

// Number returns the number of the snapshot in force, 0 before the first.
func (s Status) Number() uint64 {
	if s.InForce == nil {
		return 0
	}
	return s.InForce.Number
}

// Views returns the views in force.
func (s Status) Views() []*policy.View {
	if s.InForce == nil {
		return nil
	}
	return s.InForce.Views
}

// Stages are the steps of a roll-out in their order.
type Stages interface {
	// Attach serves on the addresses that a state's cluster needs.
	Attach(ctx context.Context, s State) error
	// Prepare makes the kernel ready for a snapshot, and returns the one that is to be published and
	// committed: s, or s with rules closed for pods that have no room for their addresses.
	Prepare(ctx context.Context, s *policy.Snapshot) (*policy.Snapshot, error)
	// Publish makes the proxy decide by it.
	Publish(s *policy.Snapshot)
	// Warm grants names of a pod by the published snapshot, until ctx ends at the latest.
	Warm(ctx context.Context, v *policy.View, names []fqdn.Name)
	// Commit applies the prepared snapshot, except for pods in waiting, and returns the
	// snapshot that is in force then.
	Commit(ctx context.Context, waiting map[policy.PodRef]bool) (*policy.Snapshot, error)
	// Settle brings what Attach prepared into force.
	Settle(ctx context.Context) error
}
