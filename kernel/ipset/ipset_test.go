package ipset_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

// both runs a test against the kernel and against the fake: one contract.
func both(t *testing.T, test func(t *testing.T, i ipset.Interface)) {
	t.Run("kernel", func(t *testing.T) {
		netns.Own(t)
		k, err := ipset.Open()
		fatal.If(t, err)
		defer k.Close()
		test(t, k)
	})
	t.Run("fake", func(t *testing.T) {
		c := &clock{time.Unix(1000, 0)}
		test(t, ipset.NewFake(c.now))
	})
}

var (
	v4 = netip.MustParseAddr("192.0.2.1")
	v6 = netip.MustParseAddr("2001:db8::1")
)

// change is Apply of one operation.
func change(i ipset.Interface, op ipset.Op) error {
	ops := []ipset.Op{op}
	i.Apply(ops)
	return ops[0].Err
}

func add(i ipset.Interface, set string, entries ...ipset.Entry) error {
	return change(i, ipset.Op{Set: set, Entries: entries})
}

func remove(i ipset.Interface, set string, entries ...ipset.Entry) error {
	return change(i, ipset.Op{Set: set, Delete: true, Entries: entries})
}

func sorted(t *testing.T, i ipset.Interface, name string) []ipset.Entry {
	t.Helper()
	_, es, err := ipset.Read(i, name)
	fatal.If(t, err)
	slices.SortFunc(es, func(a, b ipset.Entry) int { return a.Addr.Compare(b.Addr) })
	return es
}

func TestEntriesComeBackAsWritten(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", ipset.CommentLengthMax)
	tests := []struct {
		set   ipset.Set
		entry ipset.Entry
	}{
		{ipset.Set{Name: "a", Type: ipset.HashIP, Timeout: true, Comment: true, HashSize: 64}, ipset.Entry{Addr: v4, Timeout: 90 * time.Second, Comment: "d=1 n=www.example.org"}},
		{ipset.Set{Name: "b", Type: ipset.HashIP, IPv6: true, Timeout: true, Comment: true}, ipset.Entry{Addr: v6, Timeout: ipset.TimeoutMax, Comment: long}},
		{ipset.Set{Name: "c", Type: ipset.HashIP, IPv6: true}, ipset.Entry{Addr: v6}},
		{ipset.Set{Name: "d", Type: ipset.HashIPPort}, ipset.Entry{Addr: v4, Protocol: 17, Port: 53}},
		{ipset.Set{Name: "e", Type: ipset.HashIPPort, IPv6: true}, ipset.Entry{Addr: v6, Protocol: 6, Port: 53}},
		{ipset.Set{Name: "f", Type: ipset.HashNetIface}, ipset.Entry{Addr: v4, Iface: "eth0"}},
		{ipset.Set{Name: "g", Type: ipset.HashNetIface, IPv6: true}, ipset.Entry{Addr: v6, Iface: "veth12345678"}},
	}
	both(t, func(t *testing.T, i ipset.Interface) {
		for _, test := range tests {
			fatal.If(t, i.Ensure(test.set))
			fatal.If(t, add(i, test.set.Name, test.entry))
			got := sorted(t, i, test.set.Name)
			if len(got) == 1 && got[0].Timeout > test.entry.Timeout-2*time.Second && got[0].Timeout <= test.entry.Timeout {
				got[0].Timeout = test.entry.Timeout
			}
			diff.Error(t, []ipset.Entry{test.entry}, got, "set", test.set.Name)
		}
		sizes, err := i.Sizes()
		if names := slices.Sorted(maps.Keys(sizes)); err != nil || strings.Join(names, " ") != "a b c d e f g" {
			t.Errorf("the sets are %v, %v", names, err)
		}
	})
}

