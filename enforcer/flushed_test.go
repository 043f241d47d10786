package enforcer

import (
	"context"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// A bridged pod that becomes selected is in the set "homed" before the chain of
// ports knows it: meanwhile every packet of it is dropped, established or not.
// So is a routed one where "homed" happens to be written before "home".
func TestBecomingSelectedDropsNothingAtHome(t *testing.T) {
	t.Parallel()
	for _, home := range []link.Home{{Iface: "veth5"}, {Iface: "br0", Port: "port5"}} {
		for range 10 {
			w := newWorld(t)
			w.links.SetHome(addr("10.1.0.5"), home)
			web := pod("web", "10.1.0.5", "allow")
			w.apply([]policy.Pod{web})
			dropped := ""
			w.seams.before = func(step string) {
				if dropped == "" && !w.at("10.1.0.5", home.Iface, home.Port) {
					dropped = step
				}
			}
			w.apply([]policy.Pod{web}, pol("allow"))
			if dropped != "" {
				t.Errorf("at home on %v, and dropped before: %s", home, dropped)
				break
			}
		}
	}
}

// What another program flushes out of a grant set never comes back, and a cached
// answer is given without it.
func TestFlushedGrantsComeBack(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	fatal.If(t, w.sets.Delete(xtables.GrantSetName(p.PodRef, https, iptables.IPv4), httpsEntry(addr("192.0.2.1"))))
	w.reconcile()
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	if !w.dials("10.1.0.5", "192.0.2.1", 443) {
		t.Error("the grant is acknowledged and not in the kernel")
	}
}

// The same of an element of the nft tables: nft flush set inet namegate selected4.
func TestFlushedElementsComeBack(t *testing.T) {
	t.Parallel()
	w := settled(t)
	before := w.dump()
	tx := w.inet.NewTransaction()
	tx.Flush(&knftables.Set{Name: "selected4"})
	fatal.If(t, w.inet.Run(context.Background(), tx))
	w.reconcile()
	if w.dump() != before {
		t.Error("the first net is open for good")
	}
}
