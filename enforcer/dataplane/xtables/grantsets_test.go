package xtables

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/iptablestest"
)

// fakeGrants are desired grants that do not change.
type fakeGrants map[dataplane.GrantSet]struct {
	certain   []dataplane.Grant
	uncertain map[netip.Addr]bool
}

func (f fakeGrants) Holds(set dataplane.GrantSet) bool {
	set.Name = GrantSetName(set.Pod, set.Ports, familyOf(set.IPv6))
	_, there := f[set]
	return there
}

func (f fakeGrants) Adopt(held map[dataplane.GrantSet][]dataplane.Grant, _ time.Time) {
	for set, grants := range held {
		is := f[set]
		is.certain = grants
		f[set] = is
	}
}

func (f fakeGrants) Bounds() iter.Seq2[dataplane.GrantSet, dataplane.Bounds] {
	return func(yield func(dataplane.GrantSet, dataplane.Bounds) bool) {
		for set, is := range f {
			if !yield(set, dataplane.Bounds{Min: len(is.certain), Max: len(is.certain) + len(is.uncertain)}) {
				return
			}
		}
	}
}

func (f fakeGrants) Members(set dataplane.GrantSet) (out []dataplane.Frozen) {
	for s, is := range f {
		if s.Name == set.Name {
			out = append(out, dataplane.Frozen{Set: s, Certain: is.certain, Uncertain: is.uncertain})
		}
	}
	return out
}

func (f fakeGrants) Freeze(set dataplane.GrantSet, do func([]dataplane.Frozen)) {
	if frozen := f.Members(set); len(frozen) > 0 {
		do(frozen)
	}
}

func (f fakeGrants) FreezeBounds(set dataplane.GrantSet, do func(dataplane.Bounds)) {
	var sum dataplane.Bounds
	for _, is := range f.Members(set) {
		sum.Min += len(is.Certain)
		sum.Max += len(is.Certain) + len(is.Uncertain)
	}
	do(sum)
}

// grantSetOf is the HTTPS set of a pod.
func grantSetOf(pod string, ipv6 bool) dataplane.GrantSet {
	ref := policy.PodRef{Namespace: "shop", Name: pod}
	return dataplane.GrantSet{Pod: ref, Ports: "tcp/443", IPv6: ipv6, Name: GrantSetName(ref, "tcp/443", familyOf(ipv6))}
}

// fakeGrantSets returns a dataplane on fake sets, with those of grants.
func fakeGrantSets(t *testing.T, sets ...dataplane.GrantSet) (*packetFilter, *ipset.Fake) {
	fake := ipset.NewFake(time.Now)
	for _, s := range sets {
		fatal.If(t, fake.Ensure(grantHeader(s)))
	}
	return newFilter(fake, iptablestest.NewFake()), fake
}

func granted(addrs ...string) (out []dataplane.Grant) {
	for _, a := range addrs {
		out = append(out, dataplane.Grant{Addr: addr(a), Timeout: time.Hour, Comment: "of " + a})
	}
	return out
}

