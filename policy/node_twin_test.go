package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/policytest"
)

// nodeTwinRule is a rule for the node as the twin reads it.
type nodeTwinRule struct {
	ifaces        string // words, "" for the node's
	deny          bool
	peers         string // addresses, "" for everywhere
	port          int    // of TCP, 0 for every port of every protocol
	audit, broken bool
}

// nodeTwin is a node with the addresses n and m, of which it has one pod. The lists are in the order of the traffics,
// those of what arrives first; BeforeNAT has one.
type nodeTwin struct {
	ifaces    string
	lists     map[string][]nodeTwinRule
	failsafes []nodeTwinSafe
}

// nodeTwinSafe is a failsafe for one address and port, 0 for all.
type nodeTwinSafe struct {
	in, out, yields bool
	addr            string
	port            int
}

// nodeTwinFlow is a connection over TCP by its words.
type nodeTwinFlow struct {
	in, out, source, dialled, reached string
	dialPort, port                    int
}

// The addresses of a world: the node's, its pod's, another node's pod's, and others.
const (
	twinNode, twinPod = "192.0.2.1", "10.1.0.5"
	twinService       = "10.96.0.7"
)

var twinOthers = []string{"10.1.1.5", "198.51.100.1", "198.51.100.2"}

// first returns the first rule of a list that hits a packet.
func (w *nodeTwin) first(list, iface, peer string, port int, would bool) (is, deny bool) {
	for _, r := range w.lists[list] {
		on := strings.Fields(r.ifaces)
		if r.ifaces == "" {
			on = strings.Fields(w.ifaces)
		}
		named := false
		for _, name := range on {
			named = named || name == "*" || name == iface || strings.HasSuffix(name, "*") && strings.HasPrefix(iface, name[:len(name)-1])
		}
		switch {
		case r.audit && !would, !named:
		case r.broken && r.deny:
			return true, true
		case r.broken:
		case (r.peers == "" || slices.Contains(strings.Fields(r.peers), peer)) && (r.port == 0 || r.port == port):
			return true, r.deny
		}
	}
	return false, false
}

// safe tells whether a failsafe has a peer on a port, or with answer whatever the port is.
func (w *nodeTwin) safe(in, answer bool, peer string, port int, would bool) bool {
	for _, s := range w.failsafes {
		listed := false
		for _, list := range []string{"Local out", "Untracked out"} {
			for _, r := range w.lists[list] {
				listed = listed || !r.broken && (would || !r.audit) && slices.Contains(strings.Fields(r.peers), peer)
			}
		}
		if (in && s.in || !in && s.out) && s.addr == peer && (s.port == 0 || !answer && s.port == port) && !(s.yields && listed) {
			return true
		}
	}
	return false
}

// passes says what EvaluateNode is to say.
func (w *nodeTwin) passes(f *nodeTwinFlow, would bool) bool {
	if f.in == "lo" || f.out == "lo" {
		return true
	}
	if f.in == "" {
		if f.dialled != twinPod && f.dialled != twinNode && !w.safe(false, false, f.dialled, f.dialPort, would) {
			if is, deny := w.first("Untracked out", f.out, f.dialled, f.dialPort, would); is && (deny || !w.safe(true, true, f.dialled, 0, would)) {
				return !deny
			}
		}
		if f.reached == twinNode || w.safe(false, false, f.dialled, f.dialPort, would) || w.safe(false, false, f.reached, f.port, would) {
			return true
		}
		_, deny := w.first("Local out", f.out, f.reached, f.port, would)
		return !deny
	}
	safe := f.dialled == twinNode && w.safe(true, false, f.source, f.dialPort, would)
	if f.dialled == twinNode && f.source != twinPod && !safe {
		if is, deny := w.first("Untracked in", f.in, f.source, f.dialPort, would); is && (deny || !w.safe(false, true, f.source, 0, would)) {
			return !deny
		}
	}
	if !safe {
		if is, deny := w.first("BeforeNAT in", f.in, f.source, f.dialPort, would); is {
			return !deny
		}
	}
	if f.out == "" {
		_, deny := w.first("Local in", f.in, f.source, f.port, would)
		return w.safe(true, false, f.source, f.port, would) || !deny
	}
	_, arriving := w.first("Forwarded in", f.in, f.source, f.port, would)
	_, leaving := w.first("Forwarded out", f.out, f.reached, f.port, would)
	return !arriving && !leaving
}

