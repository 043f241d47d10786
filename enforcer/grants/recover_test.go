package grants

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestAGrantThatEndsWhileItIsListed: what another agent's grants are taken in with is written, so that no
// grant counts as acknowledged that ended between its listing and its recovery.
func TestAGrantThatEndsWhileItIsListed(t *testing.T) {
	w, p := web(t)
	g := w.grants(p.PodRef, "www.example.org", 60, "192.0.2.1")
	w.answer(p, "www.example.org", 60, "192.0.2.1 192.0.2.2")
	key := grantSet(p.PodRef, https, false)
	w.sets.listing = func() {
		w.table.mu.Lock()
		defer w.table.mu.Unlock()
		fatal.If(t, w.table.endEarly([]*grant{w.table.get(key).at(addr("192.0.2.1"))}))
	}
	w.sets.ops()
	fatal.If(t, w.table.Recover(nil, w.snap.View, true))
	if added, _ := w.sets.ops(); added != 1 || !w.table.Covered(g) || w.stays(p, "192.0.2.1") == 0 {
		t.Errorf("%d writes, covered %v, and the kernel has it for %v", added, w.table.Covered(g), w.stays(p, "192.0.2.1"))
	}
	w.sets.listing = nil
	fatal.If(t, w.table.Recover(nil, w.snap.View, true))
	if added, removed := w.sets.ops(); added+removed != 0 {
		t.Errorf("%d and %d writes where nothing has changed", added, removed)
	}
}

// TestRecoveredNames: the table of the next agent has the names of the comments, also those that have ended, so
// that no comparison finds the entries changed.
func TestRecoveredNames(t *testing.T) {
	w, p := web(t)
	for i, name := range []string{"a.example.net", "b.example.net", "www.example.org"} {
		w.answer(p, name, uint32(60+30*i), "192.0.2.1")
	}
	w.Pass(155 * time.Second) // of three names two have ended
	before := w.entries(p, false)[0].Comment
	w.restart()
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org *.example.net"))
	got := w.table.Members(grantSet(p.PodRef, https, false))
	if len(got) != 1 || len(got[0].Certain) != 1 || got[0].Certain[0].Comment != before || strings.Count(before, ";") != 2 {
		t.Errorf("recovered %+v, the kernel has %q", got, before)
	}
}

// TestRecoveredRules: entries come back to the pod that they were of, as far as it has the rule; those of
// the pod that had the address before are removed, once its agent is gone.
func TestRecoveredRules(t *testing.T) {
	w, p := gated(t)
	deny, deny6 := w.rule(p, policy.Deny, false), w.rule(p, policy.Deny, true)
	other := dataplane.GrantSet{Rule: "a0011223344556677", Subject: deny.Subject}
	id := dataplane.PodID(p.PodRef) + " "
	for set, comments := range map[dataplane.GrantSet][]string{
		deny:  {id + "x.denied.test ; y.denied.test", dataplane.PodID(pod("gone").PodRef) + " x.denied.test", ""},
		deny6: {id + "x.denied.test"}, other: {id + "x.denied.test", dataplane.PodID(pod("gone").PodRef) + " x.denied.test"},
	} {
		of := map[netip.Addr]entry{}
		for i, c := range comments {
			a := netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
			if set.IPv6 {
				a = addr("2001:db8::1")
			}
			of[a] = entry{until: w.Now().Add(time.Minute), comment: c}
		}
		w.sets.held[nameOf(set)] = of
	}
	before := w.snap
	for _, w.coexisting = range []bool{true, false} {
		w.restart()
		fatal.If(t, w.table.Recover([]policy.RuleID{deny.Rule, other.Rule}, before.View, false))
		for _, set := range []dataplane.GrantSet{deny, other} {
			if _, there := w.sets.held[nameOf(set)][addr("192.0.2.2")]; there != w.coexisting {
				t.Errorf("coexisting %v: the entry of the pod before is there for rule %s: %v", w.coexisting, set.Rule, there)
			}
		}
		if _, there := w.sets.held[nameOf(other)][addr("192.0.2.1")]; !there {
			t.Error("an own entry of a rule that the pod has not yet is gone")
		}
	}
	var got []string
	for s := range w.table.all() {
		for _, g := range s.entries {
			for _, r := range g.reasons() {
				got = append(got, fmt.Sprintf("%s %s %s", s.key.Subject, g.address(), r.name))
			}
		}
	}
	slices.Sort(got)
	sameLines(t, "recovered", got, "10.1.0.5 192.0.2.1 x.denied.test", "10.1.0.5 192.0.2.1 y.denied.test", "10.1.0.5 192.0.2.3 "+unreadable.String(), "2001:db8:1::5 2001:db8::1 x.denied.test")
}

// TestRecoverOverOwnGrants: a predecessor's last writes take nothing of what this agent acknowledged: an entry of
// its pod before is replaced by the own one, and a timeout that it shortened is moved again.
func TestRecoverOverOwnGrants(t *testing.T) {
	w, open, deny, verify := inTables(t)
	denied, opened := w.sets.held[nameOf(deny)], w.sets.held[nameOf(open)]
	for of, a := range map[*map[netip.Addr]entry]string{&denied: "192.0.2.3", &opened: "192.0.2.1"} {
		e := (*of)[addr(a)]
		e.until = e.until.Add(-5 * time.Minute)
		(*of)[addr(a)] = e
	}
	foreign := denied[addr("192.0.2.2")]
	foreign.comment = dataplane.PodID(pod("gone").PodRef) + " x.denied.test"
	denied[addr("192.0.2.2")] = foreign
	fatal.If(t, w.table.Recover([]policy.RuleID{deny.Rule}, w.snap.View, true))
	verify("as acknowledged", 0)
}
