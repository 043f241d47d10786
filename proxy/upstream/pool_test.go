package upstream

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// forwardsOf is the forwards of a Corefile without Services.
func forwardsOf(t *testing.T, text string) (out []Forward) {
	t.Helper()
	c, err := corefile.Parse("Corefile", text)
	fatal.If(t, err)
	for i := range c.Zones {
		out = append(out, Forward{Zone: &c.Zones[i], First: c.Zones[i].To})
	}
	return out
}

// TestStatus counts zone by zone. An upstream is down once as many probes in a row have
// failed as the zone says.
func TestStatus(t *testing.T) {
	p := New(Options{})
	defer p.Close()
	p.Configure(forwardsOf(t, ". {\n forward . 198.51.100.53 198.51.100.54\n}\ncorp.test {\n forward . 198.51.100.54 {\n max_fails 0\n }\n}"))
	want := func(what string, all ...Status) {
		t.Helper()
		if d := cmp.Diff(all, p.Status()); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	want("at first", Status{"corp.test", 1, 0}, Status{".", 2, 0})
	u := p.ups[netip.MustParseAddrPort("198.51.100.54:53")]
	u.fails.Store(1)
	want("one probe failed", Status{"corp.test", 1, 0}, Status{".", 2, 0})
	u.fails.Store(2)
	want("down", Status{"corp.test", 1, 0}, Status{".", 1, 1})
	u.answered(make([]byte, 12), u.now(), 1)
	want("up again", Status{"corp.test", 1, 0}, Status{".", 2, 0})
}

// TestConfigureKeepsUnchangedUpstreams: a zone and an upstream that are in the next configuration
// too are the same ones, and an upstream that is not is closed.
func TestConfigureKeepsUnchangedUpstreams(t *testing.T) {
	p := New(Options{})
	defer p.Close()
	one, two := netip.MustParseAddrPort("198.51.100.53:53"), netip.MustParseAddrPort("198.51.100.54:53")
	both := forwardsOf(t, ". {\n forward . 198.51.100.53 198.51.100.54\n}\ncorp.test {\n forward . 198.51.100.54\n}")
	zones := p.Configure(both)
	corp, z, left, stays := zones[0], zones[1], p.ups[one], p.ups[two]
	if corp.name != policytest.Name("corp.test") || z.name != "" {
		t.Errorf("zones %v and %v", corp.name, z.name)
	}
	routes := z.routes.Load()
	if p.Configure(both); z.routes.Load() != routes {
		t.Error("nothing changed, and the routes are others")
	}
	zones = p.Configure(forwardsOf(t, ". {\n forward . 198.51.100.54\n}"))
	if !slices.Equal(zones, []*Zone{z}) || len(p.ups) != 1 || p.ups[two] != stays {
		t.Errorf("upstreams %v", p.ups)
	}
	if !left.gone() || stays.gone() {
		t.Errorf("closed: %v, %v", left.gone(), stays.gone())
	}
	if corp.routes.Load() != z.routes.Load() {
		t.Error("the queries of a zone that is gone do not go on at the zone that covers it")
	}
}
