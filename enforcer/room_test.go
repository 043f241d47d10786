package enforcer

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

func TestAFullSetEndsTheSoonestFirst(t *testing.T) {
	w, p := web(t)
	a := addr("198.18.0.0")
	first := a
	batch := func(ttl time.Duration, n int) (last netip.Addr) {
		t.Helper()
		g := policy.Grant{Pod: p.PodRef, Name: dns("www.example.org"), Ports: https, Deadline: w.clock.now().Add(ttl)}
		for range n {
			g.Addrs, last, a = append(g.Addrs, a), a, a.Next()
		}
		if err := w.e.Grant(context.Background(), []policy.Grant{g}); err != nil {
			t.Fatal(err)
		}
		return last
	}
	early := batch(time.Minute, 2000)
	batch(time.Hour, setMax-2000)
	if s := w.e.Status(); s.Evicted != 0 || s.Grants != setMax {
		t.Fatalf("up to the bound nothing ends: %+v", s)
	}
	open := flow("10.1.0.5:1001", netip.AddrPortFrom(first, 443).String())
	w.flows.Track(open)
	last := batch(2*time.Minute, 1)
	s := w.e.Status()
	if s.Evicted == 0 || s.Evicted > 2000 || s.Grants > setMax {
		t.Errorf("over the bound: %d evicted, %d grants", s.Evicted, s.Grants)
	}
	es := w.entries(p, https, iptables.IPv4)
	if len(es) != s.Grants {
		t.Errorf("%d entries in the kernel, %d grants", len(es), s.Grants)
	}
	here := map[netip.Addr]bool{}
	for _, e := range es {
		here[e.Addr] = true
	}
	for a := early.Next(); a != last; a = a.Next() {
		if !here[a] {
			t.Fatalf("%s, which ends late, is evicted", a)
		}
	}
	if !here[last] || s.Evicted != 1+setMax/64 {
		t.Errorf("the newest is there: %v; %d evicted", here[last], s.Evicted)
	}
	if !w.admitted(open) {
		t.Error("eviction cut a connection")
	}
	// The place in the queue of what was evicted and comes back is not used twice.
	w.answer(p, "www.example.org", 60, first.String())
	w.expire(2 * time.Hour)
	if n := w.e.Status().Grants; n != 0 {
		t.Errorf("%d grants after all deadlines", n)
	}
}

// Against a twin that sorts everything: the soonest to end, without what changes.
func TestSoonest(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		s := &grantSet{entries: map[netip.Addr]*grant{}}
		st := &staged{set: s}
		var free []moment
		a := addr("198.18.0.0")
		for range r.IntN(60) {
			g := &grant{reasons: []reason{{until: moment(r.IntN(20))}, {until: moment(r.IntN(20))}}}
			s.entries[a] = g
			if r.IntN(4) == 0 {
				st.append(change{a, g})
			} else {
				free = append(free, g.until())
			}
			a = a.Next()
		}
		slices.Sort(free)
		n := 1 + r.IntN(70)
		var got []moment
		for _, a := range st.soonest(n) {
			if st.find(a) != nil {
				t.Fatalf("%s is to change, and ends", a)
			}
			got = append(got, s.entries[a].until())
		}
		slices.Sort(got)
		if want := free[:min(n, len(free))]; !slices.Equal(got, want) {
			t.Fatalf("%d of %d: %v, want %v", n, len(s.entries), got, want)
		}
	}
}

// A kernel that refuses to end grants gets no more of them either.
func TestNoRoomIsAnError(t *testing.T) {
	w, p := web(t)
	full := policy.Grant{Pod: p.PodRef, Name: dns("www.example.org"), Ports: https, Deadline: w.clock.now().Add(time.Hour)}
	a := addr("198.18.0.0")
	for range setMax {
		full.Addrs, a = append(full.Addrs, a), a.Next()
	}
	if err := w.e.Grant(context.Background(), []policy.Grant{full}); err != nil {
		t.Fatal(err)
	}
	w.seams.forget(1, false)
	g := w.grants(w.snap, p.PodRef, "www.example.org", 60, a.String())
	if err := w.e.Grant(context.Background(), g); !errors.Is(err, errInjected) || w.left(p, https, a.String()) != 0 {
		t.Errorf("without room: %v", err)
	}
	w.seams.forget(0, false)
	if err := w.e.Grant(context.Background(), g); err != nil || !w.e.Covered(g) {
		t.Errorf("with room: %v", err)
	}
	if n := w.e.Status().Grants; n > setMax {
		t.Errorf("%d grants", n)
	}
}

func TestABlindBridgeIsSaid(t *testing.T) {
	w := newWorld(t)
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "br0", Port: "port5"})
	w.links.SetBlind(true)
	web := pod("web", "10.1.0.5", "allow")
	w.apply([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
	if got := w.e.Status().Unseen; len(got) != 1 || got[0] != addr("10.1.0.5") {
		t.Errorf("unseen %v", got)
	}
	// What leaves the bridge has no port that iptables could see.
	w.answer(web, "www.example.org", 60, "192.0.2.1")
	p := packet{Src: addr("10.1.0.5"), Dst: addr("192.0.2.1"), Protocol: uint8(policy.TCP), DstPort: 443, Iface: "br0"}
	if !w.passes(&p) {
		t.Error("an allowed packet that leaves the bridge is dropped")
	}
	p = packet{Src: addr("10.1.0.5"), Dst: addr("192.0.2.1"), Protocol: uint8(policy.TCP), DstPort: 80, Iface: "br0"}
	if w.passes(&p) {
		t.Error("a packet that nothing allows passes")
	}
	p = packet{Src: addr("10.1.0.5"), Dst: addr("192.0.2.1"), Protocol: uint8(policy.TCP), DstPort: 443, Iface: "eth0"}
	if w.passes(&p) {
		t.Error("the pod's source passes on another interface")
	}
	w.links.SetBlind(false)
	w.reconcile()
	if got := w.e.Status().Unseen; len(got) != 0 || w.at("10.1.0.5", "br0", "port6") {
		t.Errorf("after netfilter sees again: unseen %v", got)
	}
}
