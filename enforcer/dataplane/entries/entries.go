package entries

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
)

// Tables are the nft tables, of which timed.Store is one.
type Tables interface {
	ApplyEntries(ops []timed.Op)
	ListEntries(names []string, each func(set string, part []timed.Entry)) error
	ListGrants(names []string, each func(set string, part []timed.Entry)) error
}

// Store writes grants to the nft tables.
type Store struct {
	tables Tables
	// others, if not nil, writes the grants of the Namespace tier.
	others dataplane.GrantWriter
	// ops and entries are the room of write, which has one call under way at a time.
	ops     []timed.Op
	entries []timed.Entry
}

// entriesKept bounds the room for entries that a Store keeps.
const entriesKept = 4096

// New returns a store. others writes the grants of the Namespace tier, nil: the store does.
func New(tables Tables, others dataplane.GrantWriter) *Store {
	return &Store{tables: tables, others: others}
}

// Named returns a set with its name: that of the tables' set, which both families share, with the family.
func Named(g dataplane.GrantSet) dataplane.GrantSet {
	g.Name = ruleset.GrantSet(g).Name + "-" + timed.Families[0]
	if g.IPv6 {
		g.Name = ruleset.GrantSet(g).Name + "-" + timed.Families[1]
	}
	return g
}

// SetOf returns the name of the tables' set of a named set.
func SetOf(g dataplane.GrantSet) string { return g.Name[:len(g.Name)-len("-4")] }

// ApplyGrants implements dataplane.GrantWriter. Each run of changes of one tier is a write.
func (s *Store) ApplyGrants(ops []dataplane.GrantOp) {
	for len(ops) > 0 {
		n := 1
		for n < len(ops) && (s.others == nil || (ops[n].Set.Rule == "") == (ops[0].Set.Rule == "")) {
			n++
		}
		if s.others != nil && ops[0].Set.Rule == "" {
			s.others.ApplyGrants(ops[:n])
		} else {
			s.write(ops[:n])
		}
		ops = ops[n:]
	}
}

// write does changes of grants in the tables.
func (s *Store) write(ops []dataplane.GrantOp) {
	for i := range ops {
		begin := len(s.entries)
		s.entries = appendEntries(s.entries, &ops[i])
		set := &ops[i].Set
		// Whether an entry that denies or passes is in use does not matter.
		op := timed.Op{Set: string(set.Rule), Remove: ops[i].Remove, Count: !set.Rule.Lasting(), Entries: s.entries[begin:]}
		if set.Rule == "" {
			op.Set, op.Grants = SetOf(*set), true
		}
		s.ops = append(s.ops, op)
	}
	s.tables.ApplyEntries(s.ops)
	for i := range ops {
		if ops[i].Err = s.ops[i].Err; timed.IsNoSet(ops[i].Err) {
			ops[i].Err = dataplane.NoSet{Err: ops[i].Err}
		}
	}
	clear(s.ops)
	clear(s.entries)
	if s.ops, s.entries = s.ops[:0], s.entries[:0]; cap(s.entries) > entriesKept {
		s.entries = nil
	}
}

// appendEntries renders the grants of a change.
func appendEntries(out []timed.Entry, op *dataplane.GrantOp) []timed.Entry {
	of := timed.Entry{Subject: op.Set.Subject}
	if protocol, port, single := op.Set.Single(); single && op.Set.Rule == "" {
		of.Protocol, of.Port = uint8(protocol), port
	}
	for i := range op.Grants {
		g, e := &op.Grants[i], of
		if e.Addr = g.Addr; !op.Remove {
			e.Timeout, e.Comment, e.Held, e.Uses = g.Timeout, g.Comment, g.Held, g.Uses
		}
		out = append(out, e)
	}
	return out
}

// ListGrants implements dataplane.GrantWriter.
func (s *Store) ListGrants(sets []dataplane.GrantSet, each func(dataplane.GrantSet, []dataplane.Grant)) error {
	var others []dataplane.GrantSet
	asked, rules, names := map[dataplane.GrantSet]dataplane.GrantSet{}, map[string]bool{}, map[string]dataplane.GrantSet{}
	for _, set := range sets {
		switch {
		case set.Rule != "":
			rules[string(set.Rule)] = true
			asked[bare(set.Rule, set.Subject)] = set
		case s.others != nil:
			others = append(others, set)
		default:
			names[SetOf(set)] = set
		}
	}
	if len(others) > 0 {
		if err := s.others.ListGrants(others, each); err != nil {
			return err
		}
	}
	err := s.tables.ListEntries(slices.Sorted(maps.Keys(rules)), func(name string, part []timed.Entry) {
		rule := policy.RuleID(name)
		_, all := asked[bare(rule, netip.Addr{})]
		inParts(part, each, func(g group) (dataplane.GrantSet, bool) {
			key := bare(rule, g.subject)
			if set, is := asked[key]; is {
				return set, true
			}
			return key, all
		})
	})
	if err != nil {
		return err
	}
	return s.tables.ListGrants(slices.Sorted(maps.Keys(names)), func(name string, part []timed.Entry) {
		inParts(part, each, func(g group) (dataplane.GrantSet, bool) {
			set := names[name]
			if g.protocol != 0 { // those of single ports share a set
				set.Ports = policy.NewPortSet(policy.PortRange{Protocol: policy.Protocol(g.protocol), First: g.port, Last: g.port})
			}
			set.IPv6 = g.ipv6
			return Named(set), true
		})
	})
}

// bare is a set of a rule without its pod and ports, which no entry has.
func bare(rule policy.RuleID, subject netip.Addr) dataplane.GrantSet {
	return dataplane.GrantSet{Rule: rule, Subject: subject, IPv6: subject.Is6()}
}

// group is what the entries of one set of grants have in common.
type group struct {
	subject  netip.Addr
	protocol uint8
	port     uint16
	ipv6     bool
}

// inParts hands over entries by the set that of returns, if it tells so.
func inParts(entries []timed.Entry, each func(dataplane.GrantSet, []dataplane.Grant), of func(group) (dataplane.GrantSet, bool)) {
	parts := map[group][]dataplane.Grant{}
	for i := range entries {
		e := &entries[i]
		g := group{e.Subject, e.Protocol, e.Port, e.Addr.Is6()}
		parts[g] = append(parts[g], dataplane.Grant{Addr: e.Addr, Timeout: e.Timeout, Comment: e.Comment, Uses: e.Uses})
	}
	for g, part := range parts {
		if set, is := of(g); is {
			each(set, part)
		}
	}
}
