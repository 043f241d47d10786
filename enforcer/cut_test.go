package enforcer

import (
	"context"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestOnlyCoveredConnectionsAreAdmitted has pods with connections open become selected:
// one that was known, and one that comes with an address granted already.
func TestOnlyCoveredConnectionsAreAdmitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	allow := pol("allow", "tcp/443 www.example.org")
	plain := pod("plain", "10.1.0.7 2001:db8:1::7")
	w.apply([]policy.Pod{plain}, allow)
	chosen, newcomer := pod("plain", "10.1.0.7 2001:db8:1::7", "allow"), pod("new", "10.1.0.8 2001:db8:1::8", "allow")
	for _, f := range []string{"10.1.0.7:1", "10.1.0.8:1"} {
		for _, to := range []string{"192.0.2.1:443", "192.0.2.2:443", "192.0.2.1:80", "192.0.2.53:53"} {
			open := flow(f, to)
			open.Mark = 0x2000
			w.flows.Track(open)
		}
	}
	for _, f := range []string{"[2001:db8:1::7]:1", "[2001:db8:1::8]:1"} {
		for _, to := range []string{"[2001:db8::1]:443", "[2001:db8::2]:443"} {
			open := flow(f, to)
			open.Mark = 0x2000
			w.flows.Track(open)
		}
	}
	s := w.compile([]policy.Pod{chosen, newcomer}, allow)
	fatal.If(t, w.e.Prepare(context.Background(), s))
	for _, p := range []policy.Pod{chosen, newcomer} {
		fatal.If(t, w.e.grants.Grant(context.Background(), w.grants(s, p.PodRef, "www.example.org", 60, "192.0.2.1 2001:db8::1")))
	}
	fatal.If(t, w.e.Commit(context.Background()))
	for from, tos := range map[string]map[string]bool{
		"10.1.0.7:1":        {"192.0.2.1:443": true, "192.0.2.2:443": false, "192.0.2.1:80": false, "192.0.2.53:53": true},
		"10.1.0.8:1":        {"192.0.2.1:443": true, "192.0.2.2:443": false, "192.0.2.1:80": false, "192.0.2.53:53": true},
		"[2001:db8:1::7]:1": {"[2001:db8::1]:443": true, "[2001:db8::2]:443": false},
		"[2001:db8:1::8]:1": {"[2001:db8::1]:443": true, "[2001:db8::2]:443": false},
	} {
		for to, want := range tos {
			if got := w.admitted(flow(from, to)); got != want {
				t.Errorf("%s to %s is admitted: %v", from, to, got)
			}
		}
	}
}
