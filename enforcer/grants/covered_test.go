package grants

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

func TestCovered(t *testing.T) {
	w := newNode(t)
	p, q := pod("web", "allow"), pod("other", "allow")
	w.apply([]policy.Pod{p, q}, pol("allow", "tcp/443 www.example.org *.example.net", "udp/53 www.example.org"))
	good := w.grants(p.PodRef, "www.example.org", 60, "192.0.2.1 2001:db8::1 192.0.2.2")
	if len(good) != 2 || w.table.Covered(good) {
		t.Fatalf("%d grants, covered before they are made", len(good))
	}
	fatal.If(t, granttest.Grant(context.Background(), w.table, good))
	tests := []struct {
		what   string
		change func(g *policy.Grant)
		want   bool
	}{
		{"the same", func(*policy.Grant) {}, true},
		{"earlier", func(g *policy.Grant) { g.Deadline = g.Deadline.Add(-time.Hour) }, true},
		{"one family", func(g *policy.Grant) { g.Addrs = addrs("2001:db8::1") }, true},
		{"no address", func(g *policy.Grant) { g.Addrs = nil }, true},
		{"another view", func(g *policy.Grant) { g.View = &policy.View{} }, true},
		{"later", func(g *policy.Grant) { g.Deadline = g.Deadline.Add(1) }, false},
		{"another pod", func(g *policy.Grant) { g.Pod = q.PodRef }, false},
		{"an earlier pod of the name", func(g *policy.Grant) { g.Pod.UID = "before" }, false},
		{"another name", func(g *policy.Grant) { g.Name = dns("a.example.net") }, false},
		{"another port set", func(g *policy.Grant) { g.Ports = "tcp/80" }, false},
		{"another address beside them", func(g *policy.Grant) { g.Addrs = append(addrs("192.0.2.9"), g.Addrs...) }, false},
		{"another of IPv6", func(g *policy.Grant) { g.Addrs = addrs("192.0.2.1 2001:db8::2") }, false},
		{"an address in IPv6", func(g *policy.Grant) { g.Addrs = addrs("::ffff:192.0.2.1") }, false},
	}
	for _, test := range tests {
		for i := range good {
			asked := []policy.Grant{good[0], good[1]}
			test.change(&asked[i])
			diff.Equal(t, test.want, w.table.Covered(asked), "grant", i, "with", test.what)
		}
	}
	if !w.table.Covered(nil) {
		t.Error("nothing is not covered")
	}
	diff.Equal(t, 0, testing.AllocsPerRun(100, func() { w.table.Covered(good) }), "allocations")
	w.expire(time.Hour)
	if w.table.Covered(good) {
		t.Error("covered after the deadline")
	}
}

// A kernel that hangs holds the writer, and no reader.
func TestCoveredWaitsForNothing(t *testing.T) {
	w, p := web(t)
	open := w.grants(p.PodRef, "www.example.org", 60, "192.0.2.1")
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	release := w.sets.block()
	defer release()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	coming := w.grants(p.PodRef, "www.example.org", 60, "192.0.2.2")
	if err := granttest.Grant(ctx, w.table, coming); err == nil {
		t.Fatal("the kernel hangs, and has acknowledged")
	}
	if !w.table.Covered(open) || w.table.Covered(coming) {
		t.Error("while the kernel hangs what is open must be covered, and what is not must not")
	}
	diff.Equal(t, 1, w.table.Figures().Grants, "grants while the kernel hangs")
}

// An address that is taken away is not covered from before the kernel is told. When the
// kernel refuses, it is uncertain: written again by the next answer.
func TestEvictedAddressesAreNotCovered(t *testing.T) {
	one, two := pol("one", "tcp/443 www.example.org"), pol("two", "tcp/443 www.example.net")
	for _, late := range []bool{false, true} {
		w := newNode(t)
		web := pod("web", "one", "two")
		w.apply([]policy.Pod{web}, one, two)
		w.answer(web, "www.example.org", 600, "192.0.2.1 192.0.2.2")
		w.answer(web, "www.example.net", 300, "192.0.2.2 192.0.2.3")
		stays := w.grants(web.PodRef, "www.example.net", 300, "192.0.2.2 192.0.2.3")
		goes := w.grants(web.PodRef, "www.example.org", 600, "192.0.2.1")
		shortens := w.grants(web.PodRef, "www.example.org", 600, "192.0.2.2")
		writes := 0
		w.sets.instead = func(op *dataplane.GrantOp) error {
			if writes++; w.table.Covered(goes) || w.table.Covered(shortens) {
				t.Errorf("covered before: %+v", op)
			}
			w.sets.fail(1, late) // the next op, which shortens
			return w.sets.do(op)
		}
		if err := w.rollOut(w.compile([]policy.Pod{web}, two)); err == nil || writes == 0 {
			t.Fatalf("%d deletions, and the roll-out says %v", writes, err)
		}
		w.sets.instead = nil
		if w.table.Covered(goes) || w.table.Covered(shortens) || w.table.Covered(stays) {
			t.Error("an address that the kernel refused to change is covered")
		}
		if err := granttest.Grant(context.Background(), w.table, stays); err != nil || !w.table.Covered(stays) {
			t.Errorf("written again: %v", err)
		}
		fatal.If(t, w.rollOut(w.compile([]policy.Pod{web}, two)))
		if es := w.entries(web, false); len(es) != 2 || es[0].Addr != addr("192.0.2.2") || !near(es[0].Timeout, 360*time.Second) {
			t.Errorf("left: %v", es)
		}
	}
}

