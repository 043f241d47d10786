package nftables_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/entries"
	"github.com/namegate/namegate/enforcer/dataplane/nftables"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/testclock"
)

// slowTables are the tables of a kernel whose listings take time.
type slowTables struct {
	*timed.Store
	clock *testclock.Clock
	takes *time.Duration
}

func (s slowTables) ListGrants(names []string, each func(string, []timed.Entry)) error {
	err := s.Store.ListGrants(names, each)
	s.clock.Pass(*s.takes)
	return err
}

// world is a node with one pod, and its agent.
type world struct {
	t      *testing.T
	clock  *testclock.Clock
	tables *nft.Tables
	slow   slowTables
	takes  *time.Duration
	plane  dataplane.Interface
	table  *grants.Table
	pod    policy.Pod
	last   *policy.Snapshot
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, clock: testclock.New(time.Unix(1_700_000_000, 0)), takes: new(time.Duration), pod: policytest.Pod("web", "10.1.0.5", "allow")}
	w.tables = nft.New(layout.All[:1], knftables.NewFake(knftables.InetFamily, layout.TableName))
	w.tables.Store.FakeClock(w.clock.Now)
	w.slow = slowTables{w.tables.Store, w.clock, w.takes}
	var memo layout.Memo
	fatal.If(t, w.tables.Setup(context.Background(), memo.Layouts(layout.Mode{HasGrants: true})[:1]))
	w.restart()
	return w
}

// restart replaces the agent.
func (w *world) restart() {
	w.plane = nftables.Config{Tables: w.tables, Entries: w.slow}.New(dataplane.Owner{Now: w.clock.Now})
	w.table = grants.New(grants.Config{Kernel: w.plane, Clock: grants.NewClock(w.clock.Now, time.Duration(w.clock.Now().UnixNano())), InPlace: true, WriteFailed: func() {}, Coexisting: func() bool { return false }})
	w.last = nil
	_, err := w.plane.Recover(context.Background())
	fatal.If(w.t, err)
}

// rollOut brings a policy into force, but for the removal of sets. It returns the set of TCP 443.
func (w *world) rollOut(rule string) dataplane.GrantSet {
	w.t.Helper()
	s := compile.New().Compile(compile.Input{Pods: []policy.Pod{w.pod}, Policies: []*v1alpha1.FQDNNetworkPolicy{policytest.Policy("allow", rule)}})
	p := &dataplane.Subject{Pod: w.pod.PodRef, Addrs: w.pod.IPs, Grants: s.Views[0].PortSets()}
	fatal.If(w.t, w.plane.Apply(context.Background(), dataplane.State{Subjects: dataplane.Subjects{p.Pod: p}, Grants: w.table}, dataplane.Prepare))
	_, err := w.table.CarryOver(w.last, s)
	fatal.If(w.t, err)
	_, err = w.table.TakeBack(p.Pod, s.Views[0], p.Asks, func() error { return nil })
	fatal.If(w.t, err)
	w.last = s
	return entries.Named(dataplane.GrantSet{Pod: p.Pod, Ports: "tcp/443"})
}

// write has the kernel hold 192.0.2.1 for a minute in a set.
func (w *world) write(set dataplane.GrantSet) {
	w.t.Helper()
	ops := []dataplane.GrantOp{{Set: set, Grants: []dataplane.Grant{{Addr: netip.MustParseAddr("192.0.2.1"), Timeout: time.Minute, Comment: "kept=6 www.example.org"}}}}
	w.plane.ApplyGrants(ops)
	fatal.If(w.t, ops[0].Err)
}

// TestASetThatWasNotDestroyed: a set that is asked for again, and could not be removed in between, is taken in with
// what it holds: no grant of the policy before comes back with it.
func TestASetThatWasNotDestroyed(t *testing.T) {
	w := newWorld(t)
	set := w.rollOut("tcp/443 www.example.org")
	w.write(set)
	w.rollOut("tcp/8000-8080 www.example.org")
	if w.table.Holds(set) {
		t.Fatal("the set was not released")
	}
	w.rollOut("tcp/443 www.example.net")
	left := 0
	fatal.If(t, w.plane.ListGrants([]dataplane.GrantSet{set}, func(_ dataplane.GrantSet, part []dataplane.Grant) { left += len(part) }))
	if left > 0 {
		t.Errorf("%d grants are open that no policy allows", left)
	}
}

// TestDeadlinesOfASlowListing: the time that the listing of an earlier agent's grants takes prolongs none.
func TestDeadlinesOfASlowListing(t *testing.T) {
	w := newWorld(t)
	w.write(w.rollOut("tcp/443 www.example.org"))
	var until []time.Time
	for _, *w.takes = range []time.Duration{0, 3 * time.Second} {
		w.restart()
		w.rollOut("tcp/443 www.example.org")
		for _, g := range w.table.ListGrants(w.pod.PodRef) {
			until = append(until, g.Until)
		}
	}
	if len(until) != 2 || !until[1].Equal(until[0]) {
		t.Errorf("the deadline after a fast and a slow listing: %v", until)
	}
}
