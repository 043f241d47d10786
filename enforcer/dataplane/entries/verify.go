package entries

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// slack is by how much the timeout of an entry may differ from the wanted one.
const slack = 5 * time.Second

// Deviation is an entry that is not as wanted: missing, changed or foreign.
type Deviation struct {
	place
	addr netip.Addr
}

// String names the entry's set.
func (d Deviation) String() string { return fmt.Sprintf("nft entries of rule %s", d.rule) }

// Verify compares the entries of rules in the kernel with the grants. The same deviation has
// to show twice: grants change between the two readings.
func (s *Store) Verify(rules []policy.RuleID, grants Grants) ([]Deviation, error) {
	first, err := s.deviations(rules, grants)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	second, err := s.deviations(rules, grants)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(second, func(d Deviation, _ bool) bool { return !first[d] })
	return slices.SortedFunc(maps.Keys(second), func(a, b Deviation) int {
		if c := strings.Compare(string(a.rule), string(b.rule)); c != 0 {
			return c
		}
		if c := a.subject.Compare(b.subject); c != 0 {
			return c
		}
		return a.addr.Compare(b.addr)
	}), nil
}

func (s *Store) deviations(rules []policy.RuleID, grants Grants) (map[Deviation]bool, error) {
	found, err := s.list(slices.Clone(rules))
	if err != nil {
		return nil, err
	}
	out := map[Deviation]bool{}
	for set := range grants.RuleSets() {
		if !slices.Contains(rules, set.Rule) {
			continue
		}
		at := place{set.Rule, set.Subject}
		is := map[netip.Addr]*nft.Entry{}
		for i := range found[at] {
			is[found[at][i].Addr] = &found[at][i]
		}
		grants.Freeze(set, func(frozen []dataplane.Frozen) {
			for i := range frozen[0].Certain {
				want := &frozen[0].Certain[i]
				if s.differs(set, want, is[want.Addr]) {
					out[Deviation{at, want.Addr}] = true
				}
				delete(is, want.Addr)
			}
			for a := range frozen[0].Uncertain {
				delete(is, a)
			}
		})
		delete(found, at)
		s.foreign(out, at, maps.Keys(is))
	}
	for at, entries := range found {
		s.foreign(out, at, func(yield func(netip.Addr) bool) {
			for i := range entries {
				if !yield(entries[i].Addr) {
					return
				}
			}
		})
	}
	return out, nil
}

// foreign notes entries that no grant has. While two agents write, they are the other's.
func (s *Store) foreign(out map[Deviation]bool, at place, addrs func(func(netip.Addr) bool)) {
	if s.coexisting() {
		return
	}
	for a := range addrs {
		out[Deviation{at, a}] = true
	}
}

// differs tells whether an entry is not as wanted, nil is none. A packet changes the timeout
// of an entry of a lasting rule, and the kernel ends it: at its end it may be gone.
func (s *Store) differs(set dataplane.GrantSet, want *dataplane.Grant, is *nft.Entry) bool {
	if is == nil {
		return !set.Rule.Lasting() || want.Timeout > dataplane.LastingMargin+slack
	}
	if s.coexisting() {
		return false // the other agent moves deadlines and has other names
	}
	pod, g := grantOf(is)
	return pod != dataplane.PodID(set.Pod) || g.Comment != want.Comment ||
		!set.Rule.Lasting() && (g.Timeout-want.Timeout).Abs() > slack
}

// Repair writes the entries again that Verify found, those of lasting rules first, and
// removes foreign ones.
func (s *Store) Repair(wrong []Deviation, grants Grants) error {
	if len(wrong) == 0 {
		return nil
	}
	at := map[place]map[netip.Addr]bool{}
	for _, d := range wrong {
		if at[d.place] == nil {
			at[d.place] = map[netip.Addr]bool{}
		}
		at[d.place][d.addr] = true
	}
	sets := slices.SortedFunc(grants.RuleSets(), func(a, b dataplane.GrantSet) int {
		switch {
		case a.Rule.Lasting() == b.Rule.Lasting():
			return 0
		case a.Rule.Lasting():
			return -1
		}
		return 1
	})
	for _, set := range sets {
		own := place{set.Rule, set.Subject}
		foreign := at[own]
		if foreign == nil {
			continue
		}
		var err error
		grants.Freeze(set, func(frozen []dataplane.Frozen) {
			write := dataplane.GrantOp{Set: set}
			for _, g := range frozen[0].Certain {
				if foreign[g.Addr] {
					g.Held = dataplane.Unknown
					write.Grants = append(write.Grants, g)
				}
				delete(foreign, g.Addr)
			}
			for a := range frozen[0].Uncertain {
				delete(foreign, a)
			}
			err = s.apply([]nft.EntryOp{removal(own, foreign), entryOp(&write)})
		})
		if err != nil {
			return err
		}
		delete(at, own)
	}
	var left []nft.EntryOp
	for of, addrs := range at {
		left = append(left, removal(of, addrs))
	}
	return s.apply(left)
}

// removal removes entries of a place.
func removal(of place, addrs map[netip.Addr]bool) nft.EntryOp {
	op := nft.EntryOp{Set: string(of.rule), Remove: true}
	for a := range addrs {
		op.Entries = append(op.Entries, nft.Entry{Subject: of.subject, Addr: a})
	}
	return op
}
