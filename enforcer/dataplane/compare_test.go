package dataplane

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestSharedNamesAreReadOnce: of sets that share a name each is compared, and all are rendered
// once.
func TestSharedNamesAreReadOnce(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	var sets []GrantSet
	var all []Frozen
	for _, ports := range []policy.PortSet{"tcp/80", "tcp/443", "udp/53"} {
		set := GrantSet{Ports: ports, Name: "shared"}
		sets, all = append(sets, set), append(all, Frozen{Set: set, Certain: []Grant{{Addr: addr}}})
	}
	read := 0
	c := Comparison{
		Sets:    slices.Values(sets),
		Members: func(GrantSet) []Frozen { read++; return all },
		List: func(each func(GrantSet, []Grant)) error {
			each(sets[0], []Grant{{Addr: addr}, {Addr: addr.Next()}})
			each(sets[1], []Grant{{Addr: addr}})
			return nil
		},
		Coexisting: func() bool { return false },
	}
	found, err := c.Verify()
	fatal.If(t, err)
	if want := []Deviation{{sets[0], addr.Next()}, {sets[2], addr}}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	if read != 2 { // in each of two readings
		t.Errorf("%d times read", read)
	}
}

// TestForeignGrantsGoInOrder: an address that a foreign grant opens is not left without the one
// that denies it.
func TestForeignGrantsGoInOrder(t *testing.T) {
	addr, subject := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.1.0.5")
	denied, opened := GrantSet{Rule: "d0123456789abcdef1", Subject: subject}, GrantSet{Rule: "a0123456789abcdef", Subject: subject}
	there := map[GrantSet]bool{denied: true, opened: true}
	var removed []policy.RuleID
	c := Comparison{
		Sets:   func(func(GrantSet) bool) {},
		Freeze: func(GrantSet, func([]Frozen)) {},
		List: func(each func(GrantSet, []Grant)) error {
			for set := range there {
				each(set, []Grant{{Addr: addr}})
			}
			return nil
		},
		Apply: func(ops []GrantOp) {
			for _, op := range ops {
				if op.Remove && len(op.Grants) > 0 {
					removed = append(removed, op.Set.Rule)
					delete(there, op.Set)
				}
			}
		},
		Coexisting: func() bool { return false },
	}
	found, err := c.Verify()
	fatal.If(t, err)
	fatal.If(t, c.Repair(found))
	if want := []policy.RuleID{opened.Rule, denied.Rule}; !slices.Equal(removed, want) {
		t.Errorf("removed %q, want %q", removed, want)
	}
}

// TestDueGrants: a grant whose deadline has passed has a shorter timeout in the kernel than the
// least that the table renders. It is no deviation, and neither is its removal between the two
// readings.
func TestDueGrants(t *testing.T) {
	addr, set := netip.MustParseAddr("192.0.2.1"), GrantSet{Ports: "tcp/80", Name: "a"}
	for name, c := range map[string]struct {
		is, want time.Duration
		due      bool
		deviates bool
	}{
		"due":            {9*time.Minute + 50*time.Second, 10 * time.Minute, true, false},
		"due, longer":    {11 * time.Minute, 10 * time.Minute, true, true},
		"not due":        {9*time.Minute + 50*time.Second, 10 * time.Minute, false, true},
		"within a slack": {9*time.Minute + 58*time.Second, 10 * time.Minute, false, false},
	} {
		there := []Frozen{{Set: set, Certain: []Grant{{Addr: addr, Timeout: c.want, Due: c.due}}}}
		v := Comparison{
			Sets: slices.Values([]GrantSet{set}),
			Members: func(GrantSet) []Frozen {
				all := there
				if !c.deviates { // it ends
					there = []Frozen{{Set: set}}
				}
				return all
			},
			List:       func(each func(GrantSet, []Grant)) error { each(set, []Grant{{Addr: addr, Timeout: c.is}}); return nil },
			Coexisting: func() bool { return false },
		}
		found, err := v.Verify()
		fatal.If(t, err)
		if (len(found) > 0) != c.deviates {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// TestGrantsThatChangeAreNoDeviation: an address that is missing at the first reading and foreign at
// the second, or has other names at each, changed between the two parts of both readings.
func TestGrantsThatChangeAreNoDeviation(t *testing.T) {
	addr, set := netip.MustParseAddr("192.0.2.1"), GrantSet{Ports: "tcp/80", Name: "a"}
	grant := func(comment string) []Grant { return []Grant{{Addr: addr, Timeout: time.Minute, Comment: comment}} }
	for name, readings := range map[string][2]struct{ is, want []Grant }{
		"written, then ended": {{nil, grant("a.test")}, {grant("a.test"), nil}},
		"other names":         {{grant("a.test"), grant("b.test")}, {grant("b.test"), grant("c.test")}},
		"missing":             {{nil, grant("a.test")}, {nil, grant("a.test")}},
		"other comment":       {{grant("x"), grant("a.test")}, {grant("x"), grant("a.test")}},
	} {
		n := -1
		v := Comparison{
			Sets:       slices.Values([]GrantSet{set}),
			Members:    func(GrantSet) []Frozen { return []Frozen{{Set: set, Certain: readings[n].want}} },
			List:       func(each func(GrantSet, []Grant)) error { n++; each(set, readings[n].is); return nil },
			Coexisting: func() bool { return false },
		}
		found, err := v.Verify()
		fatal.If(t, err)
		if want := name == "missing" || name == "other comment"; (len(found) > 0) != want {
			t.Errorf("%s: %v", name, found)
		}
	}
}
