package enforcer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// packetGrace is after how long the second look at connections is due.
const packetGrace = time.Second

// recheck lets the agent take a second look, if that is due.
func (w *world) recheck() { w.e.recheckDue(context.Background()) }

// loss is a change by which a pod loses what one of its connections goes to.
type loss struct {
	what, lost string // whither web's connection goes
	kept       string // and one that goes on, "": the pod is gone
	change     func(w *world)
	web        []string // what selects it then
}

// losses are of a peer and of a name.
func losses() []loss {
	const name, peer = "192.0.2.3:443", "10.2.0.1:80"
	return []loss{
		{"a peer goes", peer, name, func(w *world) { w.remote = nil }, []string{"allow", "more", "np"}},
		{"a peer moves", peer, name, func(w *world) { w.remote = []*policy.Pod{far("db", "10.2.0.2", "db")} }, []string{"allow", "more", "np"}},
		{"a NetworkPolicy goes", peer, name, func(w *world) { w.netpols = w.netpols[1:] }, []string{"allow", "more", "np"}},
		{"a policy goes", name, peer, func(*world) {}, []string{"allow", "np"}},
		{"the pod goes", name, "", func(*world) {}, nil},
	}
}

// losing is a world with the pods web and other, and connections: what web loses, what it keeps, and what of the
// other pod no grant covers any more.
type losing struct {
	*world
	pods              []policy.Pod
	lost, kept, ended conntrack.Flow
}

func newLosing(t *testing.T) *losing {
	l := &losing{world: newWorld(t), pods: []policy.Pod{pod("web", "10.1.0.5", "allow", "more", "np"), pod("other", "10.1.0.6", "allow", "more", "np2")}}
	l.remote = []*policy.Pod{far("db", "10.2.0.1", "db")}
	l.netpols = []*networkingv1.NetworkPolicy{netpol("np", "tcp/80 db"), netpol("np2", "tcp/81 db")}
	l.bring()
	l.answer(l.pods[1], "www.example.org", 1, "192.0.2.4")
	l.expire(time.Hour)
	l.answer(l.pods[0], "mail.test", 60, "192.0.2.3")
	return l
}

// next is the snapshot of the pods, and bring brings it into force.
func (l *losing) next() *policy.Snapshot {
	return l.compile(l.pods, pol("allow", "tcp/443 www.example.org"), pol("more", "tcp/443 mail.test"))
}

func (l *losing) bring() {
	l.t.Helper()
	fatal.If(l.t, l.rollOut(l.next()))
}

// change makes the change of a loss, which next has.
func (l *losing) change(by loss) {
	by.change(l.world)
	if l.pods = l.pods[1:]; by.kept != "" {
		l.pods = append(l.pods, pod("web", "10.1.0.5", by.web...))
	}
}

// opens opens the connections.
func (l *losing) opens(by loss) {
	l.lost, l.ended = l.track("10.1.0.5:1", by.lost), l.track("10.1.0.6:3", "192.0.2.4:443")
	if l.kept = l.ended; by.kept != "" {
		l.kept = l.track("10.1.0.5:2", by.kept)
	}
}

// isCut asserts that what is lost is cut alone, and that nothing is left to look for.
func (l *losing) isCut(when string) {
	l.t.Helper()
	if l.admitted(l.lost) || !l.admitted(l.kept) || !l.admitted(l.ended) {
		l.t.Errorf("%s: admitted what is not allowed %v, what is %v, another pod's %v", when, l.admitted(l.lost), l.admitted(l.kept), l.admitted(l.ended))
	}
	l.clock.Pass(packetGrace)
	l.recheck()
	if left, err := l.e.tablesInForce().ListRecheck(context.Background()); err != nil || len(left) > 0 {
		l.t.Errorf("%s: owed are %v, %v", when, left, err)
	}
}

