package dataplane

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"
)

// PollEvery is how often package enforcer asks a Poller. Looks that find nothing take one
// part in PollShare of a core.
const (
	PollEvery = 200 * time.Millisecond
	PollShare = 40
)

// Owner is the enforcer that a dataplane belongs to.
type Owner struct {
	// Mark is one bit of connection marks, which admits a connection. Candidate is another
	// bit, of packet and connection marks: the dataplane's rules set it on what they allow,
	// and the judge of the nft tables admits.
	Mark, Candidate uint32
	// Accepted is a bit of packet marks, of the nft tables alone.
	Accepted uint32
	Now      func() time.Time
	Log      *slog.Logger
	// Coexisting tells whether another agent writes too.
	Coexisting func() bool
}

// BitUse is the error of a rule of another program that uses a bit of the owner's marks.
type BitUse struct {
	Bit  uint32
	Rule string
}

func (u *BitUse) Error() string {
	return fmt.Sprintf("mark bit %#x is used by another rule (%s); choose a free bit with the directive mark in the Corefile", u.Bit, u.Rule)
}

// Recovered is what a dataplane finds at its start.
type Recovered struct {
	// Read tells which tables of nft, by their family and name, need no second look; nil: none.
	Read func(family, table string) bool
	// Isolated are the addresses that an earlier agent isolated beside those in the tables.
	Isolated []netip.Addr
}

// State is all that a dataplane is to hold. The subjects do not change.
type State struct {
	Subjects Subjects
	Grants   Grants
}

// Missing returns the sets that the subjects' rules ask and the grants do not have, as named names them.
func (st State) Missing(named func(GrantSet) GrantSet) (sets []GrantSet) {
	for ref, s := range st.Subjects {
		for _, ports := range s.Grants {
			for _, v6 := range []bool{false, true} {
				if set := (GrantSet{Pod: ref, Ports: ports, IPv6: v6}); !st.Grants.Holds(set) {
					sets = append(sets, named(set))
				}
			}
		}
	}
	return sets
}

// Phase is how far a State is brought into force.
type Phase uint8

// The phases of Apply.
const (
	// Prepare makes everything ready for a state. It denies nothing that was open, and keeps
	// what the state in force needs.
	Prepare Phase = iota
	// Isolate brings into force which subjects are isolated, and no rule.
	Isolate
	// Commit brings all of a state into force, and repairs what the last Verify found.
	Commit
	// Shrink removes what a state in force in all of the kernel needs no more: the rules that an
	// earlier agent left outside of what is written, and sets of grants that the grants do not have
	// and no rule asks. A set that a rule of another program asks stays, without an error.
	Shrink
)

// Interface makes the packet filter of a node hold a State.
//
// Package enforcer calls it, and holds one lock over every call but those of GrantWriter:
// implementations need no lock for their own fields.
//
// A method that returns an error may have done a part of its work; the same call completes
// it later. Every write is a difference to what is written, so that the same State again
// costs little. A State without subjects removes what the dataplane holds of subjects. An
// object that another program destroyed is an error of the write that needs it; the next
// Apply of Prepare or Commit creates the object again.
type Interface interface {
	GrantWriter

	// Recover reads the packet filter and what an earlier agent left there, and is the first
	// call. It writes nothing. A rule of another program that uses a bit is a BitUse.
	Recover(ctx context.Context) (Recovered, error)

	// Apply makes the packet filter hold a state. An error of type Refused concerns some pods alone.
	Apply(ctx context.Context, st State, to Phase) error
	// StalePods returns the IDs of pods of which a set waits for Shrink: an earlier agent granted by it.
	StalePods() map[string]bool

	// Verify compares the kernel with a state, and names the objects that deviate. It writes
	// nothing. With all it reads every table, else those that may have been changed.
	Verify(ctx context.Context, st State, all bool) (objects []string, err error)

	// Named returns a set with the dataplane's name of it.
	Named(set GrantSet) GrantSet

	// Remove removes every object of ours, and returns the addresses that were isolated beside those in
	// the tables. It goes on after an error. Recover is not needed.
	Remove(ctx context.Context) (isolated []netip.Addr, err error)
}

// Refused is an error of Apply: the kernel refuses to create or to repair sets of grants of some
// pods. Nothing is open by these sets, and all else of the state is written.
type Refused struct {
	Err error
	// Sets are their names, which follow "set " in those of Verify.
	Sets []string
}

func (e Refused) Error() string {
	return "the kernel refuses sets of grants; they open nothing: " + e.Err.Error()
}

// Unwrap returns the error of a set.
func (e Refused) Unwrap() error { return e.Err }

// InTables is a dataplane whose grants are in the nft tables, which need no candidates then.
type InTables interface{ InTables() }

// Poller is a dataplane that has changes without an event of the kernel.
type Poller interface {
	// Changed tells whether a cheap look shows a change of tables, of the number of entries
	// or, of some sets at a time, of their members. An error of the look is no change:
	// Verify reports it.
	Changed(st State) bool
}
