package enforcer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/link"
	"github.com/namegate/namegate/policy"
)

// busy is a node in the midst of its life and the change that comes next: a pod
// goes, one comes, one becomes selected with connections open, one's ports
// change, one of two policies goes, an address gets another owner.
func busy(t *testing.T) (*world, *policy.Snapshot) {
	w := newWorld(t)
	for a, h := range map[string]link.Home{
		"10.1.0.5": {Iface: "veth5"}, "2001:db8:1::5": {Iface: "veth5"}, "10.1.0.6": {Iface: "br0", Port: "port6"},
		"10.1.0.7": {Iface: "veth7"}, "10.1.0.8": {Iface: "br0", Port: "port8"},
	} {
		w.links.SetHome(addr(a), h)
	}
	web, gone, late := pod("web", "10.1.0.5 2001:db8:1::5", "one", "two"), pod("gone", "10.1.0.6 10.1.0.9", "two"), pod("late", "10.1.0.7", "three")
	one, two := pol("one", "tcp/443 www.example.org"), pol("two", "tcp/443 www.example.net", "tcp/25 mail.test")
	w.apply([]policy.Pod{web, gone, late}, one, two)
	w.answer(web, "www.example.org", 60, "192.0.2.1 2001:db8::1 192.0.2.3")
	w.answer(web, "www.example.net", 90, "192.0.2.2 192.0.2.3")
	w.answer(web, "mail.test", 90, "192.0.2.4")
	w.answer(gone, "www.example.net", 60, "192.0.2.2")
	for _, f := range []string{
		"10.1.0.5:1001 192.0.2.1:443", "10.1.0.5:1002 192.0.2.2:443", "10.1.0.5:1003 192.0.2.4:25", "[2001:db8:1::5]:1001 [2001:db8::1]:443",
		"10.1.0.6:1001 192.0.2.2:443", "10.1.0.7:1001 192.0.2.53:53", "10.1.0.7:1002 192.0.2.9:443",
	} {
		src, dst, _ := strings.Cut(f, " ")
		w.flows.Track(flow(src, dst))
	}
	w.clock.pass(10 * time.Second)
	two = pol("two", "tcp/443,tcp/8443 www.example.net", "tcp/25 mail.test")
	heir := pod("heir", "10.1.0.8 10.1.0.9", "two")
	next := w.compile([]policy.Pod{web, heir, late}, two, pol("three", "udp/53 dns.test"))
	return w, next
}

// maxSteps bounds the loops over every step of a roll-out.
const maxSteps = 400

// TestNoFaultOpensAnything is what matters more than that a retry mends: a roll-out
// that stops anywhere leaves nobody with more than the two snapshots allow.
func TestNoFaultOpensAnything(t *testing.T) {
	for n := 1; n < maxSteps; n++ {
		w, next := busy(t)
		w.seams.forget(n, false)
		err := w.rollOut(next)
		if w.seams.steps < n {
			return
		}
		if err == nil {
			t.Errorf("step %d fails, and the roll-out says nothing", n)
		}
		for _, d := range []struct {
			src, dst string
			port     uint16
		}{
			{"10.1.0.5", "192.0.2.9", 443}, {"10.1.0.5", "192.0.2.1", 80}, {"10.1.0.5", "192.0.2.1", 8443},
			{"2001:db8:1::5", "2001:db8::1", 80}, {"10.1.0.6", "192.0.2.1", 443},
		} {
			denied := slices.Contains(w.selected(), d.src)
			if denied && w.dials(d.src, d.dst, d.port) {
				t.Errorf("step %d failed, and %s reaches %s port %d", n, d.src, d.dst, d.port)
			}
		}
	}
}

// selected returns the addresses that are default-deny in the kernel.
func (w *world) selected() []string {
	var out []string
	for _, f := range ipVersions {
		es, err := w.sets.List(setPrefix(f) + setSelected)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range es {
			out = append(out, e.Addr.String())
		}
	}
	return out
}

func TestFaultsWhileOthersWait(t *testing.T) {
	w, next := busy(t)
	w.seams.forget(1, false)
	if err := w.rollOut(next); !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	w.seams.forget(0, false)
	// The source moved on: another snapshot comes instead of the same again.
	after := w.compile(nil, []v1alpha1.FQDNNetworkPolicy{}...)
	if err := w.rollOut(after); err != nil {
		t.Fatal(err)
	}
	if got := w.selected(); len(got) != 0 {
		t.Errorf("still denied: %v", got)
	}
	for _, set := range []string{podID(pod("web", "").PodRef), podID(pod("heir", "").PodRef)} {
		if strings.Contains(w.sets.Dump(), set) {
			t.Errorf("sets of %s are left", set)
		}
	}
}