// TestAPacketUnderWayIsCut has connections appear, admitted, when the agent has listed
// all of them: their first packets were judged before the change.
func TestAPacketUnderWayIsCut(t *testing.T) {
	t.Parallel()
	for _, by := range losses() {
		for _, how := range []string{"in peace", "another change is prepared", "the agent dies"} {
			l := newLosing(t)
			l.change(by)
			l.bring()
			l.opens(by)
			l.clock.Pass(packetGrace)
			switch how {
			case "another change is prepared":
				l.prepare(l.compile(append(l.pods, pod("new", "10.1.0.9", "allow"))))
				if l.recheck(); !l.admitted(l.lost) {
					t.Errorf("%s, %s: judged while two snapshots count", by.what, how)
				}
				l.bring()
			case "the agent dies":
				l.restart()
				l.bring()
			}
			l.recheck()
			l.isCut(by.what + ", " + how)
		}
	}
}

// TestAFailedFirstRollOutLeavesNothingUncut: whichever step of a successor's first roll-out fails, the next try cuts what
// is not allowed any more. The failed one may have written over what the agent before it left.
func TestAFailedFirstRollOutLeavesNothingUncut(t *testing.T) {
	t.Parallel()
	for _, by := range losses() {
		var l *losing
		eachFault(t, 2, false, func() (*world, func() error) {
			l = newLosing(t)
			l.opens(by)
			l.change(by)
			l.restart()
			return l.world, func() error { return l.rollOut(l.next()) }
		}, func(f fault) {
			l.bring()
			l.isCut(by.what + ", " + f.when)
		})
	}
}

// TestASetThatStaysHoldsUpNoCut: a set that cannot be destroyed fails each commit, and connections are cut, also those
// that were under way.
func TestASetThatStaysHoldsUpNoCut(t *testing.T) {
	t.Parallel()
	l, by := newLosing(t), losses()[4]
	l.opens(by)
	l.change(by)
	l.seams.refuse = "destroy NG4-" + dataplane.PodID(pod("web", "").PodRef) + "-ports"
	if err := l.rollOut(l.next()); !errors.Is(err, errInjected) {
		t.Fatal("the set is destroyed:", err)
	}
	if l.admitted(l.lost) {
		t.Error("what was open is not cut at once")
	}
	late := l.track("10.1.0.5:9", by.lost)
	l.clock.Pass(packetGrace)
	l.recheck()
	if l.admitted(late) || !l.admitted(l.ended) {
		t.Errorf("admitted what was under way %v, another pod's %v", l.admitted(late), l.admitted(l.ended))
	}
}

// TestNextPodKeepsItsConnections has an address change hands: of what appears after the
// cut only the next pod's own connections stay.
func TestNextPodKeepsItsConnections(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		w := newWorld(t)
		last, next := pod("web", "10.1.0.5", "allow", "more"), pod("heir", "10.1.0.5", "allow")
		allow, more := pol("allow", "tcp/443 www.example.org"), pol("more", "tcp/443 mail.test")
		w.apply([]policy.Pod{last}, allow, more)
		w.answer(last, "mail.test", 60, "192.0.2.3")
		if restart {
			w.restart()
		}
		w.apply([]policy.Pod{next}, allow, more)
		w.answer(next, "www.example.org", 60, "192.0.2.4")
		late, own := w.track("10.1.0.5:1", "192.0.2.3:443"), w.track("10.1.0.5:2", "192.0.2.4:443")
		w.clock.Pass(packetGrace)
		w.recheck()
		if w.admitted(late) || !w.admitted(own) {
			t.Errorf("restart %v: admitted what the last pod sent %v, what the next one opened %v", restart, w.admitted(late), w.admitted(own))
		}
	}
}

// dies lets the agent die before the nth step of a roll-out, and tells whether there
// is such a step.
func (w *world) dies(n int, s *policy.Snapshot) (died bool) {
	steps := 0
	w.seams.before = func(step string) {
		if steps++; steps == n {
			panic(w)
		}
	}
	defer func() {
		w.seams.before = nil
		if died = recover() == any(w); died {
			w.restart()
		}
	}()
	fatal.If(w.t, w.rollOut(s))
	return false
}