func TestAddOverwritesAndDeleteForgives(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		fatal.If(t, i.Ensure(ipset.Set{Name: "s", Type: ipset.HashIP, Timeout: true, Comment: true}))
		for _, e := range []ipset.Entry{
			{Addr: v4, Timeout: 100 * time.Second, Comment: "long"},
			{Addr: v4, Timeout: 10 * time.Second, Comment: "short"},
		} {
			fatal.If(t, add(i, "s", e))
		}
		got := sorted(t, i, "s")
		if len(got) != 1 || got[0].Comment != "short" || got[0].Timeout > 10*time.Second {
			t.Errorf("the second add must overwrite timeout and comment, got %+v", got)
		}
		if err := remove(i, "s", ipset.Entry{Addr: netip.MustParseAddr("192.0.2.99")}, ipset.Entry{Addr: v4}); err != nil {
			t.Errorf("deleting an absent entry beside a present one: %v", err)
		}
		if got := sorted(t, i, "s"); len(got) != 0 {
			t.Errorf("left after delete: %+v", got)
		}
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		small := ipset.Set{Name: "small", Type: ipset.HashIP, MaxElem: 1}
		fatal.If(t, i.Ensure(small))
		if err := i.Ensure(small); err != nil {
			t.Errorf("ensure of an equal set: %v", err)
		}
		other := small
		other.IPv6 = true
		if err := i.Ensure(other); !ipset.IsMismatch(err) {
			t.Errorf("ensure with another family: %v, want a mismatch", err)
		}
		other = small
		other.Type = ipset.HashIPPort
		if err := i.Ensure(other); !ipset.IsMismatch(err) {
			t.Errorf("ensure with another type: %v, want a mismatch", err)
		}
		if err := add(i, "none", ipset.Entry{Addr: v4}); !ipset.IsNotFound(err) {
			t.Errorf("add to no set: %v", err)
		}
		if _, _, err := ipset.Read(i, "none"); !ipset.IsNotFound(err) {
			t.Errorf("list of no set: %v", err)
		}
		if err := i.Destroy("none"); !ipset.IsNotFound(err) {
			t.Errorf("destroy of no set: %v", err)
		}
		if err := add(i, "small", ipset.Entry{Addr: v6}); err == nil {
			t.Error("an IPv6 address went into an IPv4 set")
		}
		if err := add(i, "small", ipset.Entry{Addr: v4}); err != nil {
			t.Error(err)
		}
		var full error
		for a := v4; full == nil && a != netip.MustParseAddr("192.0.3.0"); {
			a = a.Next()
			full = add(i, "small", ipset.Entry{Addr: a})
		}
		if !isFull(full) {
			t.Errorf("a set of one entry took 256 or failed otherwise: %v", full)
		}
		if err := i.Destroy("small"); err != nil {
			t.Error(err)
		}
	})
}

func TestSizesOfSomeSets(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		six := grants("six")
		six.IPv6 = true
		ensure(t, i, grants("a"), six, grants("empty"))
		for _, err := range []error{add(i, "a", entry("192.0.2.1"), entry("192.0.2.2")), add(i, "six", entry("2001:db8::1"))} {
			fatal.If(t, err)
		}
		for _, test := range []struct {
			names []string
			want  map[string]int
		}{
			{nil, map[string]int{"a": 2, "six": 1, "empty": 0}},
			{[]string{"a"}, map[string]int{"a": 2}},
			{[]string{"missing", "empty", "six"}, map[string]int{"empty": 0, "six": 1}},
			{[]string{"missing"}, map[string]int{}},
		} {
			for range 2 { // an error leaves nothing behind for the next
				got, err := i.Sizes(test.names...)
				if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
					t.Errorf("%v: %v (-want +got):\n%s", test.names, err, diff)
				}
			}
		}
		// More than the kernel says at a time.
		want := map[string]int{"a": 2, "six": 1, "empty": 0}
		for n := range 700 {
			name := fmt.Sprintf("another-of-many-%d", n)
			ensure(t, i, grants(name))
			want[name] = 0
		}
		got, err := i.Sizes()
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}

