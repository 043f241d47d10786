package nftables

import (
	"context"
	"maps"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
)

// A comment of a grant fits into that of an entry.
const _ = uint(timed.MaxComment - dataplane.CommentMax)

func kernelName(g dataplane.GrantSet) string { return ruleset.GrantSet(g).Name }

// named returns a set with its name.
func named(g dataplane.GrantSet) dataplane.GrantSet {
	g.Name = kernelName(g) + "-4"
	if g.IPv6 {
		g.Name = kernelName(g) + "-6"
	}
	return g
}

// Named implements dataplane.Interface.
func (x *packetFilter) Named(g dataplane.GrantSet) dataplane.GrantSet { return named(g) }

// ApplyGrants implements dataplane.GrantWriter.
func (x *packetFilter) ApplyGrants(ops []dataplane.GrantOp) {
	entries := make([]timed.Op, len(ops))
	for i := range ops {
		entries[i] = entryOp(&ops[i])
	}
	x.tables.ApplyEntries(entries)
	for i := range ops {
		if ops[i].Err = entries[i].Err; timed.IsNoSet(ops[i].Err) {
			ops[i].Err = dataplane.NoSet{Err: ops[i].Err}
		}
	}
}

// held are the words of the tables for what the kernel holds.
var held = [...]timed.Held{dataplane.Unknown: timed.Unknown, dataplane.Absent: timed.Absent, dataplane.SameComment: timed.SameComment}

func entryOp(op *dataplane.GrantOp) timed.Op {
	out := timed.Op{Set: kernelName(op.Set), Grants: true, Remove: op.Remove, Count: true, Entries: make([]timed.Entry, len(op.Grants))}
	protocol, port, single := op.Set.Single()
	for i := range op.Grants {
		g := &op.Grants[i]
		out.Entries[i] = timed.Entry{Addr: g.Addr}
		if single {
			out.Entries[i].Protocol, out.Entries[i].Port = uint8(protocol), port
		}
		if !op.Remove {
			out.Entries[i].Timeout, out.Entries[i].Comment, out.Entries[i].Held, out.Entries[i].Uses = g.Timeout, g.Comment, held[g.Held], g.Uses
		}
	}
	return out
}

// ListGrants implements dataplane.GrantWriter.
func (x *packetFilter) ListGrants(sets []dataplane.GrantSet, each func(dataplane.GrantSet, []dataplane.Grant)) error {
	byName := map[string]dataplane.GrantSet{}
	for _, s := range sets {
		byName[kernelName(s)] = s
	}
	return x.listGrants(byName, each)
}

// listGrants hands over the grants in sets of the tables, each with one set of grants that it
// has: those of single ports have others too.
func (x *packetFilter) listGrants(byName map[string]dataplane.GrantSet, each func(dataplane.GrantSet, []dataplane.Grant)) error {
	texts := map[policy.PortRange]policy.PortSet{}
	return x.tables.ListGrants(slices.Sorted(maps.Keys(byName)), func(name string, part []timed.Entry) {
		parts := map[dataplane.GrantSet][]dataplane.Grant{}
		for i := range part {
			e := &part[i]
			g := byName[name]
			if g.IPv6 = e.Addr.Is6(); e.Protocol != 0 {
				r := policy.PortRange{Protocol: policy.Protocol(e.Protocol), First: e.Port, Last: e.Port}
				if texts[r] == "" {
					texts[r] = policy.NewPortSet(r)
				}
				g.Ports = texts[r]
			}
			g = named(g)
			parts[g] = append(parts[g], dataplane.Grant{Addr: e.Addr, Timeout: e.Timeout, Comment: e.Comment, Uses: e.Uses})
		}
		for g, grants := range parts {
			each(g, grants)
		}
	})
}

// adopt makes the sets of grants that a state's rules ask and its grants do not have, and
// takes in what an earlier agent left in them. Grants on ports that no rule asks are taken in
// too, to be taken back.
func (x *packetFilter) adopt(ctx context.Context, st dataplane.State) error {
	var fresh []nft.GrantSet
	held := map[dataplane.GrantSet][]dataplane.Grant{}
	left, made := map[string]dataplane.GrantSet{}, map[string]bool{}
	for ref, p := range st.Subjects {
		for _, ports := range p.Grants {
			for _, v6 := range []bool{false, true} {
				g := named(dataplane.GrantSet{Pod: ref, Ports: ports, IPv6: v6})
				if st.Grants.Holds(g) {
					continue
				}
				held[g] = nil
				set := ruleset.GrantSet(g)
				if x.left[set.Name] {
					left[set.Name] = g
				}
				if !made[set.Name] {
					made[set.Name] = true
					fresh = append(fresh, set)
				}
			}
		}
	}
	if len(held) == 0 {
		return nil
	}
	for g := range st.Grants.Bounds() {
		if set := ruleset.GrantSet(g); !made[set.Name] { // the tables forget a set that is not added again
			made[set.Name] = true
			fresh = append(fresh, set)
		}
	}
	if err := x.tables.AddSets(ctx, nil, fresh); err != nil {
		return err
	}
	err := x.listGrants(left, func(g dataplane.GrantSet, part []dataplane.Grant) {
		if _, missing := held[g]; missing || !st.Grants.Holds(g) {
			held[g] = append(held[g], part...)
		}
	})
	if err != nil {
		return err
	}
	st.Grants.Adopt(held)
	for name := range made {
		delete(x.left, name)
	}
	return nil
}
