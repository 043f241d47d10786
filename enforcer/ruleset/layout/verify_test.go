package layout_test

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestVerifyNamesDeviations changes the tables in every way in which another program may,
// and checks that Verify names the object and the next Apply repairs it.
func TestVerifyNamesDeviations(t *testing.T) {
	t.Parallel()
	tables := written(t, full)
	repaired(t, tables, full, tables.Apply, map[string]string{
		"flush chain inet namegate judge":                                           "nft chain inet namegate judge",
		"add rule inet namegate judge accept":                                       "nft chain inet namegate judge",
		"insert rule inet namegate forward ct state new accept":                     "nft chain inet namegate forward",
		"flush table inet namegate":                                                 "nft chain inet namegate judge …",
		"delete table inet namegate":                                                "nft table inet namegate …",
		"delete table bridge namegate":                                              "nft table bridge namegate …",
		"flush ruleset":                                                             "nft table inet namegate …",
		"flush set inet namegate selected4":                                         "nft set inet namegate selected4",
		"flush set inet namegate podrange4":                                         "nft set inet namegate podrange4",
		"flush set bridge namegate claims6":                                         "nft set bridge namegate claims6",
		"flush map inet namegate backends4":                                         "nft set inet namegate backends4",
		"add element inet namegate selected6 { 2001:db8::77 }":                      "nft set inet namegate selected6",
		"delete element inet namegate home4 { \"veth1\" . 10.1.0.5 }":               "nft set inet namegate home4",
		"add element inet namegate podrange4 { 10.66.0.0/16 }":                      "nft set inet namegate podrange4",
		"add chain inet namegate theirs { type filter hook forward priority -50; }": "nft chain inet namegate theirs",
		"add set inet namegate theirs { type ipv4_addr; }":                          "nft set inet namegate theirs",
		"add rule bridge namegate home accept":                                      "nft chain bridge namegate home",
		"flush ruleset\nadd table inet namegate":                                    "nft table inet namegate …",
		"flush chain inet namegate giveback\ndelete chain inet namegate giveback":   "nft chain inet namegate giveback …",
		"delete element inet namegate intercept4 { 192.0.2.53 : 169.254.20.64 }":    "nft set inet namegate intercept4",
		"flush chain inet namegate input\ndelete chain inet namegate input\nadd chain inet namegate input { type filter hook input priority 17; }": "nft chain inet namegate input …",
	})
	if found, err := tables.Verify(t.Context(), layout.State{}); err != nil || len(found) == 0 {
		t.Errorf("of another state: deviations %q, %v", found, err)
	}
}

// rivalAfter runs a rival's command after each transaction.
type rivalAfter struct {
	knftables.Interface
	rival []string
}

func (r rivalAfter) Run(ctx context.Context, tx *knftables.Transaction) error {
	return errors.Join(r.Interface.Run(ctx, tx), exec.Command("nft", r.rival...).Run())
}

// TestARivalBetweenWriteAndVerify flushes the ruleset right after each transaction: an
// empty table is not taken for the wanted one.
func TestARivalBetweenWriteAndVerify(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	inKernel(t)
	of := func(f knftables.Family) knftables.Interface {
		table, err := knftables.New(f, layout.TableName)
		fatal.If(t, err)
		return rivalAfter{table, []string{"flush", "ruleset"}}
	}
	tables := tablesOn(of(knftables.InetFamily), of(knftables.BridgeFamily), nil)
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, full)))
	for range 3 {
		found, err := tables.Verify(ctx, full)
		if err != nil || !slices.Equal(found, []string{"nft table bridge namegate", "nft table inet namegate"}) &&
			!slices.Equal(found, []string{"nft table inet namegate", "nft table bridge namegate"}) {
			t.Fatalf("deviations %q, %v; want both tables", found, err)
		}
		fatal.If(t, tables.Apply(ctx, full))
	}
}

// TestTablesOfAnotherFormAreRebuilt: a table may be dormant, which no chain shows, or
// have sets of other types, into which the elements cannot be written.
func TestTablesOfAnotherFormAreRebuilt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, rival := range []string{
		"add table inet namegate { flags dormant; }",
		"add table bridge namegate { flags dormant; }",
		"delete table inet namegate\nadd table inet namegate\nadd set inet namegate selected4 { type inet_service; }",
		"delete table inet namegate\nadd table inet namegate\nadd set inet namegate podrange4 { type ipv4_addr; }",
		"delete table inet namegate\nadd table inet namegate\nadd map inet namegate selected4 { type ipv4_addr : ipv4_addr; }",
		"flush table bridge namegate\ndelete set bridge namegate ports\nadd set bridge namegate ports { type ipv4_addr; }",
		"flush chain inet namegate giveback\ndelete chain inet namegate giveback\nadd chain inet namegate giveback\nadd map inet namegate theirs { type ipv4_addr : verdict; elements = { 192.0.2.1 : goto giveback }; }",
	} {
		tables := written(t, full)
		want := elementLines(ruleset(t))
		piped(t, rival)
		if found, err := tables.Verify(ctx, full); err != nil || len(found) == 0 {
			t.Errorf("after nft %s: deviations %q, %v", rival, found, err)
		}
		if err := tables.Apply(ctx, full); err != nil { // a table is made anew after a failed write
			if err = tables.Apply(ctx, full); err != nil {
				t.Errorf("after nft %s: %v", rival, err)
			}
		}
		diff.Error(t, want, elementLines(ruleset(t)), "after nft", rival, "and a repair")
	}
}

