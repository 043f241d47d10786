package dataplane

import (
	"errors"
	"iter"
	"net/netip"
	"time"

	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
)

// GrantSet is the grants of a pod on a port set, of one address family; in the tiers with an
// order those of a rule, and of one address of the pod.
type GrantSet struct {
	Pod     policy.PodRef
	Ports   policy.PortSet
	Rule    policy.RuleID // "" in the Namespace tier
	Subject netip.Addr    // of the pod, with a Rule
	IPv6    bool
	// Name is the dataplane's name of the set. It follows from the other fields. Sets of a pod
	// may share one: then one object of the dataplane holds their grants. Sets with a Rule have
	// none.
	Name string
}

// Single returns the protocol and the port of a set that is for one port alone.
func (s GrantSet) Single() (policy.Protocol, uint16, bool) { return s.Ports.Single() }

// CommentMax is the longest comment of a grant in bytes.
const CommentMax = timed.MaxComment

// LastingMargin is how much longer than its deadline the kernel keeps a grant of a rule that
// denies or passes.
const LastingMargin = 10 * time.Second

// Grant is one address of a set.
type Grant struct {
	Addr netip.Addr
	// Timeout is after how long the kernel ends the grant by itself. The dataplane shortens a
	// timeout that is longer than the kernel's longest.
	Timeout time.Duration
	// Due, of a desired grant: its deadline has passed, and it ends as soon as no earlier agent
	// may extend it. The kernel's timeout may be shorter than Timeout.
	Due bool
	// Comment is a text that the kernel keeps for the next agent.
	Comment string
	// Uses, of a listed grant that accepts, is a number that grows with each packet that matches
	// it, from the number with which it was written anew. A packet of an admitted connection
	// asks no grant. With iptables a packet counts that a rule of the Admin tier then denies.
	// The number is 0 where the kernel does not count: for what an agent wrote that did not ask
	// for it, and with kernels that cannot. A change of the timeout alone keeps it. Verify
	// does not compare it.
	Uses uint64
	// Held is about grants that are added.
	Held Held
}

// Held is the knowledge about a grant before it is added.
type Held = timed.Held

// The values of Held.
const (
	Unknown     = timed.Unknown
	Absent      = timed.Absent
	SameComment = timed.SameComment
)

// GrantOp is one change of one set.
type GrantOp struct {
	Set GrantSet
	// Remove removes the grants. Otherwise they are added or, where the set holds the
	// address already, replaced.
	Remove bool
	Grants []Grant
	// Err is the result: nil once the kernel has acknowledged all grants.
	Err error
}

// Grants are the desired grants of a State: of the sets without a Rule. Package grants
// implements it.
type Grants interface {
	// Holds tells whether the grants have a set. Only a set that they have is changed.
	Holds(set GrantSet) bool
	// Adopt adds sets that the kernel has, with the grants that were left in each. They were listed
	// after a time.
	Adopt(held map[GrantSet][]Grant, listed time.Time)
	// Bounds yields all sets.
	Bounds() iter.Seq2[GrantSet, Bounds]
	// Members returns a set and those that share its name; none where the grants have none of
	// them. Grants are made and end meanwhile: each is as it was at a moment of the call.
	Members(set GrantSet) []Frozen
	// Freeze calls f with Members, while no grant of any set changes, unless there are none. f
	// must not call Grants, and keeps nothing. New grants wait for f.
	Freeze(set GrantSet, f func([]Frozen))
	// FreezeBounds is Freeze with the sum of their Bounds, which takes no time for each grant.
	FreezeBounds(set GrantSet, f func(Bounds))
}

// Frozen is what the kernel is to hold of a set.
type Frozen struct {
	Set GrantSet
	// Certain are the grants that the kernel acknowledged last, Uncertain the addresses that
	// it may hold or not, after a failed write.
	Certain   []Grant
	Uncertain map[netip.Addr]bool
}

// Bounds are how many entries the kernel must hold of a set and may hold.
type Bounds struct{ Min, Max int }

// GrantWriter is the part of a dataplane that package grants calls. It has one call under
// way at a time, but for ListGrants of sets with a Rule, which is at any time. A call may be at
// the same time as one of Interface, even within it.
type GrantWriter interface {
	// ApplyGrants does the changes in order, in as few writes as their number allows, and
	// sets the Err of each. A change that fails does not hold up the others; IsNoSet holds
	// for the error where the kernel does not have the set. Ops and grants are not kept.
	ApplyGrants(ops []GrantOp)
	// ListGrants hands over the grants that the kernel holds of the sets, and of others that
	// share their names, with the timeout that each has left. A large set comes in parts. each
	// must not keep the slice. A set with a Rule and nothing else stands for those of all subjects,
	// which come without a pod and ports.
	ListGrants(sets []GrantSet, each func(set GrantSet, part []Grant)) error
}

// NoSet marks an error that says that the kernel does not have a set.
type NoSet struct{ Err error }

func (e NoSet) Error() string { return e.Err.Error() }

// Unwrap returns the error of the kernel.
func (e NoSet) Unwrap() error { return e.Err }

// IsNoSet tells whether err says that the kernel does not have a set.
func IsNoSet(err error) bool { return errors.As(err, new(NoSet)) }
