package enforcer

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// closes tells whether nothing passes from an address, whatever is granted.
func (w *world) closes(a string) bool {
	w.t.Helper()
	if addr(a).Is6() {
		return !w.dials(a, "2001:db8::9", 25)
	}
	return !w.dials(a, "192.0.2.1", 443) && !w.dials(a, "192.0.2.9", 25)
}

// lives sets the home of the pod's addresses.
func (w *world) lives(home link.Home) {
	w.links.SetHome(addr("10.1.0.5"), home)
	w.links.SetHome(addr("2001:db8:1::5"), home)
}

// orphan is a world with a pod that has a grant and a connection, and whose object is gone then.
func orphan(t *testing.T, home link.Home) (w *world, web policy.Pod) {
	w = newWorld(t)
	w.lives(home)
	web = pod("web", "10.1.0.5 2001:db8:1::5", "allow")
	w.apply([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
	w.answer(web, "www.example.org", 60, "192.0.2.1")
	w.track("10.1.0.5:1001", "192.0.2.1:443")
	w.apply(nil, pol("allow", "tcp/443 www.example.org"))
	return w, web
}

// TestAnOrphanStaysClosed until its interface is gone, also for agents that come later.
func TestAnOrphanStaysClosed(t *testing.T) {
	t.Parallel()
	for _, home := range []link.Home{{Iface: "veth5"}, {Iface: "br0", Port: "port5"}} {
		w, _ := orphan(t, home)
		if w.admitted(flow("10.1.0.5:1001", "192.0.2.1:443")) {
			t.Error("the connection goes on")
		}
		if n := w.e.grants.Figures().Grants; n > 0 {
			t.Errorf("%d grants are left", n)
		}
		for _, how := range []string{"its object is gone", "a restart", "another restart"} {
			if strings.Contains(how, "restart") {
				w.restart()
				w.apply(nil)
			}
			w.reconcile()
			w.clock.Pass(time.Hour)
			w.reconcile()
			if !w.closes("10.1.0.5") || !w.closes("2001:db8:1::5") {
				t.Errorf("%v, %s: the address is open", home, how)
			}
			v := w.e.Coming().View(addr("10.1.0.5"))
			if v == nil || v.Pod.PodRef != v.Pod.Orphan() || len(v.Pod.IPs) != 2 || v.Decide(dns("www.example.org")).Allowed() {
				t.Errorf("%v, %s: the view is %+v", home, how, v)
			}
		}
		w.lives(link.Home{})
		w.reconcile()
		if got := w.e.Status(); got.Selected != 0 || !w.dials("10.1.0.5", "192.0.2.9", 25) {
			t.Errorf("%v: without the interface the address is closed, %d pods are isolated", home, got.Selected)
		}
	}
}

// TestAnOrphansInterface accepts no other source, also where the orphan hides its address.
func TestAnOrphansInterface(t *testing.T) {
	t.Parallel()
	for _, home := range []link.Home{{Iface: "veth5"}, {Iface: "br0", Port: "port5"}} {
		for _, restarted := range []bool{false, true} {
			w, _ := orphan(t, home)
			w.links.SetHome(addr("10.1.0.99"), home) // the interface is there whatever is found
			w.links.SetFound(addr("10.1.0.5"))
			w.links.SetFound(addr("2001:db8:1::5"))
			if restarted {
				w.restart()
				w.apply(nil)
			}
			w.reconcile()
			if w.at("10.1.0.77", home.Iface, home.Port) || !w.closes("10.1.0.5") {
				t.Errorf("%v, restarted %t: the orphan sends from another address or its own", home, restarted)
			}
		}
	}
}

// TestAnOrphansAddressIsUsedAgain: the next pod, of the same name or another, selected or not, has
// the address at once, and nothing of what the orphan had.
func TestAnOrphansAddressIsUsedAgain(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		for _, name := range []string{"web", "heir"} {
			for _, label := range []string{"allow", ""} {
				w, web := orphan(t, link.Home{Iface: "veth5"})
				if restarted {
					w.restart()
					w.apply(nil)
				}
				next := pod(name, "10.1.0.5", label)
				next.UID = "next"
				w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth6"}) // the old interface is there yet
				w.apply([]policy.Pod{next}, pol("allow", "tcp/443 www.example.org"))
				if label == "" {
					if !w.dials("10.1.0.5", "192.0.2.9", 25) {
						t.Errorf("%s that no policy selects is denied", name)
					}
					continue
				}
				if !w.at("10.1.0.5", "veth6", "") || w.at("10.1.0.5", "veth5", "") {
					t.Errorf("%s: its home is not the only one", name)
				}
				if w.dials("10.1.0.5", "192.0.2.1", 443) {
					t.Errorf("%s inherits a grant", name)
				}
				w.answer(next, "www.example.org", 60, "192.0.2.1")
				if !w.dials("10.1.0.5", "192.0.2.1", 443) {
					t.Errorf("%s cannot use its own grant", name)
				}
				if v := w.e.Coming().ViewOf(web.Orphan()); v != nil && len(v.Pod.IPs) != 1 {
					t.Errorf("the orphan has %v", v.Pod.IPs)
				}
			}
		}
	}
}

// TestAnOrphanWithoutAHome is closed while a network plugin's result has its address, for ten minutes
// at most.
func TestAnOrphanWithoutAHome(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		attached := map[netip.Addr]bool{addr("10.1.0.5"): true, addr("10.1.0.6"): true}
		w := attachedWorld(t, func(a netip.Addr) bool { return attached[a] })
		pods := []policy.Pod{pod("web", "10.1.0.5", "allow"), pod("db", "10.1.0.6", "allow"), pod("job", "10.1.0.7", "allow")}
		w.apply(pods, pol("allow"))
		w.apply(nil, pol("allow"))
		if restarted {
			w.restart()
			w.apply(nil, pol("allow"))
		}
		closed := func(when string, want ...string) {
			t.Helper()
			w.reconcile()
			for _, a := range []string{"10.1.0.5", "10.1.0.6", "10.1.0.7"} {
				is := !w.dials(a, "192.0.2.9", 25)
				if should := strings.Contains(strings.Join(want, " "), a); is != should {
					t.Errorf("restarted %t, %s: %s is closed: %t", restarted, when, a, is)
				}
			}
		}
		closed("at first", "10.1.0.5", "10.1.0.6")
		delete(attached, addr("10.1.0.6"))
		closed("without a result", "10.1.0.5")
		w.clock.Pass(orphanTime - time.Second)
		w.apply(nil, pol("allow")) // a change does not begin the time anew
		closed("before ten minutes", "10.1.0.5")
		w.clock.Pass(time.Second)
		closed("after ten minutes")
	}
}

