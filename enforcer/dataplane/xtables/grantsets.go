package xtables

import (
	"cmp"
	"maps"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/policy"
)

// setBuckets is the initial size of a set: the kernel's default costs sixteen times the
// memory.
const setBuckets = 64

// entriesKept bounds the room for entries that ApplyGrants keeps.
const entriesKept = 4096

// sharedMax is how many entries a set of single ports takes: as many for each of the 256 port
// sets of a pod as a set of its own takes. Package grants bounds each of them to half, so that
// no port takes the room of another.
const sharedMax = 256 << 16

// A comment of a grant fits into that of an entry.
const _ = uint(ipset.CommentLengthMax - dataplane.CommentMax)

// Named implements dataplane.Interface.
func (x *packetFilter) Named(s dataplane.GrantSet) dataplane.GrantSet {
	s.Name = GrantSetName(s.Pod, s.Ports, familyOf(s.IPv6))
	return s
}

// ApplyGrants implements dataplane.GrantWriter. The next Apply creates missing sets.
func (x *packetFilter) ApplyGrants(ops []dataplane.GrantOp) {
	g, count := &x.room, 0
	for i := range ops {
		count += len(ops[i].Grants)
	}
	g.ops, g.entries = slices.Grow(g.ops, len(ops)), slices.Grow(g.entries, count)
	for i := range ops {
		begin := len(g.entries)
		g.entries = appendGrants(g.entries, &ops[i].Set, ops[i].Grants)
		g.ops = append(g.ops, ipset.Op{Set: ops[i].Set.Name, Delete: ops[i].Remove, Entries: g.entries[begin:]})
	}
	x.cfg.Sets.Apply(g.ops)
	for i := range ops {
		if ops[i].Err = g.ops[i].Err; ipset.IsNotFound(ops[i].Err) {
			ops[i].Err = dataplane.NoSet{Err: ops[i].Err}
			x.resync.Store(true)
		}
	}
	clear(g.ops)
	clear(g.entries)
	if g.ops, g.entries = g.ops[:0], g.entries[:0]; cap(g.entries) > entriesKept {
		g.entries = nil
	}
}

// appendGrants renders grants of a set as entries.
func appendGrants(out []ipset.Entry, set *dataplane.GrantSet, grants []dataplane.Grant) []ipset.Entry {
	protocol, port, single := set.Single()
	if !single {
		protocol, port = 0, 0
	}
	for i := range grants {
		a := &grants[i]
		out = append(out, ipset.Entry{
			Addr: a.Addr, Protocol: uint8(protocol), Port: port, Timeout: min(a.Timeout, ipset.TimeoutMax), Comment: a.Comment,
			New: a.Held == dataplane.Absent, Packets: a.Uses,
		})
	}
	return out
}

// grantReader hands over the members of sets of the kernel from a listing. sets has for each
// a set of grants that it has; one of single ports has others too, which are those that have
// entries. The function tells whether a set is among sets, and not another program's.
func grantReader(sets map[string]dataplane.GrantSet, each func(dataplane.GrantSet, []dataplane.Grant)) func(ipset.Set, []ipset.Entry) bool {
	var part []dataplane.Grant
	texts := map[policy.PortRange]policy.PortSet{}
	return func(head ipset.Set, entries []ipset.Entry) bool {
		set, wanted := sets[head.Name]
		if want := grantHeader(set); !wanted || head.Type != want.Type || head.IPv6 != want.IPv6 {
			return false
		}
		slices.SortFunc(entries, func(a, b ipset.Entry) int {
			return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
		})
		for len(entries) > 0 {
			first, n := &entries[0], 0
			part = part[:0]
			for ; n < len(entries) && entries[n].Protocol == first.Protocol && entries[n].Port == first.Port; n++ {
				en := &entries[n]
				part = append(part, dataplane.Grant{Addr: en.Addr, Timeout: en.Timeout, Comment: en.Comment, Uses: en.Packets})
			}
			if head.Type == ipset.HashIPPort {
				r := policy.PortRange{Protocol: policy.Protocol(first.Protocol), First: first.Port, Last: first.Port}
				if texts[r] == "" {
					texts[r] = policy.NewPortSet(r)
				}
				set.Ports = texts[r]
			}
			each(set, part)
			entries = entries[n:]
		}
		return true
	}
}

// listSingly is up to how many sets are listed one by one: each costs a search for its name and
// a message, where a listing of all sets hands over all entries.
const listSingly = 8

// ListGrants implements dataplane.GrantWriter.
func (x *packetFilter) ListGrants(sets []dataplane.GrantSet, each func(dataplane.GrantSet, []dataplane.Grant)) error {
	byName := map[string]dataplane.GrantSet{}
	for _, s := range sets {
		byName[s.Name] = s
	}
	read, names := grantReader(byName, each), []string{""}
	if len(byName) <= listSingly {
		names = slices.Collect(maps.Keys(byName))
	}
	for _, name := range names {
		err := x.cfg.Sets.Each(name, func(head ipset.Set, entries []ipset.Entry) { read(head, entries) })
		if err != nil && !ipset.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// grantHeader is the header with which the kernel's set is created.
func grantHeader(s dataplane.GrantSet) ipset.Set {
	h := ipset.Set{Name: s.Name, Type: ipset.HashIP, IPv6: s.IPv6, Timeout: true, Comment: true, Counters: true, HashSize: setBuckets}
	if _, _, single := s.Single(); single {
		h.Type, h.MaxElem = ipset.HashIPPort, sharedMax
	}
	return h
}

// adopt reads the members of the sets that were left in one listing, and creates the others.
func (x *packetFilter) adopt(st dataplane.State) error {
	missing := st.Missing(x.Named)
	if len(missing) == 0 {
		return nil
	}
	known, left, there := mirrorsOf(st.Grants), map[string]dataplane.GrantSet{}, map[string]bool{}
	found, listed := map[dataplane.GrantSet][]dataplane.Grant{}, x.owner.Now()
	for _, s := range missing {
		found[s] = nil
		if x.kernel[s.Name] && known[s.Name] == nil {
			left[s.Name] = s
		}
	}
	read := grantReader(left, func(set dataplane.GrantSet, part []dataplane.Grant) {
		found[set] = append(found[set], part...)
	})
	if len(left) > 0 {
		err := x.cfg.Sets.Each("", func(head ipset.Set, entries []ipset.Entry) {
			if read(head, entries) {
				there[head.Name] = true
			}
		})
		if err != nil {
			return err
		}
	}
	for s := range found { // also of a port that no rule asks: it is held until its grants are gone
		if !there[s.Name] && known[s.Name] == nil && x.refused[s.Name] == nil {
			err := x.cfg.Sets.Ensure(grantHeader(s))
			if err != nil { // Prepare carries grants over to the sets that are there: a passing error must cut nothing
				err = x.cfg.Sets.Ensure(grantHeader(s))
			}
			if err != nil {
				x.refuse(s, err)
			}
			there[s.Name] = true
		}
		if x.refused[s.Name] != nil {
			delete(found, s)
			continue
		}
		x.kernel[s.Name] = true
	}
	st.Grants.Adopt(found, listed)
	return nil
}
