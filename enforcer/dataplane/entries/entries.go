package entries

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
)

// Tables are the nft tables, of which nft.Tables is one.
type Tables interface {
	ApplyEntries(ops []timed.Op)
	ListEntries(names []string, each func(set string, part []timed.Entry)) error
}

// Store writes grants: those of rules to the nft tables, the others to a dataplane.
type Store struct {
	tables Tables
	others dataplane.GrantWriter
	// coexisting tells whether another agent writes too.
	coexisting func() bool
}

// New returns a store.
func New(tables Tables, others dataplane.GrantWriter, coexisting func() bool) *Store {
	return &Store{tables, others, coexisting}
}

// A comment of a grant fits into that of an entry.
const _ = uint(timed.MaxComment - dataplane.CommentMax)

// ApplyGrants implements dataplane.GrantWriter.
func (s *Store) ApplyGrants(ops []dataplane.GrantOp) {
	ofRule := func(op dataplane.GrantOp) bool { return op.Set.Rule != "" }
	if !slices.ContainsFunc(ops, ofRule) {
		s.others.ApplyGrants(ops)
		return
	}
	var entries []timed.Op
	var others []dataplane.GrantOp
	for i := range ops {
		if ofRule(ops[i]) {
			entries = append(entries, entryOp(&ops[i]))
		} else {
			others = append(others, ops[i])
		}
	}
	s.tables.ApplyEntries(entries)
	if len(others) > 0 {
		s.others.ApplyGrants(others)
	}
	for i := range ops {
		if !ofRule(ops[i]) {
			ops[i].Err, others = others[0].Err, others[1:]
			continue
		}
		if ops[i].Err = entries[0].Err; timed.IsNoSet(ops[i].Err) {
			ops[i].Err = dataplane.NoSet{Err: ops[i].Err}
		}
		entries = entries[1:]
	}
}

// entryOp renders a change of grants of a rule. Whether an entry that denies or passes is in use does
// not matter.
func entryOp(op *dataplane.GrantOp) timed.Op {
	out := timed.Op{Set: string(op.Set.Rule), Remove: op.Remove, Count: !op.Set.Rule.Lasting(), Entries: make([]timed.Entry, len(op.Grants))}
	for i := range op.Grants {
		g := &op.Grants[i]
		out.Entries[i] = timed.Entry{Subject: op.Set.Subject, Addr: g.Addr}
		if !op.Remove {
			out.Entries[i].Timeout, out.Entries[i].Comment = g.Timeout, g.Comment
			out.Entries[i].Uses = g.Uses
			out.Entries[i].Held = []timed.Held{dataplane.Unknown: timed.Unknown, dataplane.Absent: timed.Absent, dataplane.SameComment: timed.SameComment}[g.Held]
		}
	}
	return out
}

// ListGrants implements dataplane.GrantWriter.
func (s *Store) ListGrants(sets []dataplane.GrantSet, each func(dataplane.GrantSet, []dataplane.Grant)) error {
	var others []dataplane.GrantSet
	var rules []policy.RuleID
	asked := map[place]dataplane.GrantSet{}
	for _, set := range sets {
		if set.Rule == "" {
			others = append(others, set)
			continue
		}
		rules = append(rules, set.Rule)
		asked[place{set.Rule, set.Subject}] = set
	}
	if len(others) > 0 {
		if err := s.others.ListGrants(others, each); err != nil {
			return err
		}
	}
	found, err := s.list(rules)
	for at, entries := range found {
		set, is := asked[at]
		if !is {
			if _, is = asked[place{rule: at.rule}]; !is {
				continue
			}
			set = dataplane.GrantSet{Rule: at.rule, Subject: at.subject, IPv6: at.subject.Is6()}
		}
		each(set, grantsOf(entries))
	}
	return err
}

// grantsOf reads entries.
func grantsOf(entries []timed.Entry) (out []dataplane.Grant) {
	for i := range entries {
		e := &entries[i]
		out = append(out, dataplane.Grant{Addr: e.Addr, Timeout: e.Timeout, Comment: e.Comment, Uses: e.Uses})
	}
	return out
}

// place is where the entries of a set of grants are.
type place struct {
	rule    policy.RuleID
	subject netip.Addr
}

// list returns all entries of rules. After an error it returns none.
func (s *Store) list(rules []policy.RuleID) (map[place][]timed.Entry, error) {
	slices.Sort(rules)
	var names []string
	for _, id := range slices.Compact(rules) {
		names = append(names, string(id))
	}
	out := map[place][]timed.Entry{}
	if len(names) == 0 {
		return out, nil
	}
	err := s.tables.ListEntries(names, func(set string, part []timed.Entry) {
		for _, e := range part {
			at := place{policy.RuleID(set), e.Subject}
			out[at] = append(out[at], e)
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Grants are the desired entries. Package grants implements it.
type Grants interface {
	// RuleSets yields the sets of rules.
	RuleSets() iter.Seq[dataplane.GrantSet]
	// Members and Freeze are as dataplane.Grants has them.
	Members(set dataplane.GrantSet) []dataplane.Frozen
	Freeze(set dataplane.GrantSet, f func([]dataplane.Frozen))
}