// view makes the twin's world that of the package.
func (w *nodeTwin) view() (*policy.View, *policy.Snapshot) {
	n := &policy.Node{Name: "n", Addrs: []netip.Addr{netip.MustParseAddr(twinNode)}, Interfaces: strings.Fields(w.ifaces)}
	for i, s := range w.failsafes {
		row := policy.Failsafe{Name: fmt.Sprint(i), In: s.in, Out: s.out, Yields: s.yields, Networks: networks(s.addr + "/32")}
		if s.port != 0 {
			row.Ports = []policy.PortRange{{Protocol: policy.TCP, First: uint16(s.port), Last: uint16(s.port)}}
		}
		n.Failsafes = append(n.Failsafes, row)
	}
	v, sets := &policy.View{Pod: policy.Pod{PodRef: policy.NodeRef("n"), IPs: policy.NodeSubjects}, Node: n, Traffic: &policy.TrafficRules{}}, map[string]*policy.PeerSet{}
	for t := range policy.Untracked + 1 {
		for _, in := range []bool{true, false} {
			of := v.Traffic.Of(t)
			list := &of.Egress
			if in {
				list = &of.Ingress
			}
			for _, r := range w.lists[listName(t, in)] {
				rule := &policy.Rule{Tier: policy.Admin, OfNode: policy.OfNode{Traffic: t}, Ingress: in, Ports: policy.AnyPort, Audit: r.audit, Broken: r.broken}
				if rule.Interfaces = strings.Fields(r.ifaces); r.ifaces == "" {
					rule.Interfaces = nil
				}
				if r.deny {
					rule.Action = policy.Deny
				}
				if r.port != 0 {
					rule.Ports = policy.PortSet(fmt.Sprint("tcp/", r.port))
				}
				if r.peers != "" {
					rule.Peer = policy.Peer{Kind: policy.PeerPods, Key: r.peers}
					sets[r.peers] = &policy.PeerSet{Peer: rule.Peer, Addrs: slices.SortedFunc(slices.Values(policytest.Addrs(r.peers)), netip.Addr.Compare)}
				}
				*list = append(*list, rule)
			}
		}
	}
	v.Rules.Admin = v.Traffic.Local.Egress
	pod := policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: "pod"}, IPs: policytest.Addrs(twinPod)}
	far := policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: "far"}, IPs: policytest.Addrs(twinOthers[0]), NodeName: "other"}
	s := policy.Snapshot{Views: []*policy.View{v}}
	for _, set := range sets {
		s.PeerSets = append(s.PeerSets, set)
	}
	slices.SortFunc(s.PeerSets, func(a, b *policy.PeerSet) int { return a.Peer.Compare(b.Peer) })
	return v, policy.NewSnapshot(s, []policy.Pod{pod, far}, map[netip.Addr]policy.PodRef{pod.IPs[0]: pod.PodRef, far.IPs[0]: far.PodRef})
}

func listName(t policy.Traffic, in bool) string {
	return t.String() + map[bool]string{true: " in", false: " out"}[in]
}

