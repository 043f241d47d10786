package proxy

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/proxy/corefile"
)

// TestUpstreamsAreTold: zone by zone, and an upstream is down once as many probes
// in a row have failed as the zone says.
func TestUpstreamsAreTold(t *testing.T) {
	c, err := corefile.Parse("Corefile", ". {\n forward . 198.51.100.53 198.51.100.54\n}\ncorp.test {\n forward . 198.51.100.54 {\n max_fails 0\n }\n}")
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, nil)
	l.s.Configure(c)
	want := func(what string, all ...ZoneUpstreams) {
		t.Helper()
		got := map[string]ZoneUpstreams{}
		for _, z := range l.s.Upstreams() {
			got[z.Zone] = z
		}
		wanted := map[string]ZoneUpstreams{}
		for _, z := range all {
			wanted[z.Zone] = z
		}
		if d := cmp.Diff(wanted, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	want("at first", ZoneUpstreams{".", 2, 0}, ZoneUpstreams{"corp.test", 1, 0})
	u := l.s.ups[netip.MustParseAddrPort("198.51.100.54:53")]
	u.fails.Store(1)
	want("one probe failed", ZoneUpstreams{".", 2, 0}, ZoneUpstreams{"corp.test", 1, 0})
	u.fails.Store(2)
	want("down", ZoneUpstreams{".", 1, 1}, ZoneUpstreams{"corp.test", 1, 0})
	u.answered(u.now(), 1)
	want("up again", ZoneUpstreams{".", 2, 0}, ZoneUpstreams{"corp.test", 1, 0})
}
