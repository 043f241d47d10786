package grants

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
)

// infos renders grants: POD NAME PORTS ADDRESS in SECONDS BY.
func (n *node) infos(all []policy.GrantInfo) []string {
	out := []string{}
	for _, o := range all {
		out = append(out, fmt.Sprintf("%s %s %s %s in %d %s", o.Pod.Name, o.Name, o.Ports, o.Addr, int(o.Until.Sub(n.Now()).Seconds()), o.By))
	}
	return out
}

// ended returns the grants of a pod and an address that have ended.
func (n *node) ended(p policy.Pod, a string) []policy.GrantInfo {
	return slices.DeleteFunc(n.table.NamesOf(p.PodRef, addr(a)), func(o policy.GrantInfo) bool { return o.Until.After(n.Now()) })
}

func sameLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n  %s\nwant:\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestListGrants: live grants by name, port set and family, sorted, of one pod.
func TestListGrants(t *testing.T) {
	w := newNode(t)
	a, b := pod("a", "x", "y"), pod("b", "x")
	w.apply([]policy.Pod{a, b}, pol("x", "tcp/443 *.example.net"), pol("y", "tcp/443 www.example.net", "udp/53 www.example.net"))
	w.answer(a, "www.example.net", 60, "192.0.2.1 2001:db8::1")
	w.Pass(30 * time.Second)
	w.answer(a, "api.example.net", 60, "192.0.2.1")
	w.answer(b, "api.example.net", 60, "192.0.2.7")
	ofA := []string{
		"a api.example.net tcp/443 192.0.2.1 in 120 shop/x *.example.net",
		"a www.example.net tcp/443 192.0.2.1 in 90 shop/x *.example.net,shop/y www.example.net",
		"a www.example.net tcp/443 2001:db8::1 in 90 shop/x *.example.net,shop/y www.example.net",
		"a www.example.net udp/53 192.0.2.1 in 90 shop/y www.example.net",
		"a www.example.net udp/53 2001:db8::1 in 90 shop/y www.example.net",
	}
	ofB := "b api.example.net tcp/443 192.0.2.7 in 120 shop/x *.example.net"
	sameLines(t, "a's", w.infos(w.table.ListGrants(a.PodRef)), ofA...)
	sameLines(t, "b's", w.infos(w.table.ListGrants(b.PodRef)), ofB)
	sameLines(t, "nobody's", w.infos(w.table.ListGrants(pod("c").PodRef)))
	sameLines(t, "history while it is open", w.infos(w.ended(a, "192.0.2.1")))

	w.expire(100 * time.Second) // www is over, api holds the address
	sameLines(t, "what is left", w.infos(w.table.ListGrants(a.PodRef)), "a api.example.net tcp/443 192.0.2.1 in 20 shop/x *.example.net")
	sameLines(t, "what has ended", w.infos(w.ended(a, "192.0.2.1")),
		"a www.example.net tcp/443 192.0.2.1 in -10 shop/x *.example.net,shop/y www.example.net", "a www.example.net udp/53 192.0.2.1 in -10 shop/y www.example.net")
	sameLines(t, "both", w.infos(w.table.NamesOf(a.PodRef, addr("192.0.2.1"))), "a api.example.net tcp/443 192.0.2.1 in 20 shop/x *.example.net",
		"a www.example.net tcp/443 192.0.2.1 in -10 shop/x *.example.net,shop/y www.example.net", "a www.example.net udp/53 192.0.2.1 in -10 shop/y www.example.net")
	sameLines(t, "of anybody", w.infos(w.table.NamesOfAnybody(addr("192.0.2.7"))), "b api.example.net tcp/443 192.0.2.7 in 20 shop/x *.example.net")

	w.answer(a, "www.example.net", 60, "192.0.2.1")
	sameLines(t, "history after it was opened again", w.infos(w.ended(a, "192.0.2.1")))
}