// TestAnAgentThatDiesLeavesNothingUncut: whenever it dies, the next one cuts what is not
// allowed any more, and no connection of whom that is not about, though it knows nothing
// of the grants that have ended.
func TestAnAgentThatDiesLeavesNothingUncut(t *testing.T) {
	t.Parallel()
	for _, by := range losses() {
		for _, follows := range []bool{false, true} { // the agent that dies has followed another
			n := 1
			for died := true; died && n < maxSteps; n++ {
				l := newLosing(t)
				l.opens(by)
				if l.change(by); follows {
					l.restart()
				}
				died = l.dies(n, l.next())
				l.bring()
				l.isCut(fmt.Sprintf("%s, follows %t, and the agent dies before step %d", by.what, follows, n))
			}
			if n < 5 {
				t.Errorf("%s: only %d steps", by.what, n)
			}
		}
	}
}

// TestOffloadedConnectionsAreCut: on a kernel that does not remove connections from flow tables, a
// connection of TCP that no policy allows any more is reset by a segment that comes in from its pod; the
// status names it until it is gone.
func TestOffloadedConnectionsAreCut(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"192.0.2.3:443", "[2001:db8::3]:443"} {
		w := newNode(t)
		from := map[bool]netip.Addr{true: addr("10.1.0.5"), false: addr("fd00:1::5")}[addrPort(to).Addr().Is4()]
		w.links.SetHome(from, link.Home{Iface: "br0", Port: "port5"})
		w.flows.SetOld(true)
		var sent []string
		w.inject = func(iface string, packet []byte) error {
			header, pseudo := 20, slices.Concat(packet[12:20], []byte{0, 6, 0, 20})
			if from.Is6() {
				header, pseudo = 40, slices.Concat(packet[8:40], []byte{0, 6, 0, 20})
			} else if checksum(packet[:20]) != 0 {
				t.Error("a wrong checksum of the header")
			}
			tcp := packet[header:]
			if len(tcp) != 20 || checksum(append(pseudo, tcp...)) != 0 {
				t.Errorf("a segment %x with a wrong checksum", tcp)
			}
			sent = append(sent, fmt.Sprintf("%s %x %d %d", iface, tcp[13], uint16(tcp[0])<<8|uint16(tcp[1]), uint16(tcp[2])<<8|uint16(tcp[3])))
			return nil
		}
		w.restart()
		web := pod("web", from.String(), "allow", "more")
		w.apply([]policy.Pod{web}, pol("allow", "tcp/80 www.example.org"), pol("more", "tcp/443 mail.test"))
		w.answer(web, "mail.test", 60, addrPort(to).Addr().String())
		f := w.track(netip.AddrPortFrom(from, 4000).String(), to)
		w.flows.Offload(f, true)
		w.apply([]policy.Pod{web}, pol("allow", "tcp/80 www.example.org"))
		if w.admitted(f) || !slices.Equal(sent, []string{"port5 4 4000 443"}) {
			t.Errorf("admitted: %v, sent %q", w.admitted(f), sent)
		}
		if got, want := w.e.Status().NotCut, fmt.Sprintf("tcp %s to %s", f.Src, f.Dst); !slices.Equal(got, []string{want}) {
			t.Errorf("not cut are %q, want %q", got, want)
		}
		w.flows.Offload(f, false)
		w.clock.Pass(packetGrace)
		w.recheck()
		if got := w.e.Status().NotCut; len(got) > 0 || len(sent) != 1 {
			t.Errorf("not cut are %q, sent %q", got, sent)
		}
	}
}