// TestAnotherProgramsMemberIsNoOrphan: an address that another program isolated is not a pod's that was.
func TestAnotherProgramsMemberIsNoOrphan(t *testing.T) {
	t.Parallel()
	w := attachedWorld(t, func(netip.Addr) bool { return true })
	web := pod("web", "10.1.0.5", "allow")
	w.apply([]policy.Pod{web}, pol("allow"))
	es, err := w.sets.List("NG4-selected")
	fatal.If(t, err)
	es[0].Addr = addr("10.1.0.77")
	fatal.If(t, w.sets.Add("NG4-selected", es[0]))
	w.restart()
	w.apply([]policy.Pod{web}, pol("allow"))
	if of, has := w.e.Coming().Pod(addr("10.1.0.77")); has {
		t.Errorf("the address is taken for that of the pod %s", of)
	}
}

// TestAnOrphanOnASharedInterface does not stay closed for as long as others use the interface.
func TestAnOrphanOnASharedInterface(t *testing.T) {
	t.Parallel()
	attached := true
	w := attachedWorld(t, func(netip.Addr) bool { return attached })
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "lxc0"})
	w.links.SetHome(addr("10.1.0.6"), link.Home{Iface: "lxc0"})
	web, db := pod("web", "10.1.0.5", "allow"), pod("db", "10.1.0.6")
	w.apply([]policy.Pod{web, db}, pol("allow"))
	w.apply([]policy.Pod{db}, pol("allow"))
	w.reconcile()
	if !w.closes("10.1.0.5") {
		t.Error("the address is open while its network is set up")
	}
	attached = false
	w.reconcile()
	if !w.dials("10.1.0.5", "192.0.2.9", 25) {
		t.Error("the address is closed for as long as another pod is there")
	}
}

// TestAPodThatEndsInOrder: its interface is gone before its object, and nothing is left of it, even
// if a result of a network plugin is.
func TestAPodThatEndsInOrder(t *testing.T) {
	t.Parallel()
	w := attachedWorld(t, func(netip.Addr) bool { return true })
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	web := pod("web", "10.1.0.5", "allow")
	w.apply([]policy.Pod{web}, pol("allow"))
	w.links.SetHome(addr("10.1.0.5"), link.Home{})
	w.reconcile()
	if w.dials("10.1.0.5", "192.0.2.9", 25) {
		t.Error("the pod is open, while its object is there")
	}
	w.apply(nil, pol("allow"))
	if got := w.e.Status(); got.Selected != 0 || !w.dials("10.1.0.5", "192.0.2.9", 25) {
		t.Errorf("%d pods are isolated", got.Selected)
	}
}