// open returns the addresses of a set, sorted.
func open(t *testing.T, sets ipset.Interface, set dataplane.GrantSet) (out []netip.Addr) {
	t.Helper()
	_, entries, err := ipset.Read(sets, set.Name)
	fatal.If(t, err)
	for _, en := range entries {
		out = append(out, en.Addr)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// Each change of one call has its own result, and the next call keeps nothing of it.
func TestApplyGrants(t *testing.T) {
	web, gone, six := grantSetOf("web", false), grantSetOf("gone", false), grantSetOf("web", true)
	g, fake := fakeGrantSets(t, web, six)
	long := granted("2001:db8::1")
	long[0].Timeout = 1 << 62
	ops := []dataplane.GrantOp{
		{Set: web, Grants: granted("192.0.2.1", "192.0.2.2", "192.0.2.3")}, {Set: gone, Grants: granted("192.0.2.1")},
		{Set: six, Grants: long}, {Set: web, Remove: true, Grants: granted("192.0.2.2")},
	}
	for range 2 {
		g.ApplyGrants(ops)
		if ops[0].Err != nil || !dataplane.IsNoSet(ops[1].Err) || !ipset.IsNotFound(ops[1].Err) || ops[2].Err != nil || ops[3].Err != nil {
			t.Errorf("results %v, %v, %v, %v", ops[0].Err, ops[1].Err, ops[2].Err, ops[3].Err)
		}
		if got := open(t, fake, web); !slices.Equal(got, addrs("192.0.2.1 192.0.2.3")) {
			t.Errorf("open: %v", got)
		}
	}
	entries, err := fake.List(six.Name)
	if err != nil || len(entries) != 1 || entries[0].Timeout > ipset.TimeoutMax || entries[0].Timeout < ipset.TimeoutMax-time.Minute || entries[0].Comment != "of 2001:db8::1" {
		t.Errorf("%v, %v", entries, err)
	}
	ops = []dataplane.GrantOp{{Set: web, Remove: true, Grants: granted("192.0.2.9")}}
	if g.ApplyGrants(ops); ops[0].Err != nil || len(open(t, fake, web)) != 2 {
		t.Errorf("after an unlike call: %v, %v", ops[0].Err, open(t, fake, web))
	}
}

// deviating returns the sets of grants that deviate.
func deviating(t *testing.T, m *mirrors, grants dataplane.Grants) []*mirror {
	t.Helper()
	wrong, err := m.verify(mirrorsOf(grants))
	fatal.If(t, err)
	return slices.DeleteFunc(wrong, func(s *mirror) bool { return s.fixed != nil })
}

// What deviates is found, by its size or by its members, and repaired; uncertain addresses
// are neither missing nor surplus, and the grants of another agent stay while it is there.
func TestGrantSetsAreVerified(t *testing.T) {
	web := grantSetOf("web", false)
	want := fakeGrants{web: {granted("192.0.2.1", "192.0.2.2"), map[netip.Addr]bool{addr("192.0.2.3"): true}}}
	for _, test := range []struct {
		what          string
		there         []dataplane.Grant
		size, members bool // wrong
		coexisting    bool
		after         string
	}{
		{"as wanted", granted("192.0.2.1", "192.0.2.2"), false, false, false, "192.0.2.1 192.0.2.2"},
		{"an uncertain one", granted("192.0.2.1", "192.0.2.2", "192.0.2.3"), false, false, false, "192.0.2.1 192.0.2.2 192.0.2.3"},
		{"flushed", nil, true, true, false, "192.0.2.1 192.0.2.2"},
		{"an uncertain one in place of another", granted("192.0.2.1", "192.0.2.3"), false, true, false, "192.0.2.1 192.0.2.2 192.0.2.3"},
		{"exchanged", granted("192.0.2.1", "203.0.113.9"), false, true, false, "192.0.2.1 192.0.2.2"},
		{"two too many", granted("192.0.2.1", "192.0.2.2", "203.0.113.8", "203.0.113.9"), true, true, false, "192.0.2.1 192.0.2.2"},
		{"two of another agent", granted("192.0.2.1", "192.0.2.2", "203.0.113.8", "203.0.113.9"), false, false, true, "192.0.2.1 192.0.2.2 203.0.113.8 203.0.113.9"},
	} {
		g, fake := fakeGrantSets(t, web)
		m := newMirrors(fake, func() bool { return test.coexisting }, time.Now)
		g.ApplyGrants([]dataplane.GrantOp{{Set: web, Grants: test.there}})
		sets := m.of(dataplane.State{Grants: want})
		maps.DeleteFunc(sets, func(_ string, s *mirror) bool { return s.fixed != nil })
		wrong, err := m.wrongSizes(sets)
		if err != nil || len(wrong) > 0 != test.size {
			t.Errorf("%s: wrong sizes %v, %v", test.what, wrong, err)
		}
		if differs, err := m.differs(sets[web.Name]); err != nil || differs != test.members {
			t.Errorf("%s: differs %v, %v", test.what, differs, err)
		}
		wrong = deviating(t, &m, want)
		if len(wrong) > 0 != test.members || len(wrong) > 1 {
			t.Errorf("%s: deviating %v", test.what, wrong)
		}
		for _, s := range wrong {
			if repaired, err := m.repair(s); err != nil || !repaired {
				t.Errorf("%s: repaired %v, %v", test.what, repaired, err)
			}
		}
		if got := open(t, fake, web); !slices.Equal(got, addrs(test.after)) {
			t.Errorf("%s: after the repair %v", test.what, got)
		}
		if wrong := deviating(t, &m, want); len(wrong) > 0 {
			t.Errorf("%s: deviating after the repair %v", test.what, wrong)
		}
	}
}

// TestMirrorsWithoutARule: a set of grants that no rule asks any more is not created again by a repair, and a set that
// was found to differ is forgotten.
func TestMirrorsWithoutARule(t *testing.T) {
	web := grantSetOf("web", false)
	for _, asked := range []bool{false, true} {
		fake, grants := ipset.NewFake(time.Now), fakeGrants{}
		if asked {
			grants[web] = fakeGrants{web: {certain: granted("192.0.2.1")}}[web]
		}
		m := newMirrors(fake, func() bool { return false }, time.Now)
		m.differing[web.Name] = true
		wrong := deviating(t, &m, grants)
		if len(wrong) > 0 != asked || m.differing[web.Name] != asked {
			t.Errorf("asked %v: deviating %v, differing %v", asked, wrong, m.differing)
		}
		repaired, err := m.repair(&mirror{name: web.Name, grants: grants, set: web})
		if _, _, missing := ipset.Read(fake, web.Name); err != nil || repaired != asked || missing == nil != asked {
			t.Errorf("asked %v: repaired %v, %v, the set: %v", asked, repaired, err, missing)
		}
	}
}

// amid calls before the sizes of sets are read.
type amid struct {
	*ipset.Fake
	before func()
}

func (a amid) Sizes(names ...string) (map[string]int, error) {
	a.before()
	return a.Fake.Sizes(names...)
}

// TestASetThatGoesWhileSetsAreCompared: a grant that finds its set missing has the next write compare the sets, also
// while a write does.
func TestASetThatGoesWhileSetsAreCompared(t *testing.T) {
	var x *packetFilter
	op := []dataplane.GrantOp{{Set: grantSetOf("web", false), Grants: granted("192.0.2.1")}}
	x = newFilter(amid{ipset.NewFake(time.Now), func() { x.ApplyGrants(op) }}, iptablestest.NewFake())
	fatal.If(t, x.stageSets(dataplane.State{Grants: fakeGrants{}}))
	if !dataplane.IsNoSet(op[0].Err) || !x.resync.Load() {
		t.Errorf("the grant says %v, the sets are compared again: %v", op[0].Err, x.resync.Load())
	}
}

// TestListGrants: few sets are listed one by one and many with all others, with the same result; a
// set that is missing has no grants.
func TestListGrants(t *testing.T) {
	for _, count := range []int{1, listSingly, listSingly + 1} {
		var sets []dataplane.GrantSet
		for i := range count {
			sets = append(sets, grantSetOf(fmt.Sprintf("p%d", i), false))
		}
		other := grantSetOf("other", false)
		g, fake := fakeGrantSets(t, append(slices.Clone(sets), other)...)
		ops := []dataplane.GrantOp{{Set: other, Grants: granted("198.51.100.9")}}
		want := map[string][]string{}
		for i, s := range sets {
			a := fmt.Sprintf("192.0.2.%d", i)
			ops = append(ops, dataplane.GrantOp{Set: s, Grants: granted(a)})
			want[s.Pod.Name] = []string{a}
		}
		g.ApplyGrants(ops)
		fatal.If(t, fake.Destroy(sets[0].Name))
		delete(want, sets[0].Pod.Name)
		got := map[string][]string{}
		fatal.If(t, g.ListGrants(sets, func(set dataplane.GrantSet, part []dataplane.Grant) {
			for _, a := range part {
				got[set.Pod.Name] = append(got[set.Pod.Name], a.Addr.String())
			}
		}))
		diff.Error(t, want, got, count, "sets")
	}
}

// stuckSet is fake sets, one of which the kernel neither makes nor changes.
type stuckSet struct {
	*ipset.Fake
	name string
}

var errStuck = errors.New("out of memory")

func (s *stuckSet) try(name string, do func() error) error {
	if name == s.name {
		return errStuck
	}
	return do()
}

func (s *stuckSet) Ensure(set ipset.Set) error {
	return s.try(set.Name, func() error { return s.Fake.Ensure(set) })
}

func (s *stuckSet) Destroy(name string) error {
	return s.try(name, func() error { return s.Fake.Destroy(name) })
}

func (s *stuckSet) Apply(ops []ipset.Op) {
	for i := range ops {
		ops[i].Err = s.try(ops[i].Set, func() error { s.Fake.Apply(ops[i : i+1]); return ops[i].Err })
	}
}

// newFilter returns a dataplane on fakes.
func newFilter(sets ipset.Interface, chains iptables.Interface) *packetFilter {
	return Config{Sets: sets, Chains: chains}.New(dataplane.Owner{
		Mark: testMark, Candidate: testCandidate, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Coexisting: func() bool { return false },
	}).(*packetFilter)
}

// TestASetThatStays: one that cannot be destroyed is an error, and all others are destroyed.
func TestASetThatStays(t *testing.T) {
	for what, remove := range map[string]func(x *packetFilter) error{
		"Shrink": func(x *packetFilter) error {
			return x.Apply(context.Background(), dataplane.State{Grants: fakeGrants{}}, dataplane.Shrink)
		},
		"Remove": func(x *packetFilter) error {
			_, err := x.Remove(context.Background())
			return err
		},
	} {
		sets := &stuckSet{Fake: ipset.NewFake(time.Now), name: "NG4-0"}
		for i := range 10 {
			fatal.If(t, sets.Fake.Ensure(ipset.Set{Name: fmt.Sprint("NG4-", i), Type: ipset.HashIP}))
		}
		x := newFilter(sets, iptablestest.NewFake())
		_, err := x.Recover(context.Background())
		fatal.If(t, err)
		err = remove(x)
		if left, _ := sets.Sizes(); !errors.Is(err, errStuck) || !maps.Equal(left, map[string]int{sets.name: 0}) {
			t.Errorf("%s leaves %v and says %v", what, left, err)
		}
	}
}

// TestARefusedSetClosesItsPodAlone: a set of a pod that the kernel does not make or repair holds up no other pod's
// change. No rule asks it until the kernel takes it, and the error tells the pod.
func TestARefusedSetClosesItsPodAlone(t *testing.T) {
	const coming = policy.PortSet("tcp/1-2")
	foreign := ipset.Entry{Addr: addr("203.0.113.9"), Protocol: 6, Port: 443, Timeout: time.Hour}
	for what, rival := range map[string]func(f *ipset.Fake, set dataplane.GrantSet) error{
		"is not made":         nil,
		"is gone":             func(f *ipset.Fake, set dataplane.GrantSet) error { return f.Destroy(set.Name) },
		"has a foreign entry": func(f *ipset.Fake, set dataplane.GrantSet) error { return f.Add(set.Name, foreign) },
		"is another set": func(f *ipset.Fake, set dataplane.GrantSet) error {
			return errors.Join(f.Destroy(set.Name), f.Ensure(ipset.Set{Name: set.Name, Type: ipset.HashIP}))
		},
	} {
		for _, found := range []bool{false, true} { // by Verify, or after a failed write
			ctx, web := context.Background(), grantSetOf("web", false)
			sets, chains := &stuckSet{Fake: ipset.NewFake(time.Now)}, iptablestest.NewFake()
			x := newFilter(sets, chains)
			st := dataplane.State{Grants: fakeGrants{}, Subjects: dataplane.Subjects{}}
			for i, s := range []dataplane.GrantSet{web, grantSetOf("other", false)} {
				at := []netip.Addr{addr(fmt.Sprintf("10.1.0.%d", i+1))}
				st.Subjects[s.Pod] = &dataplane.Subject{Pod: s.Pod, Addrs: at, Judged: at, Grants: []policy.PortSet{"tcp/443"}, Staged: true, Isolated: true}
			}
			if rival != nil {
				fatal.If(t, x.Apply(ctx, st, dataplane.Commit))
				fatal.If(t, rival(sets.Fake, web))
				if found {
					objects, err := x.Verify(ctx, st, true)
					if err != nil || !slices.Equal(objects, []string{"set " + web.Name}) {
						t.Errorf("a set %s, and %v deviates, %v", what, objects, err)
					}
				} else {
					x.resync.Store(true)
				}
			}
			st.Subjects = maps.Clone(st.Subjects)
			for pod, s := range st.Subjects {
				more := *s
				more.Grants = []policy.PortSet{"tcp/443", coming}
				st.Subjects[pod] = &more
			}
			asks := func(pod policy.PodRef, ports policy.PortSet) bool {
				return strings.Contains(chains.Dump(iptables.IPv4, "mangle"), "--match-set "+GrantSetName(pod, ports, iptables.IPv4)+" ")
			}
			sets.name = web.Name
			for range 2 {
				err := x.Apply(ctx, st, dataplane.Commit)
				if refused := (dataplane.Refused{}); !errors.As(err, &refused) || !errors.Is(err, errStuck) || !strings.Contains(err.Error(), web.Pod.String()) {
					t.Errorf("a set %s, found %v: %v", what, found, err)
				}
				for pod := range st.Subjects {
					if want := pod != web.Pod; asks(pod, "tcp/443") != want || !asks(pod, coming) {
						t.Errorf("a set of %v %s; the rules of %v ask its set: %v, and the set of new ports: %v", web.Pod, what, pod, asks(pod, "tcp/443"), asks(pod, coming))
					}
				}
			}
			sets.name = ""
			if err := x.Apply(ctx, st, dataplane.Commit); err != nil || !asks(web.Pod, "tcp/443") || len(open(t, sets, web)) > 0 {
				t.Errorf("a set that %s is taken at last: %v, with %v", what, err, open(t, sets, web))
			}
		}
	}
}

// busyGrants are grants to which one is added after each look at them.
type busyGrants struct {
	fakeGrants
	t   *testing.T
	set dataplane.GrantSet
	add func()
}

func (b *busyGrants) Members(set dataplane.GrantSet) []dataplane.Frozen {
	defer b.add()
	return b.fakeGrants.Members(set)
}

func (b *busyGrants) Freeze(dataplane.GrantSet, func([]dataplane.Frozen)) {
	b.t.Error("grants wait for a comparison")
}

// Grants that come while a set is compared are no deviation and do not wait for the comparison, and
// what another program did to the set is found beside them.
func TestGrantsComeDuringAComparison(t *testing.T) {
	web := grantSetOf("web", false)
	for _, exchanged := range []bool{false, true} {
		g, fake := fakeGrantSets(t, web)
		busy := &busyGrants{fakeGrants{web: {certain: granted("192.0.2.1")}}, t, web, nil}
		busy.add = func() {
			is := busy.fakeGrants[web]
			come := granted("198.51.100." + string(rune('0'+len(is.certain))))
			is.certain = append(is.certain, come...)
			busy.fakeGrants[web] = is
			g.ApplyGrants([]dataplane.GrantOp{{Set: web, Grants: come}})
		}
		g.ApplyGrants([]dataplane.GrantOp{{Set: web, Grants: granted("192.0.2.1")}})
		if exchanged {
			fatal.If(t, fake.Delete(web.Name, ipset.Entry{Addr: addr("192.0.2.1")}))
			fatal.If(t, fake.Add(web.Name, ipset.Entry{Addr: addr("203.0.113.9"), Timeout: time.Hour}))
		}
		m := newMirrors(fake, func() bool { return false }, time.Now)
		differs, err := m.differs(&mirror{name: web.Name, grants: busy, set: web})
		if err != nil || differs != exchanged || len(busy.fakeGrants[web].certain) != 3 {
			t.Errorf("exchanged %t: differs %t, %v, grants %v", exchanged, differs, err, busy.fakeGrants[web].certain)
		}
	}
}