// An address that expires is not covered, not even for a deadline that has come: the
// kernel may have removed it.
func TestExpiringAddressesAreNotCovered(t *testing.T) {
	w, p := web(t)
	g := w.grants(p.PodRef, "www.example.org", 60, "192.0.2.1")
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	w.Pass(120 * time.Second)
	deletions := 0
	w.sets.instead = func(op *dataplane.GrantOp) error {
		if deletions++; !op.Remove || w.table.Covered(g) {
			t.Errorf("covered: %v, before: %+v", w.table.Covered(g), op)
		}
		return w.sets.do(op)
	}
	if !w.table.Covered(g) {
		t.Error("not covered before anything ended")
	}
	if err := w.table.Expire(); err != nil || deletions != 1 {
		t.Errorf("%d deletions, %v", deletions, err)
	}
}

// An address that the kernel added and refused ends at its deadline, and with its policy,
// like any other.
func TestARefusedAddressMayBeThere(t *testing.T) {
	for _, end := range []string{"deadline", "policy"} {
		w, p := web(t)
		w.sets.fail(1, true)
		g := w.grants(p.PodRef, "www.example.org", 60, "192.0.2.1")
		if err := granttest.Grant(context.Background(), w.table, g); err == nil {
			t.Fatal("no error")
		}
		w.sets.instead = nil
		if w.stays(p, "192.0.2.1") == 0 || w.table.Covered(g) {
			t.Fatal("the fixture must leave it in the kernel, and not covered")
		}
		if end == "deadline" {
			w.expire(121 * time.Second)
		} else {
			w.apply([]policy.Pod{p}, pol("allow", "tcp/443 *.example.net"))
		}
		diff.Equal(t, 0, w.stays(p, "192.0.2.1"), "open after its", end)
	}
}

// The dataplane gets the certain addresses of a set to put back, and not those that the
// kernel has never acknowledged.
func TestFreezeKeepsUncertainAddressesApart(t *testing.T) {
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	w.sets.fail(1, false)
	if err := granttest.Grant(context.Background(), w.table, w.grants(p.PodRef, "www.example.org", 60, "192.0.2.2")); err == nil {
		t.Fatal("no error")
	}
	key := grantSet(p.PodRef, https, false)
	w.table.Freeze(key, func(frozen []dataplane.Frozen) {
		certain, uncertain := frozen[0].Certain, frozen[0].Uncertain
		want := w.entries(p, false)
		if !slices.Equal(certain, want) || len(want) != 1 || len(frozen) != 1 || frozen[0].Set != key || len(uncertain) != 1 || !uncertain[addr("192.0.2.2")] {
			t.Errorf("certain %v, uncertain %v, want the certain %v", certain, uncertain, want)
		}
	})
	for set, got := range w.table.Bounds() {
		if want := map[bool]dataplane.Bounds{true: {Min: 1, Max: 2}}[set == key]; got != want {
			t.Errorf("%s: %+v, want %+v", set.Name, got, want)
		}
	}
	w.table.FreezeBounds(key, func(got dataplane.Bounds) {
		if want := (dataplane.Bounds{Min: 1, Max: 2}); got != want {
			t.Errorf("frozen bounds %+v, want %+v", got, want)
		}
	})
	w.table.Freeze(grantSet(p.PodRef, "tcp/80", false), func([]dataplane.Frozen) { t.Error("a set that is not held") })
	w.table.FreezeBounds(grantSet(p.PodRef, "tcp/80", false), func(dataplane.Bounds) { t.Error("bounds of a set that is not held") })
}

// Grants that come and go while the members of a set are read change nothing of the others.
func TestMembersWhileGrantsComeAndGo(t *testing.T) {
	w, p := web(t)
	var stay []string
	for i := range 4 * membersPart {
		stay = append(stay, netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}).String())
	}
	w.answer(p, "stays.example.net", 3600, strings.Join(stay, " "))
	key, done := grantSet(p.PodRef, https, false), make(chan bool)
	go func() {
		defer close(done)
		for i := range 20 {
			w.answer(p, "comes.example.net", 60, netip.AddrFrom4([4]byte{198, 19, 0, byte(i)}).String())
			w.expire(121 * time.Second)
		}
	}()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false // and once more
		default:
		}
		all := w.table.Members(key)
		if len(all) != 1 || all[0].Set != key || len(all[0].Uncertain) > 0 {
			t.Fatalf("members %v", all)
		}
		read := map[netip.Addr]int{}
		for _, g := range all[0].Certain {
			read[g.Addr]++
		}
		for _, a := range stay {
			if n := read[addr(a)]; n != 1 {
				t.Fatalf("%s is read %d times", a, n)
			}
		}
	}
}