// TestAFinishedPodIsAnOrphan while its interface is there, and a pod that no policy isolated is none.
func TestAFinishedPodIsAnOrphan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	w.links.SetHome(addr("10.1.0.6"), link.Home{Iface: "veth6"})
	web, free := pod("web", "10.1.0.5", "allow"), pod("free", "10.1.0.6")
	w.apply([]policy.Pod{web, free}, pol("allow"))
	web.Phase = "Succeeded"
	w.apply([]policy.Pod{web}, pol("allow"))
	if !w.closes("10.1.0.5") {
		t.Error("the finished pod is open")
	}
	if !w.dials("10.1.0.6", "192.0.2.9", 25) {
		t.Error("the pod that was open is closed")
	}
}

// TestAnInterfaceIsMadeAnew with the name of the orphan's, which is no home of the orphan.
func TestAnInterfaceIsMadeAnew(t *testing.T) {
	t.Parallel()
	routed, bridged := link.Home{Iface: "cali5"}, link.Home{Iface: "br0", Port: "cali5"}
	for _, c := range []struct {
		when string
		home link.Home
	}{
		{"before the object is gone", routed}, {"later", routed}, {"between two agents", routed},
		{"before the object is gone", bridged}, {"later", bridged},
	} {
		w := newWorld(t)
		w.links.SetHome(addr("10.1.0.5"), c.home)
		w.apply([]policy.Pod{pod("web", "10.1.0.5", "allow")}, pol("allow"))
		next := pod("web", "10.1.0.6", "allow")
		next.UID = "next"
		anew := func() {
			w.links.SetHome(addr("10.1.0.6"), c.home)
			w.links.Remake("cali5")
			w.links.SetHome(addr("10.1.0.5"), link.Home{})
		}
		switch c.when {
		case "later":
			w.apply(nil, pol("allow"))
			if !w.closes("10.1.0.5") {
				t.Errorf("%v: the orphan is open", c)
			}
			anew()
			w.reconcile()
		case "between two agents":
			anew()
			w.restart()
		default:
			anew()
		}
		w.apply([]policy.Pod{next}, pol("allow"))
		w.reconcile()
		if !w.dials("10.1.0.5", "192.0.2.9", 25) || !w.closes("10.1.0.6") {
			t.Errorf("%v: the address of before is closed, or that of the next pod open", c)
		}
		if !w.at("10.1.0.6", c.home.Iface, c.home.Port) || w.at("10.1.0.6", "eth9", "") {
			t.Errorf("%v: the interface is not the home of the next pod", c)
		}
	}
}

// TestAnOrphanInAFailedChange stays closed whatever step fails.
func TestAnOrphanInAFailedChange(t *testing.T) {
	t.Parallel()
	var next *policy.Snapshot
	eachFault(t, 2, true, func() (*world, func() error) {
		w := newWorld(t)
		w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
		web := pod("web", "10.1.0.5", "allow")
		w.apply([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
		w.answer(web, "www.example.org", 60, "192.0.2.1")
		next = w.compile(nil, pol("allow", "tcp/443 www.example.org"))
		return w, func() error { return w.rollOut(next) }
	}, func(f fault) {
		if f.dials("10.1.0.5", "192.0.2.9", 25) {
			t.Errorf("%s: the orphan is open", f.when)
		}
		fatal.If(t, f.rollOut(next))
		if !f.closes("10.1.0.5") {
			t.Errorf("%s: the orphan is not closed after a retry", f.when)
		}
	})
}

// TestTablesLostBetweenAgents: without the tables, no agent knows whose an address was.
func TestTablesLostBetweenAgents(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} { // another pod has the address
		w := attachedWorld(t, func(netip.Addr) bool { return true })
		w.lives(link.Home{Iface: "veth5"})
		web := pod("web", "10.1.0.5 2001:db8:1::5", "allow")
		w.apply([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
		w.answer(web, "www.example.org", 600, "192.0.2.1")
		open := w.track("10.1.0.5:1001", "192.0.2.1:443")
		tx := w.inet.NewTransaction()
		tx.Delete(&knftables.Table{})
		fatal.If(t, w.inet.Run(t.Context(), tx))
		w.restart()
		var pods []policy.Pod
		if again {
			pods = []policy.Pod{pod("next", "10.1.0.5 2001:db8:1::5", "allow")}
		}
		w.apply(pods, pol("allow", "tcp/443 www.example.org"))
		if w.admitted(open) {
			t.Errorf("again %t: the connection of the earlier pod goes on", again)
		}
		if !w.closes("10.1.0.5") {
			t.Errorf("again %t: the address is open", again)
		}
	}
}
