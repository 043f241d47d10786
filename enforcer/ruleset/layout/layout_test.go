package layout_test

import (
	"context"
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

var bits = layout.Bits{Admitted: 0x40, Candidate: 0x20, Accepted: 0x10}

var (
	pod4, pod6 = netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("2001:db8:1::5")
	dns4, dns6 = netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")
	serve4     = netip.MustParseAddr("169.254.20.64")
	serve6     = netip.MustParseAddr("fd5c:7a1e:93b4::64")
	full       = layout.State{
		Selected: []netip.Addr{pod4, pod6}, Pods: [][]netip.Addr{{pod4, pod6}}, Dropped: []netip.Addr{pod4}, Intercepted: []netip.Addr{pod4, pod6},
		Known: []netip.Addr{pod4}, Homes: []layout.Home{{"veth1", pod4}, {"veth1", pod6}}, Ifaces: []string{"veth1"},
		PortHomes: []layout.Home{{"port1", pod4}, {"port1", pod6}}, Ports: []string{"port1"}, Gateways: []netip.Addr{netip.MustParseAddr("fe80::1")},
		Resolvers: map[netip.Addr]netip.Addr{dns4: serve4, dns6: serve6},
		Endpoint:  []netip.Addr{netip.MustParseAddr("169.254.20.53")},
		Backends:  []netip.AddrPort{netip.AddrPortFrom(dns4, 53), netip.MustParseAddrPort("[2001:db8::54]:5353"), netip.MustParseAddrPort("[2001:db8::55]:5353")},
		Answering: []netip.AddrPort{netip.MustParseAddrPort("10.2.0.9:53"), netip.MustParseAddrPort("[2001:db8::54]:5353")},
		PodRanges: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("10.9.0.1/32"), netip.MustParsePrefix("2001:db8:1::/64")},
		Plain:     []netip.Addr{netip.MustParseAddr("10.1.0.9"), netip.MustParseAddr("2001:db8:1::9")},
	}
)

// inKernel opens real tables in a network namespace of the test's own thread.
func inKernel(t testing.TB) *stateTables {
	t.Helper()
	netns.Own(t)
	return laterAgent(t)
}

// ruleset lists all tables, without the elements that hold unconfirmed rules: they end by themselves.
func ruleset(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return held.ReplaceAllString(string(out), "")
}

var held = regexp.MustCompile(`(?m)^\t\telements = { (127\.0\.0\.1|::1) expires \S+ }\n`)

// bare is the ruleset without elements.
func bare(s string) string {
	var keep []string
	in := false
	for line := range strings.Lines(s) {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "elements = {") {
			in = true
		}
		if !in {
			keep = append(keep, line)
		}
		if strings.HasSuffix(trimmed, "}") {
			in = false
		}
	}
	return strings.Join(keep, "")
}

func TestKernelTakesTheLayoutAndDeltas(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tables := inKernel(t)
	fatal.If(t, tables.Setup(ctx))
	empty := ruleset(t)
	fatal.If(t, tables.Apply(ctx, full))
	filled := ruleset(t)
	for _, want := range []string{"10.1.0.5", "192.0.2.53 : 169.254.20.64", "169.254.20.64 : 192.0.2.53", `"veth1" . 10.1.0.5`, `"port1" . 2001:db8:1::5`, "0 : 192.0.2.53 . 53", "15 : 2001:db8::55 . 5353", "7 : 2001:db8::54 . 5353", "10.1.0.0/24", "10.9.0.1",
		`"port1" . 0x20010db8000100000000000000000005`, "0xfe800000000000000000000000000001", "fe80::1", "10.1.0.5 . 10.1.0.5", "2001:db8:1::5 . 2001:db8:1::5"} {
		diff.Has(t, want, filled, "the kernel's ruleset")
	}
	// A later agent finds the elements of an earlier one and removes only those that its
	// own state does not have.
	later := laterAgent(t)
	fatal.If(t, later.Setup(ctx))
	diff.Error(t, filled, ruleset(t), "set-up changed a table that was there")
	earlier, err := later.ReadEarlier(ctx)
	fatal.If(t, err)
	homes, ports := earlier.Homes, earlier.PortHomes
	slices.SortFunc(homes, func(a, b layout.Home) int { return a.Addr.Compare(b.Addr) })
	slices.SortFunc(ports, func(a, b layout.Home) int { return a.Addr.Compare(b.Addr) })
	if !slices.Equal(homes, full.Homes) || !slices.Equal(ports, full.PortHomes) {
		t.Errorf("homes read back: %v and %v", homes, ports)
	}
	fatal.If(t, later.Apply(ctx, layout.State{}))
	diff.Error(t, empty, ruleset(t), "an empty state left something")
	if bare(filled) != bare(empty) {
		t.Error("elements changed the rules")
	}
}

func TestDeadManSwitchAndRemoval(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tables := inKernel(t)
	fatal.If(t, tables.Setup(ctx))
	for range 2 {
		fatal.If(t, tables.Heartbeat(ctx))
		if !regexp.MustCompile(`elements = \{ 53 (timeout \S+ )?expires `).MatchString(ruleset(t)) {
			t.Error("the switch is not on after a heartbeat")
		}
	}
	fatal.If(t, tables.Disable(ctx))
	if strings.Contains(ruleset(t), "expires") {
		t.Error("the switch is on after Disable")
	}
	for range 2 {
		fatal.If(t, tables.Remove(ctx))
		diff.Equal(t, "", ruleset(t), "left after Remove")
	}
}
