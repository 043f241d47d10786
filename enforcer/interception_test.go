package enforcer

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/policy"
)

func TestServingAddresses(t *testing.T) {
	w := newWorld(t)
	serving := w.e.Status().Serving
	if len(serving) != 4 {
		t.Fatalf("serving %v, want one address for each resolver and endpoint", serving)
	}
	seen := map[netip.Addr]bool{}
	all, _ := w.links.Addrs()
	for dialled, a := range serving {
		if dialled.Is4() != a.Is4() || seen[a] || !intercept.InRange(a) || !slices.Contains(all, a) {
			t.Errorf("%s is served on %s", dialled, a)
		}
		seen[a] = true
	}
	w.e.intercept.Stop()
	all, _ = w.links.Addrs()
	if !slices.Contains(all, endpoint4) || !slices.Contains(all, endpoint6) {
		t.Error("the virtual endpoint went with the agent")
	}
	for a := range seen {
		if slices.Contains(all, a) {
			t.Errorf("%s stays after the agent", a)
		}
	}
}

func TestResolversStayOpenUnlessToldOtherwise(t *testing.T) {
	for _, closed := range []bool{false, true} {
		w := newNode(t)
		w.cfg.FailClosed = closed
		w.restart()
		w.apply([]policy.Pod{pod("web", "10.1.0.5 2001:db8:1::5", "allow")}, pol("allow"))
		for _, d := range [][2]string{{"10.1.0.5", "192.0.2.53"}, {"2001:db8:1::5", "2001:db8::53"}} {
			if got := w.dials(d[0], d[1], 53); got == closed {
				t.Errorf("failclosed %v: %s reaches the resolver directly: %v", closed, d[0], got)
			}
		}
		for dialled, serving := range w.e.Status().Serving {
			src := "10.1.0.5"
			if serving.Is6() {
				src = "2001:db8:1::5"
			}
			if !w.dials(src, serving.String(), 53) {
				t.Errorf("failclosed %v: the agent's own address %s for %s is closed", closed, serving, dialled)
			}
		}
		if got := strings.Contains(w.inet.Dump(), "backends4 { 0 : 192.0.2.53 . 53 }"); got == closed {
			t.Errorf("failclosed %v: fallback %v", closed, got)
		}
	}
}
