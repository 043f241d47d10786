package enforcer

import (
	"testing"

	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
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
