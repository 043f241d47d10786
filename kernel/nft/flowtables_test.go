package nft

import (
	"slices"
	"testing"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

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
