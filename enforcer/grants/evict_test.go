package grants

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

func TestAFullSetEndsTheSoonestFirst(t *testing.T) {
	w, p := web(t)
	a := addr("198.18.0.0")
	first := a
	batch := func(ttl time.Duration, n int) (last netip.Addr) {
		t.Helper()
		g := policy.Grant{Pod: p.PodRef, Name: dns("www.example.org"), Ports: https, Deadline: w.Now().Add(ttl)}
		for range n {
			g.Addrs, last, a = append(g.Addrs, a), a, a.Next()
		}
		fatal.If(t, granttest.Grant(context.Background(), w.table, []policy.Grant{g}))
		return last
	}
	early := batch(time.Minute, 2000)
	batch(time.Hour, DefaultPerPod-2000)
	if w.table.Figures().Evicted != 0 || w.table.Figures().Grants != DefaultPerPod {
		t.Fatalf("up to the bound nothing ends: %d evicted, %d grants", w.table.Figures().Evicted, w.table.Figures().Grants)
	}
	last := batch(2*time.Minute, 1)
	evicted, count := w.table.Figures().Evicted, w.table.Figures().Grants
	if evicted == 0 || evicted > 2000 || count > DefaultPerPod {
		t.Errorf("over the bound: %d evicted, %d grants", evicted, count)
	}
	es := w.entries(p, false)
	diff.Equal(t, count, len(es), "entries in the kernel, as many as grants")
	here := map[netip.Addr]bool{}
	for _, e := range es {
		here[e.Addr] = true
	}
	for a := early.Next(); a != last; a = a.Next() {
		if !here[a] {
			t.Fatalf("%s, which ends late, is evicted", a)
		}
	}
	if !here[last] || evicted != 1+DefaultPerPod/spareShare {
		t.Errorf("the newest is there: %v; %d evicted", here[last], evicted)
	}
	// The place in the queue of what was evicted and comes back is not used twice.
	w.answer(p, "www.example.org", 60, first.String())
	w.expire(2 * time.Hour)
	diff.Equal(t, 0, w.table.Figures().Grants, "grants after all deadlines")
}

// A kernel that refuses to end grants gets no more of them either.
func TestNoRoomIsAnError(t *testing.T) {
	w, p := web(t)
	full := policy.Grant{Pod: p.PodRef, Name: dns("www.example.org"), Ports: https, Deadline: w.Now().Add(time.Hour)}
	a := addr("198.18.0.0")
	for range DefaultPerPod {
		full.Addrs, a = append(full.Addrs, a), a.Next()
	}
	fatal.If(t, granttest.Grant(context.Background(), w.table, []policy.Grant{full}))
	w.sets.fail(1, false)
	g := w.grants(p.PodRef, "www.example.org", 60, a.String())
	if err := granttest.Grant(context.Background(), w.table, g); !errors.Is(err, errInjected) || w.stays(p, a.String()) != 0 {
		t.Errorf("without room: %v", err)
	}
	w.sets.instead = nil
	if err := granttest.Grant(context.Background(), w.table, g); err != nil || !w.table.Covered(g) {
		t.Errorf("with room: %v", err)
	}
	if n := w.table.Figures().Grants; n > DefaultPerPod {
		t.Errorf("%d grants", n)
	}
}

// A pod that asks for ever new names ends its grants long before their deadlines.
func TestPlacesOfEndedGrantsAreDropped(t *testing.T) {
	w, p := web(t)
	g := policy.Grant{Pod: p.PodRef, Name: dns("www.example.org"), Ports: https, Deadline: w.Now().Add(time.Hour)}
	a, all := addr("198.18.0.0"), 0
	for range 10 * DefaultPerPod / 64 {
		for g.Addrs = nil; len(g.Addrs) < 64; a = a.Next() {
			g.Addrs = append(g.Addrs, a)
		}
		fatal.If(t, granttest.Grant(context.Background(), w.table, []policy.Grant{g}))
		all += len(g.Addrs)
	}
	if n := w.table.Figures().Grants; n > DefaultPerPod || int(w.table.Figures().Evicted) != all-n {
		t.Fatalf("%d grants, %d evicted of %d", n, w.table.Figures().Evicted, all)
	}
	places := 0
	for _, of := range w.table.deadlines.of {
		places += len(of)
	}
	diff.Equal(t, w.table.Figures().Grants, places, "places in the queue of deadlines, as many as grants")
	if w.expire(2 * time.Hour); w.table.Figures().Grants != 0 {
		t.Errorf("%d grants after all deadlines", w.table.Figures().Grants)
	}
}
