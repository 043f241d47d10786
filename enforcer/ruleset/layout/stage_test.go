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

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// stage is a lab with our tables on its node.
type stage struct {
	*lab.Lab
	t      *testing.T
	tables *stateTables
}

// newStage makes a stage with pods and a world that serves ports, none for no world.
func newStage(t *testing.T, network lab.Network, pods []string, ports ...int) *stage {
	t.Helper()
	l, err := lab.New(network)
	fatal.If(t, err)
	t.Cleanup(func() { _ = l.Remove() })
	for i, name := range pods {
		_, err := l.AddPod(name, 5+i)
		fatal.If(t, err)
	}
	if len(ports) > 0 {
		world, err := l.ServeWorld(nil, ports...)
		fatal.If(t, err)
		t.Cleanup(world.Close)
	}
	fatal.If(t, l.Ready())
	s := &stage{Lab: l, t: t}
	s.do(func(ctx context.Context) (err error) {
		if s.tables, err = openTables(); err != nil {
			return err
		}
		return s.tables.Setup(ctx)
	})
	return s
}

// addrs are the addresses of a pod.
func (s *stage) addrs(pod string) []netip.Addr {
	return []netip.Addr{s.Pod(pod).Addr4, s.Pod(pod).Addr6}
}

// do calls f in the node's network namespace.
func (s *stage) do(f func(ctx context.Context) error) {
	s.t.Helper()
	fatal.If(s.t, s.Node.Do(func() error { return f(context.Background()) }))
}

func (s *stage) apply(state layout.State) {
	s.t.Helper()
	s.do(func(ctx context.Context) error { return s.tables.Apply(ctx, state) })
}

// pipe has the program nft run commands on the node.
func (s *stage) pipe(commands string) {
	s.t.Helper()
	fatal.If(s.t, s.Node.Pipe(commands, "nft", "-f", "-"))
}

func (s *stage) expect(pod, network, to string, want lab.Outcome) {
	s.t.Helper()
	diff.Equal(s.t, want, s.Pod(pod).ProbeFor(network, netip.MustParseAddrPort(to), lab.PatienceFor(want)), "pod", pod, "to", network, to)
}

// onEach runs a test on every network, at the same time.
func onEach(t *testing.T, f func(t *testing.T, network lab.Network)) {
	for _, n := range []lab.Network{lab.Routed, lab.Bridged} {
		t.Run(string(n), func(t *testing.T) {
			t.Parallel()
			f(t, n)
		})
	}
}

// worldAddr is an address of the world.
func worldAddr(last byte, v6 bool) netip.Addr {
	if v6 {
		return netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 0, 1, 15: last})
	}
	return netip.AddrFrom4([4]byte{198, 51, 100, last})
}

// piped has the program nft run commands in the test's namespace.
func piped(t testing.TB, commands string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(commands + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft %s: %v: %s", commands, err, out)
	}
}

// ofFakes are tables on fakes.
func ofFakes() *stateTables {
	return tablesOn(fakeTable(layout.Inet), fakeTable(layout.Bridge), fakeTable(layout.Net))
}

// laterAgent are the tables of an agent that follows.
func laterAgent(t testing.TB) *stateTables {
	t.Helper()
	tables, err := openTables()
	fatal.If(t, err)
	t.Cleanup(tables.Close)
	return tables
}

// verified asserts what Verify finds.
func verified(t testing.TB, tables *stateTables, s layout.State, want ...string) {
	t.Helper()
	if found, err := tables.Verify(context.Background(), s); err != nil || !slices.Equal(found, want) {
		t.Errorf("deviations %q, %v; want %q", found, err, want)
	}
}

// repaired has another program change tables that hold a state, and asserts which object Verify
// finds, and that write restores all. Where a name ends with " …" there are others.
func repaired(t *testing.T, tables *stateTables, s layout.State, write func(context.Context, layout.State) error, rivals map[string]string) {
	t.Helper()
	ctx := context.Background()
	want := elementLines(ruleset(t))
	for rival, object := range rivals {
		verified(t, tables, s)
		piped(t, rival)
		object, others := strings.CutSuffix(object, " …")
		if found, err := tables.Verify(ctx, s); err != nil || !slices.Contains(found, object) || !others && len(found) > 1 {
			t.Errorf("after nft %s: deviations %q, %v; want %q", rival, found, err, object)
		}
		if err := write(ctx, s); err != nil {
			t.Fatalf("after nft %s: %v", rival, err)
		}
		diff.Error(t, want, elementLines(ruleset(t)), "after nft", rival, "and a repair")
	}
	verified(t, tables, s)
}

// sortedLines lets two listings differ in the order of tables and chains.
func sortedLines(s string) []string {
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return lines
}

// elementLines are sortedLines that may differ in the order of elements too.
func elementLines(s string) []string {
	return sortedLines(regexp.MustCompile(`,?\s*\n\s*|, |elements = \{ | \}`).ReplaceAllString(s, "\n"))
}

// written returns tables of the kernel with a state.
func written(t *testing.T, s layout.State) *stateTables {
	t.Helper()
	tables, ctx := inKernel(t), context.Background()
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, s)))
	return tables
}

// onBoth runs a test on the kernel and on fakes, at the same time.
func onBoth(t *testing.T, f func(t *testing.T, tables *stateTables)) {
	for what, open := range map[string]func(t testing.TB) *stateTables{"kernel": inKernel, "fake": func(testing.TB) *stateTables { return ofFakes() }} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f(t, open(t))
		})
	}
}
