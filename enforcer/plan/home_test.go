package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/policytest"
)

// node finds homes again and again, as links change.
type node struct {
	pods      []policy.Pod
	last      map[netip.Addr]Home
	recovered map[netip.Addr]Home
	found     map[netip.Addr][]link.Found
	gone      map[string]bool // bridge ports
}

// letters name the addresses of the pods web, free and host.
var letters = map[string]netip.Addr{
	"w4": netip.MustParseAddr("10.1.0.5"), "w6": netip.MustParseAddr("2001:db8:1::5"), "f4": netip.MustParseAddr("10.1.0.6"), "h4": netip.MustParseAddr("192.0.2.1"),
}

func newNode() *node {
	host := policytest.Pod("host", "192.0.2.1")
	host.HostNetwork = true
	return &node{
		pods: []policy.Pod{policytest.Pod("free", "10.1.0.6"), host, policytest.Pod("web", "10.1.0.5 2001:db8:1::5")},
		last: map[netip.Addr]Home{}, found: map[netip.Addr][]link.Found{}, gone: map[string]bool{},
	}
}

// snapshot has the node's pods, selected by the rules of views, or by none.
func (n *node) snapshot(views ...*policy.View) *policy.Snapshot {
	owners := map[netip.Addr]policy.PodRef{}
	for _, p := range n.pods {
		for _, a := range p.IPs {
			owners[a] = p.PodRef
		}
	}
	return policy.NewSnapshot(policy.Snapshot{Views: views}, n.pods, owners)
}

// find finds the homes.
func (n *node) find() {
	stands := func(h link.Home) bool { return !n.gone[h.Port] }
	n.last = FindHomes(n.snapshot(), Evidence{
		Last: n.last, Stands: stands,
		Recovered: func(a netip.Addr, ref policy.PodRef) (link.Home, bool) {
			h, ok := n.recovered[a]
			return h.Home, ok && h.Pod == ref && !h.Nowhere() && stands(h.Home)
		},
		Ask: func(addrs []netip.Addr) map[netip.Addr][]link.Found {
			for a, h := range n.last {
				owner, _ := n.snapshot().Pod(a)
				if h.Evidence == link.Seen && !h.Nowhere() && stands(h.Home) && h.Pod == owner && slices.Contains(addrs, a) {
					panic("the node is asked again for what it has shown: " + a.String())
				}
			}
			out := maps.Clone(n.found)
			maps.DeleteFunc(out, func(a netip.Addr, _ []link.Found) bool { return !slices.Contains(addrs, a) })
			return out
		},
	})
}

// do takes a step: "find", "restart", "gone PORT", "seen|heard ADDRESS PORT…", "unknown
// ADDRESS". A port that begins with veth is an interface of its own.
func (n *node) do(step string) {
	w := strings.Fields(step)
	switch w[0] {
	case "find":
		n.find()
	case "restart":
		n.recovered, n.last = n.last, map[netip.Addr]Home{}
	case "gone":
		n.gone[w[1]] = true
	case "unknown":
		delete(n.found, letters[w[1]])
	default:
		found := []link.Found{}
		for _, p := range w[2:] {
			found = append(found, link.Found{Home: homeAt(p), Evidence: map[string]link.Evidence{"seen": link.Seen, "heard": link.Heard}[w[0]]})
		}
		n.found[letters[w[1]]] = found
	}
}

func homeAt(port string) link.Home {
	if strings.HasPrefix(port, "veth") {
		return link.Home{Iface: port}
	}
	return link.Home{Iface: "br0", Port: port}
}

// String is the homes in the order of their addresses' letters.
func (n *node) String() string {
	var out []string
	for _, l := range slices.Sorted(maps.Keys(letters)) {
		if h, ok := n.last[letters[l]]; ok && h.Nowhere() {
			out = append(out, l+" nowhere")
		} else if ok {
			out = append(out, fmt.Sprintf("%s %s%s %s", l, strings.TrimPrefix(h.Iface, "br0"), h.Port, map[link.Evidence]string{link.Seen: "seen", link.Heard: "heard"}[h.Evidence]))
		}
	}
	return strings.Join(out, ", ")
}

