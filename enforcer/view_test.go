package enforcer

import (
	"context"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/granttest"
)

// The view that decided is asked again exactly if it is not in force.
func TestTheDecidingViewIsTrustedInForceAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, q := pod("web", "10.1.0.5", "allow"), pod("other", "10.1.0.6", "more")
	allow, more := pol("allow", "tcp/443 www.example.org"), pol("more", "tcp/443 *.example.net")
	w.apply([]policy.Pod{p, q}, allow, more)
	first, others := w.snap.ViewOf(p.PodRef), w.snap.ViewOf(q.PodRef)
	grant := func(name string, v *policy.View) error {
		return granttest.Grant(context.Background(), w.e.grants, []policy.Grant{{
			Pod: p.PodRef, Name: dns(name), Ports: https, Addrs: addrs("192.0.2.1"), Deadline: w.clock.Now().Add(60e9), View: v,
		}})
	}
	if err := grant("www.example.org", first); err != nil {
		t.Errorf("by the view in force: %v", err)
	}
	if err := grant("a.example.net", others); err == nil {
		t.Error("another pod's view is trusted")
	}
	if err := grant("www.example.org", others); err != nil {
		t.Errorf("the wrong view for what the right one allows: %v", err)
	}
	next := w.compile([]policy.Pod{p, q}, pol("allow", "tcp/443 www.example.com"), more)
	coming := next.ViewOf(p.PodRef)
	if err := grant("www.example.com", coming); err == nil {
		t.Error("a view that was never prepared is trusted")
	}
	w.prepare(next)
	if grant("www.example.org", first) != nil || grant("www.example.com", coming) != nil {
		t.Error("between Prepare and Commit both views are in force")
	}
	w.commit()
	// The proxy may have decided by the last snapshot and come late.
	if err := grant("www.example.org", first); err == nil {
		t.Error("a view that went is trusted")
	}
	if err := grant("www.example.com", first); err != nil {
		t.Errorf("a view that went, for what the one in force allows: %v", err)
	}
	if err := grant("www.example.org", coming); err != nil {
		t.Errorf("what the view in force has decided is not asked again: %v", err)
	}
}
