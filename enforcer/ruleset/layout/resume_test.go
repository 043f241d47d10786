package layout_test

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// A restarted agent writes nothing where its tables are as it wants them, and else what differs;
// what another program did meanwhile is put right.
func TestARestartWritesTheDifference(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	serving, ranges, fewer := full, full, full
	serving.Resolvers = map[netip.Addr]netip.Addr{dns4: netip.MustParseAddr("169.254.20.65"), dns6: serve6}
	ranges.PodRanges = full.PodRanges[:1]
	fewer.Selected, fewer.Dropped = full.Selected[:1], nil
	for _, namespace := range []bool{false, true} {
		for _, test := range []struct {
			what      string
			meanwhile string // commands of nft
			state     layout.State
			unchanged bool
		}{
			{"as it was", "", full, true},
			{"another serving address", "", serving, false},
			{"other ranges", "", ranges, false},
			{"fewer pods", "", fewer, false},
			{"an element lost", "delete element inet namegate selected4 { 10.1.0.5 }", full, false},
			{"an element too many", "add element inet namegate selected4 { 10.1.0.77 }", full, false},
			{"rules lost", "flush chain inet namegate forward", full, false},
			{"a chain too many", "add chain inet namegate entries-0", full, false},
			{"a table lost", "delete table bridge namegate", full, false},
			{"a table asleep", "add table inet namegate { flags dormant; }", full, false},
		} {
			t.Run(test.what, func(t *testing.T) {
				t.Parallel()
				netns.Own(t)
				open := func() *stateTables {
					tables := laterAgent(t)
					if namespace {
						tables.decideNamespace()
					}
					return tables
				}
				before := open()
				fatal.If(t, errors.Join(before.Setup(ctx), before.Apply(ctx, full)))
				piped(t, test.meanwhile)
				watcher, later := open(), open()
				watcher.Checkpoint()
				fatal.If(t, errors.Join(later.Setup(ctx), later.Apply(ctx, test.state)))
				if changed := watcher.ExternalChange(); changed == test.unchanged {
					t.Errorf("the tables are written: %t", changed)
				}
				verified(t, watcher, test.state)
				fatal.If(t, later.Apply(ctx, full))
				verified(t, watcher, full)
			})
		}
	}
}

// switchedOn begins a table in which the dead-man switch is on.
const switchedOn = `
table inet namegate {
	set alive { type inet_service; flags timeout; timeout 3s; elements = { 53 timeout 1h } }`

// otherLayoutTables are the tables of an agent of another layout: sets of our names with
// other types, a chain of our name at another hook, and some names of its own.
const otherLayoutTables = switchedOn + `
	set selected4 { type ipv4_addr . inet_service; elements = { 10.1.0.5 . 80 } }
	set chosen4 { type ipv4_addr; elements = { 10.1.0.5 } }
	map giveback4 { type ipv4_addr : ipv4_addr; elements = { 169.254.20.64 : 192.0.2.53 } }
	chain old { ip saddr @chosen4 drop; }
	chain forward { type filter hook forward priority -20; jump old; }
	chain further { type filter hook output priority 0; ip saddr . tcp dport @selected4 drop; }
}
table bridge namegate {
	chain judge { type filter hook forward priority 0; drop; }
}`

// TestKernelReplacesAnotherLayout: tables of another layout stay as they are until the
// first state is written, and then nothing of them is left.
func TestKernelReplacesAnotherLayout(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	written(t, full)
	want := ruleset(t)
	for what, left := range map[string]string{
		"both tables":                 otherLayoutTables,
		"one table":                   "table inet namegate {\n chain forward { type filter hook forward priority -10; drop; }\n}",
		"not to be replaced in place": switchedOn + "\n chain forward {\n}\n map others { type ipv4_addr : verdict; elements = { 192.0.2.9 : goto forward } }\n}",
		"ours, changed since":         "table inet namegate {\n set selected4 { type ipv4_addr; }\n chain layout-000000000000 {\n}\n}",
	} {
		piped(t, "flush ruleset\n"+left)
		before := ruleset(t)
		tables := laterAgent(t)
		if err := tables.Setup(ctx); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := ruleset(t); withoutTimes(got) != withoutTimes(before) {
			t.Errorf("%s: set-up changed what was in force:\n%s", what, got)
		}
		if earlier, err := tables.ReadEarlier(ctx); err != nil || left == otherLayoutTables && earlier.GivenBack[serve4] != dns4 {
			t.Errorf("%s: what the last agent gives back is not found", what)
		}
		if err := tables.Apply(ctx, full); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got := ruleset(t)
		diff.Equal(t, strings.Contains(left, switchedOn), regexp.MustCompile(`elements = \{ 53 (timeout \S+ )?expires`).MatchString(got), what, "the dead-man switch is on")
		diff.Error(t, objects(want), objects(got), what, "after the first state")
		verified(t, tables, full)
	}
}

// objects are the tables' objects without elements, in an order that is not of their age, and without
// comments: chains and maps that stay keep theirs.
func objects(s string) string {
	s = regexp.MustCompile(`(?m)^\t\tcomment ".*"\n`).ReplaceAllString(s, "")
	all := regexp.MustCompile(`(?m)^\t(chain|set|map|counter) |^}`).ReplaceAllString(bare(s), "\x00$0")
	parts := strings.Split(strings.ReplaceAll(all, "\n\n", "\n"), "\x00")
	slices.Sort(parts)
	return strings.Join(parts, "")
}

// baseChains are the base chains of the table inet with the kernel's numbers for them, which
// tell when they were made.
func baseChains(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("nft", "-a", "list", "table", "inet", "namegate").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return regexp.MustCompile(`chain \S+ { # handle \d+\n(?:\s+comment ".*"\n)?\s+type \S+ hook \S+`).FindAllString(string(out), -1)
}

// TestBaseChainsOutliveTheirLayout: a packet that is under way while the kernel takes a base
// chain for another may meet the rules of neither.
func TestBaseChainsOutliveTheirLayout(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tables := written(t, full)
	before := baseChains(t)
	if len(before) < 4 {
		t.Fatalf("base chains: %q", before)
	}
	for _, another := range []func(){tables.admitCandidates, func() { tables.onlyAdmit(false) }, func() { tables.onlyAdmit(true) }} {
		another()
		fatal.If(t, tables.Apply(ctx, full))
		if now := baseChains(t); !slices.Equal(now, before) {
			t.Errorf("base chains are %q, were %q", now, before)
		}
		verified(t, tables, full)
	}
}

// withoutTimes leaves out what passes by itself.
func withoutTimes(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		text, _, _ := strings.Cut(line, " expires ")
		b.WriteString(text)
	}
	return b.String()
}