// TestNamesOfAnybodyAreEnough: an address of many pods and names does not take all of them.
func TestNamesOfAnybodyAreEnough(t *testing.T) {
	w := newNode(t)
	var pods []policy.Pod
	for i := range 8 {
		pods = append(pods, pod(fmt.Sprint("p", i), "x"))
	}
	w.apply(pods, pol("x", "tcp/443 *.example.net"))
	for _, p := range pods {
		for i := range reasonsMax {
			w.answer(p, fmt.Sprintf("n%d.example.net", i), 60, "192.0.2.1")
		}
	}
	if n := len(w.table.NamesOfAnybody(addr("192.0.2.1"))); n < maxListed || n > maxListed+reasonsMax {
		t.Errorf("%d names, want about %d", n, maxListed)
	}
}

// TestRecovered: the next agent recovers the names of the addresses.
func TestRecovered(t *testing.T) {
	w := newNode(t)
	a := pod("a", "x")
	w.apply([]policy.Pod{a}, pol("x", "tcp/443 *.example.net"))
	w.answer(a, "www.example.net", 60, "192.0.2.1")
	w.Pass(20 * time.Second)
	w.restart()
	w.apply([]policy.Pod{a}, pol("x", "tcp/443 *.example.net"))
	sameLines(t, "recovered", w.infos(w.table.ListGrants(a.PodRef)), "a www.example.net tcp/443 192.0.2.1 in 100 shop/x *.example.net")
}

// TestOnTakenBack: it receives grants, live and ended, that no policy allows any more, and
// no others.
func TestOnTakenBack(t *testing.T) {
	w := newNode(t)
	var told []policy.GrantInfo
	w.table.OnTakenBack(func(o policy.GrantInfo) { told = append(told, o) })
	a, b := pod("a", "x"), pod("b", "x")
	w.apply([]policy.Pod{a, b}, pol("x", "tcp/443 *.example.net", "tcp/80 *.example.net"))
	w.answer(a, "old.example.net", 60, "192.0.2.1")
	w.expire(150 * time.Second)
	w.answer(a, "www.example.net", 60, "192.0.2.2")
	w.answer(a, "api.example.net", 60, "192.0.2.2 192.0.2.3")
	w.answer(b, "www.example.net", 60, "192.0.2.2")
	if len(told) != 0 {
		t.Errorf("told of %v while all is allowed", w.infos(told))
	}
	w.apply([]policy.Pod{a}, pol("x", "tcp/443 api.example.net"))
	got := w.infos(told)
	sort.Strings(got)
	sameLines(t, "told", got,
		"a api.example.net tcp/80 192.0.2.2 in 120 shop/x *.example.net", "a api.example.net tcp/80 192.0.2.3 in 120 shop/x *.example.net",
		"a old.example.net tcp/443 192.0.2.1 in -30 shop/x *.example.net", "a old.example.net tcp/80 192.0.2.1 in -30 shop/x *.example.net",
		"a www.example.net tcp/443 192.0.2.2 in 120 shop/x *.example.net", "a www.example.net tcp/80 192.0.2.2 in 120 shop/x *.example.net")
}

// TestListGrantsLikeTwin: after random answers and expiries the list is the granted
// addresses that have not ended.
func TestListGrantsLikeTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range 20 {
		w := newNode(t)
		pods := []policy.Pod{pod("a", "x"), pod("b", "x")}
		w.apply(pods, pol("x", "tcp/443 *.example.net"))
		type key struct{ pod, name, addr string }
		twin := map[key]time.Time{}
		for range 100 {
			k := key{[]string{"a", "b"}[r.IntN(2)], fmt.Sprintf("n%d.example.net", r.IntN(4)), fmt.Sprintf("192.0.2.%d", 1+r.IntN(4))}
			ttl := uint32(30 + r.IntN(100))
			for _, p := range pods {
				if p.Name == k.pod {
					w.answer(p, k.name, ttl, k.addr)
				}
			}
			if until := w.Now().Add(time.Duration(ttl)*time.Second + policy.DefaultGrace); until.After(twin[k]) {
				twin[k] = until
			}
			w.expire(time.Duration(r.IntN(20)) * time.Second)
			var want, got []string
			for k, until := range twin {
				if until.After(w.Now()) {
					want = append(want, fmt.Sprint(k, until.Unix()))
				}
			}
			for _, o := range append(w.table.ListGrants(pods[0].PodRef), w.table.ListGrants(pods[1].PodRef)...) {
				got = append(got, fmt.Sprint(key{o.Pod.Name, o.Name.String(), o.Addr.String()}, o.Until.Unix()))
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("listed:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
}