// TestFlowTablesOfPodsAreReported: flow tables with an interface of an isolated pod.
func TestFlowTablesOfPodsAreReported(t *testing.T) {
	t.Parallel()
	w := newNode(t)
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	w.links.SetHome(addr("10.1.0.6"), link.Home{Iface: "br0", Port: "port6"})
	w.links.SetHome(addr("10.1.0.7"), link.Home{Iface: "veth7"})
	w.restart()
	w.apply([]policy.Pod{pod("a", "10.1.0.5", "allow"), pod("b", "10.1.0.6", "allow"), pod("c", "10.1.0.7")}, pol("allow", "tcp/80 www.example.org"))
	table := nft.ID{Family: "inet", Name: "router"}
	for _, test := range []struct {
		devices []string
		want    []string
	}{
		{nil, nil}, {[]string{"eth0"}, nil}, {[]string{"eth0", "veth7"}, nil},
		{[]string{"eth0", "veth5"}, []string{"10.1.0.5"}}, {[]string{"veth*"}, []string{"10.1.0.5"}},
		{[]string{"port6"}, []string{"10.1.0.6"}}, {[]string{"br0", "veth5"}, []string{"10.1.0.5", "10.1.0.6"}},
	} {
		w.e.k.Tables.FakeFlowtables(nft.Flowtable{ID: table, Name: "fast", Devices: test.devices})
		var got []string
		of := w.e.Status().Offloading
		for _, a := range slices.SortedFunc(maps.Keys(of), netip.Addr.Compare) {
			if got = append(got, a.String()); of[a] != "inet router fast" {
				t.Errorf("%s is in %q", a, of[a])
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("devices %q: %q, want %q", test.devices, got, test.want)
		}
	}
	fatal.If(t, w.e.Cleanup(context.Background()))
}

// TestConnectionsOutliveTheirGrants for as long as a policy in force allows a name that
// opened their address.
func TestConnectionsOutliveTheirGrants(t *testing.T) {
	t.Parallel()
	one, two := pol("one", "tcp/443 www.example.org"), pol("two", "tcp/443 *.example.net")
	more, other := pol("one", "tcp/443,tcp/8443 www.example.org"), pol("one", "tcp/8443 www.example.org")
	type policies = []*v1alpha1.FQDNNetworkPolicy
	type answers = map[string]uint32 // TTLs by name
	for what, test := range map[string]struct {
		first    policies
		answers  []answers // 200 s apart; the connection is opened after the first
		then     []policies
		admitted []bool
	}{
		"its policy goes":            {policies{one, two}, []answers{{"www.example.org": 60}}, []policies{{one, two}, {two}}, []bool{true, false}},
		"another policy goes":        {policies{one, two}, []answers{{"www.example.net": 60}}, []policies{{one, two}, {two}}, []bool{true, true}},
		"its rule gets another port": {policies{one}, []answers{{"www.example.org": 60}}, []policies{{more}, {other}}, []bool{true, false}},
		"each reason counts":         {policies{one, two}, []answers{{"www.example.org": 60}, {"www.example.net": 60}}, []policies{{one}, {two}}, []bool{true, false}},
		"one ends, another holds on": {policies{one, two}, []answers{{"www.example.org": 60, "www.example.net": 600}, {"ftp.example.net": 600}}, []policies{{one}}, []bool{true}},
	} {
		w := newWorld(t)
		web := pod("web", "10.1.0.5", "one", "two")
		w.apply([]policy.Pod{web}, test.first...)
		var f conntrack.Flow
		for i, names := range test.answers {
			for name, ttl := range names {
				w.answer(web, name, ttl, "192.0.2.1")
			}
			if i == 0 {
				f = w.track("10.1.0.5:1001", "192.0.2.1:443")
			}
			w.expire(200 * time.Second)
		}
		for i, policies := range test.then {
			w.apply([]policy.Pod{web}, policies...)
			diff.Equal(t, test.admitted[i], w.admitted(f), what, "step", i, "the connection is admitted")
		}
	}
}

// countedLinks counts how often the node's addresses are read.
type countedLinks struct {
	link.Interface
	readings int
}

func (c *countedLinks) Addrs() ([]netip.Addr, error) {
	c.readings++
	return c.Interface.Addrs()
}

// TestManyTranslatedConnectionsAreJudgedTogether: the node's addresses are read once for all connections that are
// led to another address than was dialled.
func TestManyTranslatedConnectionsAreJudgedTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	links := &countedLinks{Interface: w.links}
	w.e.k.Links = links
	web := pod("web", "10.1.0.5", "allow")
	w.apply([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
	w.answer(web, "www.example.org", 60, "192.0.2.1")
	for i := range 100 {
		f := flow(fmt.Sprintf("10.1.0.5:%d", 1000+i), "192.0.2.1:443")
		f.Peer = netip.MustParseAddrPort("198.51.100.1:443")
		w.tracked(f)
	}
	before := links.readings
	w.apply([]policy.Pod{web}, pol("allow", "tcp/8443 www.example.org"))
	diff.Equal(t, 1, links.readings-before, "readings of the node's addresses for 100 connections")
}
