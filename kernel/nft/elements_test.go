package nft

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// in returns the keys of a set's elements.
func in(m elements, f knftables.Family, set string) [][]string {
	var out [][]string
	for _, e := range m {
		if e.Family == f && e.Set == set {
			out = append(out, e.Key)
		}
	}
	slices.SortFunc(out, slices.Compare)
	return out
}

func TestClaimsOfAddresses(t *testing.T) {
	t.Parallel()
	a, b, c := netip.MustParseAddr("2001:db8:1::5"), netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("::5")
	s := State{
		PortHomes: []Home{{"port1", a}, {"port1", b}, {"port2", c}},
		Homes:     []Home{{"veth3", netip.MustParseAddr("2001:db8:1::7")}},
		Gateways:  []netip.Addr{netip.MustParseAddr("fe80::1"), netip.MustParseAddr("169.254.1.1")},
		Pods:      [][]netip.Addr{{a, b}, {c, netip.MustParseAddr("2001:db8:1::6")}},
	}
	tests := []struct {
		family knftables.Family
		set    string
		want   [][]string
	}{
		{knftables.BridgeFamily, claimSet, [][]string{{`"port1"`, "0x20010db8000100000000000000000005"}, {`"port2"`, "0x5"}}},
		{knftables.BridgeFamily, gatewaySet, [][]string{{"fe80::1"}}},
		{knftables.BridgeFamily, gatewayNumbers, [][]string{{"0xfe800000000000000000000000000001"}}},
		{knftables.InetFamily, "own4", [][]string{{"10.1.0.5", "10.1.0.5"}}},
		{knftables.InetFamily, "own6", [][]string{
			{"2001:db8:1::5", "2001:db8:1::5"}, {"2001:db8:1::6", "2001:db8:1::6"}, {"2001:db8:1::6", "::5"}, {"::5", "2001:db8:1::6"}, {"::5", "::5"},
		}},
	}
	got := s.elements(s.tierObjects(tierObjects{}))
	for _, test := range tests {
		if diff := cmp.Diff(test.want, in(got, test.family, test.set)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.set, diff)
		}
	}
}

// TestFlowtables: a flow table as the kernel lists it, from before and after there were prefixes of
// devices.
func TestFlowtables(t *testing.T) {
	t.Parallel()
	b := nfattr.AppendString(nfattr.AppendString(nil, flowtableTable, "router"), flowtableName, "fast")
	b, hook := nfattr.Begin(b, flowtableHook)
	b = nfattr.AppendUint32(nfattr.AppendUint32(b, 1, 0), 2, 0)
	b, devices := nfattr.Begin(b, flowtableHookDevs)
	b = nfattr.AppendString(nfattr.AppendString(nfattr.AppendString(b, deviceName, "eth0"), deviceName, "veth5"), devicePrefix, "cali")
	nfattr.End(b, devices)
	nfattr.End(b, hook)
	f := parseFlowtable("inet", b)
	if f.String() != "inet router fast" || !slices.Equal(f.Devices, []string{"eth0", "veth5", "cali*"}) {
		t.Errorf("%s with %q", f, f.Devices)
	}
	netns.Own(t)
	tables, err := Open(Bits{Admitted: 0x40, Candidate: 0x20})
	fatal.If(t, err)
	if all, err := tables.Flowtables(); len(all) > 0 || err != nil {
		t.Errorf("flow tables of a new namespace: %v, %v", all, err)
	}
}

// TestMessagesOfTheProgramAreBounded, and tell what knftables finds in them.
func TestMessagesOfTheProgramAreBounded(t *testing.T) {
	t.Parallel()
	p := program{knftables.NewFake(knftables.InetFamily, TableName)}
	tx := p.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Set{Name: strings.Repeat("long", 10_000)})
	err := p.Run(context.Background(), tx)
	if !knftables.IsNotFound(err) || len(err.Error()) > refusalBytes+3 || len(errors.Unwrap(err).Error()) < 10_000 {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
}

// TestUnmoved: a flush by another program between the two readings must not make every later
// heartbeat a slow one.
func TestUnmoved(t *testing.T) {
	t.Parallel()
	of := func(timeouts ...time.Duration) (out []aliveElement) {
		for _, d := range timeouts {
			out = append(out, aliveElement{timeout: d})
		}
		return out
	}
	for _, tt := range []struct {
		name      string
		last, now []aliveElement
		want      bool
	}{
		{"an older kernel", of(renewals[0]), of(renewals[0]), true},
		{"flushed meanwhile", of(renewals[0]), of(), false},
		{"expired before", of(), of(), false},
		{"renewed by another agent", of(0), of(renewals[0]), false},
	} {
		if got := unmoved(tt.last, tt.now); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestMovesAgain: after a kernel that seemed not to move the element, heartbeats try again to move it.
func TestMovesAgain(t *testing.T) {
	t.Parallel()
	var tables Tables
	tables.replaces.Store(replacedBeats)
	for n := range replacedBeats {
		if tables.triesToMove() {
			t.Fatalf("heartbeat %d moves the element", n)
		}
	}
	if !tables.triesToMove() || !tables.triesToMove() {
		t.Error("heartbeats replace the element for good")
	}
}