// TestChangesAfterARival: whatever another program did to the tables, a change makes all of its
// state, with few tries, or after a look. A lost second net does not hold up the
// other tables.
func TestChangesAfterARival(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	before, next := subjects(), subjects()
	next.Subjects[0].Grants, next.Subjects[0].List, next.Staged = next.Subjects[0].Grants[:1], "", nil
	next.GrantSets, next.Selected, next.Pods = next.GrantSets[:1], next.Selected[:1], nil
	next.PortHomes, next.Ports = next.PortHomes[:1], nil
	for _, change := range [][2]layout.State{{before, next}, {next, before}} {
		for rival, tries := range map[string]int{
			"": 1, "delete table inet namegate-net": 2, "flush set inet namegate-net selected6": 1, "flush set inet namegate-net ifaces": 1,
			"flush ruleset": 2, "delete table inet namegate": 2, "delete table bridge namegate": 2, "flush table inet namegate": 2,
			"flush set inet namegate selected6": 2, "flush set bridge namegate ports": 2, "flush map inet namegate pods4": 2,
			"flush map inet namegate pods4; flush map inet namegate pods6":                      2,
			"add chain inet namegate list-0; add set inet namegate peers-0 { type ipv4_addr; }": 1,
			"add set inet namegate grants-0123456789ab-any-4 { type ipv6_addr; }":               3,
		} {
			tables := inKernel(t)
			tables.decideNamespace()
			fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, change[0]), tables.Apply(ctx, change[0])))
			if rival != "" {
				_ = exec.Command("nft", rival).Run() // a set that is there is an error
			}
			var err error
			for try := 1; ; try++ {
				err = tables.Apply(ctx, change[1])
				if selected, readErr := tables.Selected(ctx); strings.Contains(rival, "-net") && (readErr != nil || len(selected) != len(change[1].Selected)) {
					t.Errorf("after %q try %d leaves %v selected: %v", rival, try, selected, readErr)
				}
				if err == nil || try == tries {
					break
				}
			}
			if err != nil {
				t.Errorf("after %q %d tries fail: %.300v", rival, tries, err)
				continue
			}
			// What a change did not meet, a look does.
			if _, err := tables.Verify(ctx, change[1]); err != nil {
				t.Errorf("after %q: %v", rival, err)
			}
			fatal.If(t, tables.Apply(ctx, change[1]))
			verified(t, tables, change[1])
		}
	}
}

// TestWatchTellsOfChanges: every change of our tables by another program, and none of
// tables that are not ours. The order of events is the kernel's: an unrelated change
// followed by one of ours gives one token for the second.
func TestWatchTellsOfChanges(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tables := written(t, named())
	changes, err := tables.Watch(ctx, layout.Concerns, func(err error) { t.Error(err) })
	fatal.If(t, err)
	for _, command := range []string{"add table ip theirs", "add chain ip theirs c", "add rule ip theirs c accept", "delete table ip theirs"} {
		piped(t, command)
	}
	fatal.If(t, tables.Heartbeat(ctx))
	select {
	case <-changes:
		t.Error("a token for a change of tables that are not ours, or of the dead-man switch")
	case <-time.After(100 * time.Millisecond):
	}
	for _, change := range []string{
		"add element inet namegate selected4 { 10.1.0.77 }",
		"delete element inet namegate selected4 { 10.1.0.77 }",
		"add element inet namegate entries-denied-4 { 10.1.0.5 . 192.0.2.9 timeout 1h }",
		"flush set inet namegate entries-denied-4",
		"insert rule inet namegate judge accept",
		"flush chain inet namegate judge",
		"add chain bridge namegate theirs",
		"delete table bridge namegate",
		"add table ip mangle",
		"flush ruleset",
	} {
		piped(t, change)
		select {
		case <-changes:
		case <-time.After(time.Minute):
			t.Errorf("no token after nft %q", change)
		}
	}
}
