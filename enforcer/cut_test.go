package enforcer

import (
	"context"
	"slices"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestConntrackQueriesOfAChange counts how often a change has the kernel look
// through its connections: once for each family that there is something to cut or
// to admit in, however many pods it is about, and never otherwise.
func TestConntrackQueriesOfAChange(t *testing.T) {
	t.Parallel()
	type pods = []policy.Pod
	type policies = []v1alpha1.FQDNNetworkPolicy
	const both = "10.1.0.5 2001:db8:1::5"
	web, db, plain := pod("web", both, "allow", "more"), pod("db", "10.1.0.6 2001:db8:1::6", "allow", "more"), pod("plain", "10.1.0.7 2001:db8:1::7")
	allow, more := pol("allow", "tcp/443 www.example.org"), pol("more", "tcp/25 mail.test")
	chosen := pod("plain", "10.1.0.7 2001:db8:1::7", "allow")
	newcomer, third := pod("new", "10.1.0.8 2001:db8:1::8", "allow"), pod("third", "10.1.0.9", "allow")
	later := pol("later", "udp/443 www.example.com")
	web2 := pod("web", both, "allow", "more", "later")
	begin := pods{web, db, plain}
	tests := []struct {
		name     string
		warm     string // addresses that the newcomer's name has before it is committed
		pods     pods
		policies policies
		looks    int
	}{
		{"nothing", "", begin, policies{allow, more}, 0},
		{"a policy that allows more", "", pods{web2, db, plain}, policies{allow, more, later}, 0},
		{"a pod that no policy selects goes", "", pods{web, db}, policies{allow, more}, 0},
		{"a new pod", "", append(pods{newcomer, third}, begin...), policies{allow, more}, 0},
		{"a new pod that a name was asked for", "192.0.2.1", append(pods{newcomer}, begin...), policies{allow, more}, 1},
		{"a new pod that a name of both families was asked for", "192.0.2.1 2001:db8::1", append(pods{newcomer}, begin...), policies{allow, more}, 2},
		{"a known pod becomes selected", "", pods{web, db, chosen}, policies{allow, more}, 2},
		{"a policy of two pods goes", "", begin, policies{allow}, 2},
		{"a pod goes", "", pods{web, plain}, policies{allow, more}, 2},
		{"two pods go", "", pods{plain}, policies{allow, more}, 2},
		{"a pod goes, another may do less", "", pods{web, plain}, policies{allow}, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.apply(begin, allow, more)
			for _, p := range begin[:2] {
				w.answer(p, "www.example.org", 60, "192.0.2.1 2001:db8::1")
				w.answer(p, "mail.test", 60, "192.0.2.3 2001:db8::3")
			}
			before, s := w.flows.Scans(), w.compile(test.pods, test.policies...)
			fatal.If(t, w.e.Prepare(context.Background(), s))
			if test.warm != "" {
				fatal.If(t, w.e.grants.Grant(context.Background(), w.grants(s, newcomer.PodRef, "www.example.org", 60, test.warm)))
			}
			fatal.If(t, w.e.Commit(context.Background()))
			if got := w.flows.Scans() - before; got != test.looks {
				t.Errorf("the table was looked through %d times, want %d", got, test.looks)
			}
		})
	}
	t.Run("peers", func(t *testing.T) {
		w := newWorld(t)
		w.netpols = append(w.netpols, netpol("more", "tcp/80 db", "tcp/81 192.0.2.0/24"))
		w.remote = append(w.remote, far("db1", "10.2.0.1", "db"), far("db2", "10.2.0.2 2001:db8:2::2", "db"))
		w.apply(begin, allow, more)
		for _, step := range []struct {
			what  string
			do    func()
			pods  pods
			looks int
		}{
			{"nothing", func() {}, begin, 0},
			{"a pod of another node comes", func() { w.remote = append(w.remote, far("db3", "10.2.0.3", "db")) }, begin, 0},
			{"one goes that has addresses of both families", func() { w.remote = slices.Delete(slices.Clone(w.remote), 1, 2) }, begin, 2},
			{"one goes that has one address", func() { w.remote = slices.Delete(slices.Clone(w.remote), 0, 1) }, begin, 1},
			{"a NetworkPolicy that selects nobody comes", func() { w.netpols = append(slices.Clone(w.netpols), netpol("nobody", "any")) }, begin, 0},
			{"a NetworkPolicy allows more", func() {
				w.netpols = []*networkingv1.NetworkPolicy{netpol("more", "tcp/80 db", "tcp/81 192.0.2.0/24", "udp")}
			}, begin, 0},
			{"a new pod that has peers", func() {}, append(pods{pod("peer", "10.1.0.20", "allow", "more")}, begin...), 1},
			{"a NetworkPolicy goes", func() { w.netpols = nil }, begin, 2},
		} {
			step.do()
			before := w.flows.Scans()
			w.apply(step.pods, allow, more)
			if got := w.flows.Scans() - before; got != step.looks {
				t.Errorf("%s: the table was looked through %d times, want %d", step.what, got, step.looks)
			}
		}
	})
	t.Run("the end of a grant", func(t *testing.T) {
		w := newWorld(t)
		w.apply(begin, allow, more)
		w.answer(web, "www.example.org", 60, "192.0.2.1 2001:db8::1")
		before := w.flows.Scans()
		w.expire(time.Hour)
		if got := w.flows.Scans() - before; got != 0 || w.dials("10.1.0.5", "192.0.2.1", 443) {
			t.Errorf("the table was looked through %d times", got)
		}
	})
}

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