// randomNode draws a node, and flow a connection of it.
func randomNode(r *rand.Rand) *nodeTwin {
	one := func(all ...string) string { return all[r.IntN(len(all))] }
	w := &nodeTwin{ifaces: one("eth0", "eth0 eth1", "*", "", "wl*"), lists: map[string][]nodeTwinRule{}}
	peers := append([]string{twinPod, twinNode}, twinOthers...)
	for t := range policy.Untracked + 1 {
		for _, in := range []bool{true, false} {
			if t == policy.BeforeNAT && !in || r.IntN(3) == 0 {
				continue
			}
			for range r.IntN(4) {
				of := nodeTwinRule{ifaces: one("", "", "eth0", "eth*", "veth1 wl0", "*"), deny: r.IntN(2) == 0, port: []int{0, 0, 80, 443}[r.IntN(4)], audit: r.IntN(6) == 0, broken: r.IntN(12) == 0}
				if r.IntN(2) == 0 {
					of.peers = one(peers...) + " " + one(peers...)
				}
				w.lists[listName(t, in)] = append(w.lists[listName(t, in)], of)
			}
		}
	}
	for range r.IntN(4) {
		w.failsafes = append(w.failsafes, nodeTwinSafe{r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0, one(append(peers, twinService)...), []int{0, 80, 443}[r.IntN(3)]})
	}
	return w
}

func (w *nodeTwin) flow(r *rand.Rand) *nodeTwinFlow {
	one := func(all ...string) string { return all[r.IntN(len(all))] }
	f := &nodeTwinFlow{in: one("", "eth0", "eth1", "wl0", "veth1", "lo"), source: one(append(twinOthers, twinPod)...), reached: one(append(twinOthers, twinPod, twinNode)...), port: []int{80, 443}[r.IntN(2)]}
	if f.out = one("eth0", "eth1", "wl0", "veth1", "lo"); f.in != "" && f.reached == twinNode {
		f.out = ""
	}
	if f.dialled, f.dialPort = f.reached, f.port; r.IntN(3) == 0 {
		f.dialled, f.dialPort = one(twinService, twinNode), []int{80, 443}[r.IntN(2)]
	}
	return f
}

// TestEvaluateNodeEqualsItsTwin: random rules for the node of every traffic decide random flows as a second reading of
// the design says.
func TestEvaluateNodeEqualsItsTwin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r, seen := rand.New(rand.NewPCG(seed, 0)), map[string]int{}
	for range 3000 {
		w := randomNode(r)
		v, in := w.view()
		for range 30 {
			f, would := w.flow(r), r.IntN(4) == 0
			at := func(a string, port int) netip.AddrPort {
				return netip.AddrPortFrom(netip.MustParseAddr(a), uint16(port))
			}
			of := policy.Flow{Protocol: policy.TCP, In: f.in, Out: f.out, Source: netip.MustParseAddr(f.source), Dialled: at(f.dialled, f.dialPort), Reached: at(f.reached, f.port), Would: would}
			got, by := policy.EvaluateNode(v, in, &of)
			if want := w.passes(f, would); got != want {
				t.Fatalf("%+v of %+v: %t by %+v", *f, *w, got, by)
			}
			if any, r := policy.EvaluateAny(v, in, of); any != got || r != by || by != nil && !slices.ContainsFunc(policy.Steps(v, in, &of), func(s policy.Step) bool { return s.Rule == by && s.Asked }) {
				t.Fatalf("%+v of %+v: %+v is not among the steps, or not %+v", *f, *w, by, r)
			}
			if by != nil {
				seen[fmt.Sprint(by.Traffic, by.Ingress, got)]++
			}
			if f.in == "" && f.out != "lo" && len(w.lists["Untracked out"]) == 0 {
				if alone, _ := policy.Evaluate(v, in, &of); alone != got {
					t.Fatalf("%+v of %+v: Evaluate says %t", *f, *w, alone)
				}
			}
		}
	}
	for _, want := range []policy.Traffic{policy.Local, policy.Forwarded, policy.Untracked} {
		for _, in := range []bool{true, false} {
			for _, passed := range []bool{true, false} {
				if n := seen[fmt.Sprint(want, in, passed)]; n < 50 && !(want == policy.Forwarded && in && passed) {
					t.Errorf("%s in=%t %t: %d flows", want, in, passed, n)
				}
			}
		}
	}
}
