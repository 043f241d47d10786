package enforcer

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// requiring is a policy whose first rule requires the server name.
func requiring(name string, rules ...string) *v1alpha1.FQDNNetworkPolicy {
	p := pol(name, rules...)
	p.Spec.Egress[0].ServerName = v1alpha1.ServerNameRequire
	return p
}

// relaying is a node with a pod that must name www or api.example.org, and not plain.example.org.
func relaying(t *testing.T) (w *world, web policy.Pod, lost *int) {
	w, lost = newNode(t), new(int)
	w.cfg.Inside = func(a netip.Addr) bool { return a == addr("10.96.0.1") }
	w.cfg.RightsLost = func() { *lost++ }
	w.restart()
	web = pod("web", "10.1.0.5 2001:db8:1::5", "allow")
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	w.apply([]policy.Pod{web, pod("other", "10.1.0.6")}, requiring("allow", "tcp/443 www.example.org api.example.org", "tcp/443 plain.example.org"))
	w.answer(web, "www.example.org", 60, "192.0.2.1 192.0.2.3 10.96.0.1 10.1.0.6 198.51.100.1 2001:db8:5::1")
	w.answer(web, "api.example.org", 600, "192.0.2.4")
	w.answer(web, "plain.example.org", 60, "192.0.2.2 192.0.2.3")
	return w, web, lost
}

// TestEgress: the relay connects for a pod where a plain rule allows it or a granted name is claimed, and to nothing of the
// node and the cluster.
func TestEgress(t *testing.T) {
	t.Parallel()
	idle := newWorld(t)
	if d := idle.e.Egress(addr("10.1.0.5"), addrPort("192.0.2.1:443"), ""); d != (policy.Egress{}) {
		t.Errorf("before anything is in force: %+v", d)
	}
	w, web, _ := relaying(t)
	for _, test := range []struct {
		source, to, name string
		want             policy.Verdict
	}{
		{"10.1.0.5", "192.0.2.1:443", ".", policy.CheckFlow},
		{"::ffff:10.1.0.5", "[::ffff:192.0.2.1]:443", ".", policy.CheckFlow},
		{"2001:db8:1::5", "[2001:db8:5::1]:443", "www.example.org", policy.CheckFlow},
		{"10.1.0.5", "192.0.2.1:443", "www.example.org", policy.CheckFlow},
		{"10.1.0.5", "192.0.2.1:443", "api.example.org", policy.DenyFlow},
		{"10.1.0.5", "192.0.2.4:443", "api.example.org", policy.CheckFlow},
		{"10.1.0.5", "192.0.2.1:443", "plain.example.org", policy.DenyFlow},
		{"10.1.0.5", "192.0.2.2:443", ".", policy.AllowFlow},
		{"10.1.0.5", "192.0.2.3:443", ".", policy.AllowFlow},
		{"10.1.0.5", "192.0.2.1:80", ".", policy.DenyFlow},
		{"10.1.0.5", "192.0.2.9:443", ".", policy.DenyFlow},
		{"10.1.0.6", "192.0.2.9:443", ".", policy.AllowFlow}, // of no policy
		{"10.1.0.7", "192.0.2.1:443", ".", policy.DenyFlow},
		{"10.1.0.5", "10.96.0.1:443", ".", policy.DenyFlow},
		{"10.1.0.5", "10.1.0.6:443", ".", policy.DenyFlow},
		{"10.1.0.5", "198.51.100.1:443", ".", policy.DenyFlow},
		{"10.1.0.6", "169.254.20.99:443", ".", policy.DenyFlow},
		{"10.1.0.6", "127.0.0.1:443", ".", policy.DenyFlow},
	} {
		if d := w.e.Egress(addr(test.source), addrPort(test.to), dns(test.name)); d.Verdict != test.want || (d.Pod == policy.PodRef{}) != (test.source == "10.1.0.7") {
			t.Errorf("%s to %s with %q: %+v, want %v", test.source, test.to, test.name, d, test.want)
		}
	}
	w.expire(2 * time.Hour)
	if d := w.e.Egress(addr("10.1.0.5"), addrPort("192.0.2.1:443"), ""); d.Verdict != policy.DenyFlow || d.Pod != web.PodRef {
		t.Errorf("of a grant that ended: %+v", d)
	}
}

// TestNamesOfOneAddress: 64 names of an address count, after a restart those that its comment says, and each name again once the
// pod asks for it.
func TestNamesOfOneAddress(t *testing.T) {
	t.Parallel()
	w := newNode(t)
	w.restart()
	web := pod("web", "10.1.0.5", "allow")
	all := requiring("allow", "tcp/443 *.example.org")
	w.apply([]policy.Pod{web}, all)
	allowed := func(i int) bool {
		return w.e.Egress(addr("10.1.0.5"), addrPort("192.0.2.1:443"), dns(fmt.Sprintf("some-bucket-%d.example.org", i))).Verdict == policy.CheckFlow
	}
	count := func() (n int) {
		for i := range 100 {
			if allowed(i) {
				n++
			}
		}
		return n
	}
	for i := range 80 {
		if w.answer(web, fmt.Sprintf("some-bucket-%d.example.org", i), uint32(300-2*i), "192.0.2.1"); !allowed(i) {
			t.Error("an answer opened nothing for its name", i)
		}
	}
	if n := count(); n != 64 {
		t.Errorf("%d names count", n)
	}
	w.restart()
	w.apply([]policy.Pod{web}, all)
	if n := count(); n < 6 || n >= 64 {
		t.Errorf("%d names count after a restart", n)
	}
	for i := range 64 {
		if w.answer(web, fmt.Sprintf("some-bucket-%d.example.org", i), 200, "192.0.2.1"); !allowed(i) {
			t.Error("an answer opened nothing for its name after a restart", i)
		}
	}
}

