package enforcer

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/flows"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

// flow returns an admitted connection of TCP.
func flow(src, dst string) conntrack.Flow {
	return conntrack.Flow{Protocol: 6, Src: netip.MustParseAddrPort(src), Dst: netip.MustParseAddrPort(dst), Mark: DefaultMark | 0x2000}
}

// mark returns the mark of the tracked connection.
func (w *world) mark(f conntrack.Flow) uint32 {
	w.t.Helper()
	all, err := w.flows.Flows(conntrack.Query{Sources: []netip.Addr{f.Src.Addr()}})
	fatal.If(w.t, err)
	for _, g := range all {
		if g.Src == f.Src && g.Dst == f.Dst && g.Protocol == f.Protocol {
			return g.Mark
		}
	}
	w.t.Fatalf("connection %s to %s is not tracked", f.Src, f.Dst)
	return 0
}

func (w *world) admitted(f conntrack.Flow) bool {
	w.t.Helper()
	m := w.mark(f)
	if m&^DefaultMark != f.Mark&^DefaultMark {
		w.t.Errorf("bits that are not ours changed: %#x to %#x", f.Mark, m)
	}
	return m&DefaultMark != 0
}

// place lets a packet come from where its pod lives: on the interface of its
// address, or of another address of the same pod.
func (w *world) place(p *packet) {
	found, _, err := w.links.Homes([]netip.Addr{p.Src})
	fatal.If(w.t, err)
	h := w.e.homes[p.Src].Home
	if at := found[p.Src]; len(at) > 0 {
		h = at[0].Home
	}
	p.Iface, p.Port = h.Iface, h.Port
}

// dials tells whether a new TCP connection gets through the chains.
func (w *world) dials(src, dst string, port uint16) bool {
	p := &packet{Src: addr(src), Dst: addr(dst), Protocol: uint8(policy.TCP), DstPort: port}
	w.place(p)
	return w.passes(p)
}

func TestPolicyIsAddedAndRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	w.links.SetHome(addr("10.1.0.6"), link.Home{Iface: "br0", Port: "port6"})
	web, db := pod("web", "10.1.0.5 2001:db8:1::5", "allow"), pod("db", "10.1.0.6", "allow")
	other := pod("other", "10.1.0.7")
	w.apply([]policy.Pod{web, db, other})
	none := w.dump()
	if !w.dials("10.1.0.5", "192.0.2.1", 443) {
		t.Error("a pod that nothing selects is denied")
	}
	w.apply([]policy.Pod{web, db, other}, pol("allow", "tcp/443 www.example.org"))
	w.answer(web, "www.example.org", 60, "192.0.2.1 2001:db8::1")
	w.answer(db, "www.example.org", 60, "192.0.2.2")
	if !w.dials("10.1.0.5", "192.0.2.1", 443) || !w.dials("10.1.0.6", "192.0.2.2", 443) || w.dials("10.1.0.5", "192.0.2.2", 443) {
		t.Error("a pod is not allowed what it was answered, or what another pod was")
	}
	spoofed := []packet{
		{Src: addr("10.1.0.5"), Iface: "veth9"}, {Src: addr("10.1.0.9"), Iface: "veth5"},
		{Src: addr("10.1.0.6"), Iface: "br0", Port: "port7"}, {Src: addr("10.1.0.5"), Iface: "br0", Port: "port6"},
	}
	for _, p := range spoofed {
		p.Dst, p.Protocol, p.DstPort = addr("192.0.2.1"), uint8(policy.TCP), 443
		if w.passes(&p) {
			t.Errorf("a packet from %s passes on %s%s", p.Src, p.Iface, p.Port)
		}
	}
	w.apply([]policy.Pod{web, db, other})
	w.clock.Pass(packetGrace)
	w.recheck()
	diff.Error(t, none, w.dump(), "the policy is gone, and left")
}

func TestWritesComeInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(nil)
	w.seams.forget(0, false)
	web := pod("web", "10.1.0.5", "allow")
	s := w.compile([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
	w.prepare(s)
	prepared := w.seams.written()
	for _, step := range prepared {
		for _, early := range []string{"-selected", "-home", "security", "nft bridge", "nft net", "mark"} {
			if strings.Contains(step, early) && !strings.HasPrefix(step, "list") {
				t.Errorf("before Commit: %s", step)
			}
		}
	}
	if !w.dials("10.1.0.5", "192.0.2.9", 25) || w.inSet("selected", web.IPs[0]) || !w.inSet("staged", web.IPs[0]) {
		t.Error("the pod is denied before Commit")
	}
	w.commit()
	if w.dials("10.1.0.5", "192.0.2.9", 25) || !w.inSet("selected", web.IPs[0]) {
		t.Error("the pod is not denied after Commit")
	}
	steps := slices.DeleteFunc(w.seams.written(), func(s string) bool { return strings.HasPrefix(s, "save") || strings.HasPrefix(s, "list") })
	order := []string{"ensure NG4-" + dataplane.PodID(web.PodRef), "restore IPv4 mangle", "nft inet", "add NG4-selected 10.1.0.5", "nft inet"}
	last := -1
	for _, word := range order {
		i := slices.IndexFunc(steps[last+1:], func(s string) bool { return strings.HasPrefix(s, word) })
		if i < 0 {
			t.Errorf("%q does not come after %d of %q", word, last, steps)
		}
		last += 1 + i
	}
	// What allows is there before the pod is denied: no write of mangle after.
	if i := slices.IndexFunc(steps, func(s string) bool { return strings.HasPrefix(s, "add NG4-selected") }); slices.Contains(steps[i:], "restore IPv4 mangle") {
		t.Errorf("the pod's chain changes after it is denied: %q", steps)
	}
}

func TestGrantsMadeBetweenPrepareAndCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := pod("web", "10.1.0.5", "old", "new")
	w.apply([]policy.Pod{web}, pol("old", "tcp/443 www.example.org"))
	next := w.compile([]policy.Pod{web}, pol("new", "tcp/80 www.example.com"))
	w.prepare(next)
	w.answer(web, "www.example.org", 60, "192.0.2.1")
	fatal.If(t, w.answerBy(next, web, "www.example.com", 60, "192.0.2.2"))
	if !w.dials("10.1.0.5", "192.0.2.1", 443) || !w.dials("10.1.0.5", "192.0.2.2", 80) {
		t.Error("between Prepare and Commit both snapshots' grants must open")
	}
	w.commit()
	if w.dials("10.1.0.5", "192.0.2.1", 443) || !w.dials("10.1.0.5", "192.0.2.2", 80) {
		t.Error("after Commit only the new snapshot's grants may be open")
	}
	if err := granttest.Grant(context.Background(), w.e.grants, w.grants(w.snap, web.PodRef, "www.example.org", 60, "192.0.2.3")); err == nil {
		t.Error("a grant of the last snapshot is taken after Commit")
	}
}

// TestTheSameStateIsRenderedEqual: the tables are not written again for an equal state, and
// tell by its order too.
func TestTheSameStateIsRenderedEqual(t *testing.T) {
	t.Parallel()
	eachPlane(t, func(t *testing.T, plane string) {
		w, next := busyOn(t, plane)
		w.e.flows.Recheck(flows.PolicyChanged, addrs("10.1.0.5 10.1.0.6 10.1.0.7 10.1.0.9 2001:db8:1::5"))
		fatal.If(t, w.e.flows.Record())
		w.clock.Pass(time.Second)
		subjects := w.e.planOf(next)
		first := ruleset.State(w.e.tablesInput(subjects, w.e.snapshot))
		for range 20 {
			if again := ruleset.State(w.e.tablesInput(w.e.planOf(next), w.e.snapshot)); !reflect.DeepEqual(again, first) {
				t.Fatalf("rendered again:\n%+v\nthe first time:\n%+v", again, first)
			}
		}
	})
}
