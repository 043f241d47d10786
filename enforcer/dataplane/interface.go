package dataplane

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/namegate/namegate/policy"
)

// SuspectEvery is how often package enforcer asks Suspect. Looks that find nothing take one
// part in SuspectShare of a core.
const (
	SuspectEvery = 200 * time.Millisecond
	SuspectShare = 40
)

// Owner is the enforcer that a dataplane belongs to.
type Owner struct {
	// Mark is one bit of connection marks, which admits a connection. Candidate is another
	// bit, of packet and connection marks: the dataplane's rules set it on what they allow,
	// and the judge of the nft tables admits.
	Mark, Candidate uint32
	Now             func() time.Time
	Log             *slog.Logger
	// Coexisting tells whether another agent writes too.
	Coexisting func() bool
	// Repaired receives a description of each repair.
	Repaired func(what string)
}

// BitUse is a rule of another program that uses a bit of marks.
type BitUse struct {
	Bit  uint32
	Rule string
}

// Interface makes the packet filter of a node hold a State.
//
// Package enforcer calls it, and holds one lock over every call but those of GrantWriter:
// implementations need no lock for their own fields.
//
// A method that returns an error may have done a part of its work; the same call completes
// it later. Every write is a difference to what is written, so that the same State again
// costs little. A State without subjects removes what the dataplane holds of subjects. An
// object that another program destroyed is an error of the write that needs it; the next
// Stage or Activate after NeedResync creates the object again.
type Interface interface {
	GrantWriter

	// Survey reads the packet filter, and is the first call. It writes nothing. use is nil
	// where no rule of another program uses a bit of the owner's. read tells which tables
	// of nft, by their family and name, need no second look.
	Survey(ctx context.Context) (use *BitUse, read func(family, table string) bool, err error)
	// Recover follows Survey. It creates the objects that are always there, and returns the
	// addresses that an earlier agent isolated beside those in the tables.
	Recover() (isolated []netip.Addr, err error)

	// Stage makes everything ready for a state. It denies nothing that was open, and keeps
	// what the state in force needs. A set that the kernel refuses is an error a few times;
	// then its subjects stay closed, and the rest goes on.
	Stage(ctx context.Context, st State) error
	// Isolate brings into force which subjects are isolated, and no rule.
	Isolate(st State) error
	// Activate brings a state into force. isolated tells, also with an error, whether the
	// isolation of the state is in force.
	Activate(ctx context.Context, st State) (isolated bool, err error)
	// NeedResync has the next Stage or Activate look for objects that are gone. The caller
	// of a failed write calls it.
	NeedResync()

	// RemoveStaleRules removes the rules that an earlier agent left outside of what is
	// written. It is called when a state is in force in all of the kernel. Until it succeeds,
	// DestroyStale cannot destroy the sets that these rules ask. After a success it does
	// nothing.
	RemoveStaleRules(ctx context.Context) error
	// ReleaseGrants has DestroyStale destroy sets of grants that no rule asks any more.
	ReleaseGrants(sets []GrantSet)
	// StalePods returns the pods among subjects of which a set waits for DestroyStale: an
	// earlier agent granted by it.
	StalePods(subjects Subjects) []policy.PodRef
	// DestroyStale destroys the sets that no rule asks any more. A set that a rule of
	// another program asks stays, without an error.
	DestroyStale() error

	// Verify compares the kernel with a state, and names the objects that deviate. It writes
	// nothing. With all it reads every table, else those that may have been changed.
	Verify(ctx context.Context, st State, all bool) (objects []string, err error)
	// Repair repairs the sets that the last Verify found, and reports each repair to the
	// owner. The Activate that follows repairs the rules.
	Repair(st State) error
	// Suspect tells whether a cheap look shows a change of tables, of the number of entries
	// or, of some sets at a time, of their members. An error of the look is no change:
	// Verify reports it.
	Suspect(st State) bool

	// Named returns a set with the dataplane's name of it.
	Named(set GrantSet) GrantSet

	// Remove removes every object of ours. It goes on after an error and returns the first.
	// withdraw is called between the removal of rules and of sets. Survey is not needed.
	Remove(ctx context.Context, withdraw func(isolated []netip.Addr) error) error
}