// TestKeeps: a connection stays by names that ended as long as they are remembered, and ends with its right, its pod and its
// home. The relay is called at each change.
func TestKeeps(t *testing.T) {
	t.Parallel()
	all := requiring("allow", "tcp/443 www.example.org api.example.org", "tcp/443 plain.example.org")
	for name, test := range map[string]struct {
		change                 func(w *world, web policy.Pod)
		named, unread, another bool // with the name, of a plain rule, with another name
	}{
		"nothing": {func(*world, policy.Pod) {}, true, true, false},
		"expired": {func(w *world, _ policy.Pod) { w.expire(2 * time.Hour) }, true, true, false},
		"another rule": {func(w *world, web policy.Pod) {
			w.apply([]policy.Pod{web}, all, pol("more", "tcp/443 more.example.org"))
		}, true, true, false},
		"no plain rule": {func(w *world, web policy.Pod) {
			w.apply([]policy.Pod{web}, requiring("allow", "tcp/443 www.example.org"))
		}, true, false, false},
		"no name": {func(w *world, web policy.Pod) {
			w.apply([]policy.Pod{web}, requiring("allow", "tcp/443 api.example.org", "tcp/443 plain.example.org"))
		}, false, true, false},
		"no policy": {func(w *world, web policy.Pod) { w.apply([]policy.Pod{web}) }, true, true, true},
		"denied": {func(w *world, web policy.Pod) {
			w.apply([]policy.Pod{web}, pol("allow", "tcp/1 none.example.org"))
		}, false, false, false},
		"another pod": {func(w *world, _ policy.Pod) {
			w.apply([]policy.Pod{pod("next", "10.1.0.5", "allow")}, all)
		}, false, false, false},
		"no pod":       {func(w *world, _ policy.Pod) { w.apply(nil, all) }, false, false, false},
		"no interface": {func(w *world, _ policy.Pod) { w.links.SetHome(addr("10.1.0.5"), link.Home{}); w.reconcile() }, false, false, false},
		"no home":      {func(w *world, _ policy.Pod) { w.links.SetFound(addr("10.1.0.5")); w.reconcile() }, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, web, lost := relaying(t)
			before := *lost
			test.change(w, web)
			if name != "nothing" && name != "expired" && *lost == before {
				t.Error("the relay was not called")
			}
			keeps := func(to, name string) bool {
				return w.e.Keeps(web.PodRef, addr("10.1.0.5"), addrPort(to), dns(name))
			}
			if got := keeps("192.0.2.1:443", "www.example.org"); got != test.named {
				t.Errorf("with its name: %v", got)
			}
			if got := w.e.Keeps(web.PodRef, addr("10.1.0.5"), addrPort("192.0.2.2:443"), ""); got != test.unread {
				t.Errorf("of a plain rule: %v", got)
			}
			if got := keeps("192.0.2.1:443", "api.example.org"); got != test.another {
				t.Errorf("with another name: %v", got)
			}
			if name != "no policy" && w.e.Keeps(web.PodRef, addr("10.1.0.5"), addrPort("192.0.2.1:443"), "") {
				t.Error("it stays unread")
			}
		})
	}
}

// TestHalvesOfRelayedConnections: the half of a pod is judged as if it reached what it dialled, and a direct connection that
// only a rule with the server name would allow is cut.
func TestHalvesOfRelayedConnections(t *testing.T) {
	t.Parallel()
	w, web, _ := relaying(t)
	led := flow("10.1.0.5:1001", "192.0.2.1:443")
	led.Peer = addrPort("169.254.20.90:9955")
	plain := flow("10.1.0.5:1002", "192.0.2.3:443")
	plain.Peer = led.Peer
	direct, elsewhere := flow("10.1.0.5:1003", "192.0.2.1:443"), flow("10.1.0.5:1004", "192.0.2.9:443")
	elsewhere.Peer = led.Peer
	for _, f := range []conntrack.Flow{led, plain, direct, elsewhere} {
		w.tracked(f)
	}
	w.expire(2 * time.Hour)
	w.apply([]policy.Pod{web}, requiring("allow", "tcp/443 www.example.org", "tcp/443 plain.example.org"))
	if !w.admitted(led) || !w.admitted(plain) || w.admitted(direct) || w.admitted(elsewhere) {
		t.Errorf("admitted: led %v, of a plain rule %v, direct %v, led elsewhere %v", w.admitted(led), w.admitted(plain), w.admitted(direct), w.admitted(elsewhere))
	}
	w.apply([]policy.Pod{web}, requiring("allow", "tcp/443 api.example.org"))
	if w.admitted(led) || w.admitted(plain) {
		t.Errorf("of names that went: admitted %v, %v", w.admitted(led), w.admitted(plain))
	}
}