// One listing of all sets says the same as one of each.
func TestListAll(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		want := map[ipset.Set][]ipset.Entry{
			{Name: "empty", Type: ipset.HashIP}:                 {},
			{Name: "small", Type: ipset.HashIP, IPv6: true}:     {{Addr: netip.MustParseAddr("2001:db8::1"), Timeout: time.Hour, Comment: "six"}},
			{Name: "ports", Type: ipset.HashIPPort}:             {{Addr: v4, Protocol: 17, Port: 53, Timeout: time.Hour, Comment: "port"}},
			{Name: "homes", Type: ipset.HashNetIface}:           {{Addr: v4, Iface: "veth5", Timeout: time.Hour, Comment: "home"}},
			{Name: strings.Repeat("n", 31), Type: ipset.HashIP}: nil,
		}
		large := ipset.Set{Name: "zlarge", Type: ipset.HashIP}
		addr := netip.MustParseAddr("198.18.0.0")
		for range 2000 {
			addr = addr.Next()
			want[large] = append(want[large], ipset.Entry{Addr: addr, Timeout: time.Hour, Comment: strings.Repeat("c", 200)})
		}
		for s, entries := range maps.Clone(want) {
			delete(want, s)
			s.Timeout, s.Comment = true, true
			want[s] = entries
			fatal.If(t, i.Ensure(s))
			fatal.If(t, add(i, s.Name, entries...))
		}
		got, parts := map[ipset.Set]map[ipset.Entry]bool{}, 0
		fatal.If(t, i.Each("", func(s ipset.Set, entries []ipset.Entry) {
			parts++
			if got[s] == nil {
				got[s] = map[ipset.Entry]bool{}
			}
			for _, e := range entries {
				if e.Timeout <= 0 || e.Timeout > time.Hour {
					t.Errorf("%s: %v is left", s.Name, e.Timeout)
				}
				e.Timeout = time.Hour
				got[s][e] = true
			}
		}))
		if len(got) != len(want) || parts <= len(want) {
			t.Errorf("%d sets of %d in %d parts", len(got), len(want), parts)
		}
		for s, entries := range want {
			if len(got[s]) != len(entries) {
				t.Errorf("%+v has %d entries of %d", s, len(got[s]), len(entries))
			}
			for _, e := range entries {
				if !got[s][e] {
					t.Errorf("%s lacks %+v", s.Name, e)
				}
			}
		}
	})
}

func network(p netip.Prefix) ipset.Entry {
	return ipset.Entry{Addr: p.Addr(), Bits: uint8(p.Bits()), Iface: "veth1"}
}

// TestNetworks: prefixes of every length come back as they were written, a whole
// address without a length, and each is one entry.
func TestNetworks(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		for _, six := range []bool{false, true} {
			name, base, bits := "n4", v4, 32
			if six {
				name, base, bits = "n6", v6, 128
			}
			set := ipset.Set{Name: name, Type: ipset.HashNetIface, IPv6: six}
			for range 2 { // the second time it is there
				fatal.If(t, i.Ensure(set))
			}
			want := map[string]bool{}
			for n := 1; n <= bits; n++ {
				p := netip.PrefixFrom(base, n).Masked()
				if err := add(i, name, network(p)); err != nil {
					t.Fatalf("%s: %v", p, err)
				}
				want[p.String()] = true
			}
			got := map[string]bool{}
			for _, e := range sorted(t, i, name) {
				if int(e.Bits) >= bits {
					t.Errorf("%s has the length %d", e.Addr, e.Bits)
				}
				n := int(e.Bits)
				if n == 0 {
					n = bits
				}
				got[fmt.Sprint(netip.PrefixFrom(e.Addr, n))] = true
			}
			diff.Error(t, want, got)
			fatal.If(t, remove(i, name, ipset.Entry{Addr: base, Iface: "veth1"}, network(netip.PrefixFrom(base, 8).Masked())))
			if sizes, err := i.Sizes(name); err != nil || sizes[name] != bits-2 {
				t.Errorf("%d entries are left of %d, %v", sizes[name], bits, err)
			}
		}
	})
}