func TestFindHomes(t *testing.T) {
	for _, test := range []struct{ what, steps, want string }{
		{"nothing is known", "find", ""},
		{"an interface of its own", "seen w4 veth5; find", "w4 veth5 seen, w6 veth5 seen"},
		{"an interface of the node's is no pod's", "seen h4 eth0; seen w4 port5; find", "w4 port5 seen, w6 port5 seen"},
		{"nobody has the address", "seen w4; find", "w4 nowhere"},
		{"a home that was seen stands", "seen w4 port5; find; seen w4 port6; find", "w4 port5 seen, w6 port5 seen"},
		{"a home that was seen goes with its port", "seen w4 port5; find; seen w4 port6; gone port5; find", "w4 port6 seen, w6 port6 seen"},
		{"a home that was heard stands", "heard w4 port6; find; heard w4 port5; find", "w4 port6 heard, w6 port6 heard"},
		{"a home that was heard is corrected", "heard w4 port6; find; seen w4 port9; find", "w4 port9 seen, w6 port9 seen"},
		{"a home that was heard is confirmed", "heard w4 port6; find; seen w4 port6; find", "w4 port6 seen, w6 port6 seen"},
		{"a home that was heard stays when the address is unknown", "heard w4 port6; find; unknown w4; find", "w4 port6 heard, w6 port6 heard"},
		{"a home that was seen counts as heard to the next agent", "seen w4 port6; find; restart; unknown w4; find", "w4 port6 heard, w6 port6 heard"},
		{"an earlier agent believed the bridge", "heard w4 port6; find; restart; seen w4 port9; find; seen w4 port5; find", "w4 port9 seen, w6 port9 seen"},
		{"the neighbour's port", "seen f4 port6; find; heard w4 port6; find", "f4 port6 seen, w4 nowhere"},
		{"the neighbour's port, which is heard itself", "heard f4 port6; find; heard w4 port6; find", "f4 port6 heard, w4 nowhere"},
		{"the neighbour's port, then its own", "heard f4 port6; find; heard w4 port6; find; heard w4 port9; find", "f4 port6 heard, w4 port9 heard, w6 port9 heard"},
		{"two at one port", "heard f4 port6; heard w4 port6; find", "f4 nowhere, w4 nowhere"},
		{"two at one port, and one is seen", "heard f4 port6; heard w4 port6; find; seen f4 port6; find", "f4 port6 seen, w4 nowhere"},
		{"an interface may be that of two", "seen f4 veth5; seen w4 veth5; find", "f4 veth5 seen, w4 veth5 seen, w6 veth5 seen"},
		{"all of a pod is at its seen address", "heard w4 port6; seen w6 port9; find", "w4 port9 seen, w6 port9 seen"},
		{"the neighbour has both", "seen f4 port6; find; seen w4 port6 port9; find", "f4 port6 seen, w4 port9 seen, w6 port9 seen"},
		{"the neighbour has both at the first look", "seen f4 port6; seen w4 port6 port9; find", "f4 nowhere, w4 port9 seen, w6 port9 seen"},
		{"the neighbour has both and the pod is not there", "seen f4 port6; find; seen w4 port6; find", "f4 port6 seen, w4 nowhere"},
		{"the neighbour hides its own", "seen w4 port6 port9; find", "w4 nowhere"},
		{"the neighbour hides its own and the pod was known", "heard w4 port9; find; seen w4 port6 port9; find", "w4 port9 seen, w6 port9 seen"},
	} {
		n := newNode()
		for step := range strings.SplitSeq(test.steps, "; ") {
			n.do(step)
		}
		if got := n.String(); got != test.want {
			t.Errorf("%s: %s, want %s", test.what, got, test.want)
		}
	}
}

// TestNextPodHasItsOwnHome: a home does not outlive its pod, known before or recovered.
func TestNextPodHasItsOwnHome(t *testing.T) {
	for _, restart := range []string{"find", "restart"} {
		n := newNode()
		n.do("seen w4 port5")
		n.find()
		n.do(restart)
		n.pods[2].UID = "next"
		n.do("seen w4 port6")
		n.find()
		if got := n.String(); got != "w4 port6 seen, w6 port6 seen" {
			t.Errorf("after %s: %s", restart, got)
		}
	}
}

// TestRandomHomes holds random changes of links against the promises of FindHomes.
func TestRandomHomes(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		pick := func(of ...string) string { return of[r.IntN(len(of))] }
		n, said := newNode(), map[netip.Addr]map[link.Home]bool{}
		for range 30 {
			switch r.IntN(6) {
			case 0:
				n.do(pick("restart", "unknown w4", "unknown f4", "unknown w6"))
			case 1:
				port := pick("port5", "port6", "port9")
				n.gone[port] = !n.gone[port]
			default:
				n.do(pick("seen ", "heard ") + pick("w4", "w6", "f4") + pick("", " port5", " port6", " port5 port6", " port9", " veth5"))
			}
			for a, found := range n.found {
				for _, f := range found {
					if said[a] == nil {
						said[a] = map[link.Home]bool{}
					}
					said[a][f.Home] = true
				}
			}
			before := n.last
			n.find()
			ports := map[string]policy.PodRef{}
			for a, h := range n.last {
				var claimed bool
				for _, p := range n.pods {
					claimed = claimed || p.PodRef == h.Pod && !p.HostNetwork && slices.ContainsFunc(p.IPs, func(o netip.Addr) bool { return said[o][h.Home] })
				}
				if !h.Nowhere() && !claimed {
					t.Fatalf("seed %d: nobody said that %s is at %v", seed, a, h.Home)
				}
				if other, taken := ports[h.Port]; h.Bridged() && taken && other != h.Pod {
					t.Fatalf("seed %d: %s is the port of %s and %s", seed, h.Port, other, h.Pod)
				}
				ports[h.Port] = h.Pod
				if b := before[a]; b.Evidence == link.Seen && !b.Nowhere() && !n.gone[b.Port] && b != h {
					t.Fatalf("seed %d: %s was seen at %v, and is at %v", seed, a, b.Home, h.Home)
				}
			}
		}
	}
}
