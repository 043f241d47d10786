package grants

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

// usingNode is a node whose table judges use: the names in use are kept for the test.
type usingNode struct {
	*node
	pod         policy.Pod
	connections []Connection
	listed      int // how often connections were
	version     int // of the policy
	inUse       []policy.NameInUse
}

// using is a node with a pod that may reach *.example.net, with the settings.
func using(t testing.TB, ttl v1alpha1.TTL) *usingNode {
	n := &usingNode{node: newNode(t), pod: pod("web", "allow")}
	n.pod.IPs = addrs("10.1.0.5")
	n.restart()
	n.apply(ttl)
	return n
}

func (n *usingNode) restart() {
	n.node.restart()
	n.table.cfg.Connections = func(each func(Connection)) error {
		n.listed++
		for _, c := range n.connections {
			each(c)
		}
		return nil
	}
	n.table.OnInUse(func(names []policy.NameInUse) {
		slices.SortFunc(names, func(a, b policy.NameInUse) int { return strings.Compare(a.Name.String(), b.Name.String()) })
		for i := range names {
			slices.SortFunc(names[i].Held, netip.Addr.Compare)
			slices.SortFunc(names[i].Due, netip.Addr.Compare)
		}
		n.inUse = append(n.inUse, names...)
	})
}

func (n *usingNode) apply(ttl v1alpha1.TTL) {
	n.t.Helper()
	p := pol("allow", "tcp/443 *.example.net")
	n.version++
	p.Spec.TTL, p.ResourceVersion, p.Generation = ttl, fmt.Sprint(n.version), int64(n.version)
	n.node.apply([]policy.Pod{n.pod}, p)
}

// use has a packet match an address that is open.
func (n *usingNode) use(a string) {
	n.sets.use(grantSet(n.pod.PodRef, https, addr(a).Is6()).Name, addr(a))
}

// connect has a connection to an address, whose last packet was at a moment.
func (n *usingNode) connect(a string, idle time.Duration) Connection {
	return Connection{Source: n.pod.IPs[0], Dialled: netip.AddrPortFrom(addr(a), 443), Protocol: policy.TCP, Idle: idle}
}

// pass lets time pass in the ticks of an agent, and returns the names that came into use.
func (n *usingNode) pass(d time.Duration) (inUse []policy.NameInUse) {
	n.t.Helper()
	n.inUse = nil
	for range d / time.Second {
		n.expire(time.Second)
	}
	return n.inUse
}

// keep lets time pass; answers hold no address that is in use.
func (n *usingNode) keep(d time.Duration) (last policy.NameInUse) {
	n.t.Helper()
	for range d / time.Second {
		for _, last = range n.pass(time.Second) {
			n.table.Keep(&last, last.Due, true)
		}
	}
	return last
}

func (n *usingNode) open(a string) bool {
	return n.stays(n.pod, a) > 0
}

func named(name, held, due string) policy.NameInUse {
	return policy.NameInUse{Pod: pod("web").PodRef, Name: dns(name), Held: addrs(held), Due: addrs(due)}
}

// TestUseIsAskedAbout: a name with an address in use is asked at its deadline, which is at most
// a quarter of its time and 64 seconds late; an unused one ends then, and no earlier.
func TestUseIsAskedAbout(t *testing.T) {
	n := using(t, v1alpha1.TTL{})
	n.answer(n.pod, "www.example.net", 300, "192.0.2.1 192.0.2.2")
	n.answer(n.pod, "idle.example.net", 300, "192.0.2.3")
	n.use("192.0.2.1")
	if got := n.pass(359 * time.Second); got != nil || !n.open("192.0.2.3") {
		t.Fatalf("before the deadline: %v in use", got)
	}
	var got []policy.NameInUse
	at := 359
	for ; got == nil && at <= 360+64; at++ {
		got = n.pass(time.Second)
	}
	diff.Fatal(t, []policy.NameInUse{named("www.example.net", "192.0.2.1 192.0.2.2", "192.0.2.1")}, got, "after", at, "s")
	n.pass(time.Second)
	if open := n.table.ListGrants(n.pod.PodRef); len(open) != 1 || !open[0].Until.After(n.Now()) {
		t.Errorf("grants while the name is asked: %+v", open)
	}
	for a, want := range map[string]bool{"192.0.2.1": true, "192.0.2.2": false, "192.0.2.3": false} {
		diff.Equal(t, want, n.open(a), a, "while the name is asked: open")
	}
	n.answer(n.pod, "www.example.net", 300, "192.0.2.1")
	if n.pass(300 * time.Second); !n.open("192.0.2.1") {
		t.Error("an answer that holds the address did not renew it")
	}
	if got := n.pass(130 * time.Second); got != nil || n.open("192.0.2.1") {
		t.Errorf("not used since the answer: open, or %v in use", got)
	}
}

// TestUnsettledUseEnds: without an answer and without Keep, an address ends some seconds later.
func TestUnsettledUseEnds(t *testing.T) {
	n := using(t, v1alpha1.TTL{})
	n.answer(n.pod, "www.example.net", 30, "192.0.2.1")
	n.use("192.0.2.1")
	if n.pass(90*time.Second + 16*time.Second + renewWait); n.open("192.0.2.1") || len(n.inUse) != 1 {
		t.Errorf("open, or not asked once: %v", n.inUse)
	}
}

// TestConnectionsKeepAddresses: an address that the answer does not hold stays while a connection
// to it is active, and ends at the latest when the policy's reuse is over.
func TestConnectionsKeepAddresses(t *testing.T) {
	for name, test := range map[string]struct {
		connection func(n *usingNode) Connection
		answered   bool
		want       bool
	}{
		"active":             {func(n *usingNode) Connection { return n.connect("192.0.2.1", 10*time.Second) }, true, true},
		"idle since before":  {func(n *usingNode) Connection { return n.connect("192.0.2.1", 200*time.Second) }, true, false},
		"to another address": {func(n *usingNode) Connection { return n.connect("192.0.2.2", 0) }, true, false},
		"to another port": {func(n *usingNode) Connection {
			c := n.connect("192.0.2.1", 0)
			c.Dialled = netip.AddrPortFrom(addr("192.0.2.1"), 80)
			return c
		}, true, false},
		"of another protocol": {func(n *usingNode) Connection { c := n.connect("192.0.2.1", 0); c.Protocol = policy.UDP; return c }, true, false},
		"of another pod":      {func(n *usingNode) Connection { c := n.connect("192.0.2.1", 0); c.Source = addr("10.9.9.9"); return c }, true, false},
		"none, unanswered":    {func(n *usingNode) Connection { return n.connect("192.0.2.9", 0) }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			reuse := int64(600)
			n := using(t, v1alpha1.TTL{ReuseSeconds: &reuse})
			n.answer(n.pod, "www.example.net", 30, "192.0.2.1")
			n.connections = []Connection{test.connection(n)}
			began := n.Now()
			for n.Now().Sub(began) < 600*time.Second && n.open("192.0.2.1") {
				n.use("192.0.2.1")
				for _, in := range n.pass(time.Second) {
					n.table.Keep(&in, in.Due, test.answered)
				}
			}
			if lasted := n.Now().Sub(began); (lasted >= 600*time.Second) != test.want {
				t.Fatalf("open for %v", lasted)
			}
			if !test.want {
				return
			}
			if held := n.table.ListGrants(n.pod.PodRef)[0].Held; !held.Equal(began) {
				t.Errorf("last held at %v, the answer came at %v", held, began)
			}
			for range 90 + 16 + 64 + 6 {
				n.use("192.0.2.1")
				for _, in := range n.pass(time.Second) {
					n.table.Keep(&in, in.Due, test.answered)
				}
			}
			if n.open("192.0.2.1") {
				t.Error("open after the policy's reuse")
			}
		})
	}
}

// TestLateUseIsJudgedFirst: after an agent was away for longer than a grant, the next one
// asks about names in use before it closes their addresses, and knows since when use keeps them.
func TestLateUseIsJudgedFirst(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		n := using(t, v1alpha1.TTL{})
		n.inPlace = inPlace
		n.restart()
		n.apply(v1alpha1.TTL{})
		n.answer(n.pod, "www.example.net", 30, "192.0.2.1")
		n.answer(n.pod, "kept.example.net", 30, "192.0.2.2")
		n.answer(n.pod, "idle.example.net", 30, "192.0.2.3")
		n.connections = []Connection{n.connect("192.0.2.2", 0)}
		held := n.Now()
		n.keep(106 * time.Second)
		n.answer(n.pod, "www.example.net", 30, "192.0.2.1")
		n.answer(n.pod, "idle.example.net", 30, "192.0.2.3")
		n.use("192.0.2.1")
		n.Pass(300 * time.Second) // without an agent

		n.restart()
		n.apply(v1alpha1.TTL{})
		want := []policy.NameInUse{named("kept.example.net", "192.0.2.2", "192.0.2.2"), named("www.example.net", "192.0.2.1", "192.0.2.1")}
		diff.Fatal(t, want, n.pass(2*time.Second), "in place", inPlace)
		if n.open("192.0.2.3") || !n.open("192.0.2.1") || !n.open("192.0.2.2") {
			t.Errorf("in place %v: an unused address is open, or one in use is not", inPlace)
		}
		kept := n.table.Keep(&want[0], want[0].Due, true)
		if len(kept) != 1 || kept[0].Held.Sub(held).Abs() > time.Second {
			t.Errorf("in place %v: kept %+v, last held at %v", inPlace, kept, held)
		}
	}
}

// TestUseIsBounded: 256 names of a pod are asked after one listing, and 64 addresses of a name
// stay by their connections alone.
func TestUseIsBounded(t *testing.T) {
	n := using(t, v1alpha1.TTL{})
	for i := range namesInUseMax + 10 {
		a := fmt.Sprintf("198.18.%d.%d", i/256, i%256)
		n.answer(n.pod, fmt.Sprintf("n%d.example.net", i), 30, a)
		n.use(a)
	}
	if got := n.pass(106 * time.Second); len(got) != namesInUseMax {
		t.Errorf("%d names asked", len(got))
	}

	n = using(t, v1alpha1.TTL{})
	var all string
	for i := range keptMax + 6 {
		a := fmt.Sprintf("198.18.1.%d", i)
		all += a + " "
		n.connections = append(n.connections, n.connect(a, 0))
	}
	n.answer(n.pod, "www.example.net", 30, all)
	for range 3 {
		n.keep(106 * time.Second)
	}
	diff.Equal(t, keptMax, len(n.entries(n.pod, false)), "addresses stay by their connections")
}

// TestConnectionsAreListedSeldom: whatever is due, connections are listed once in thirty seconds,
// and not at all where packets show the use.
func TestConnectionsAreListedSeldom(t *testing.T) {
	n := using(t, v1alpha1.TTL{})
	for i := range 200 {
		n.answer(n.pod, fmt.Sprintf("n%d.example.net", i), 30, fmt.Sprintf("198.18.1.%d", i))
		n.use(fmt.Sprintf("198.18.1.%d", i))
		n.pass(time.Second)
	}
	diff.Equal(t, 0, n.listed, "listings of connections for grants with packets")
	for i := range 200 {
		n.answer(n.pod, fmt.Sprintf("n%d.example.net", i), 30, fmt.Sprintf("198.18.1.%d", i))
		n.pass(time.Second)
	}
	if n.listed == 0 || n.listed > 200/30+1 {
		t.Errorf("%d listings of connections in 200 s", n.listed)
	}
}

// TestRoundUp: a deadline is never earlier, and later by at most a quarter of the time and 64
// seconds; longer times share deadlines.
func TestRoundUp(t *testing.T) {
	for _, life := range []time.Duration{time.Millisecond, time.Second, 2 * time.Second, 90 * time.Second, 360 * time.Second, time.Hour, 7 * 24 * time.Hour} {
		for _, now := range []monotonic{0, 1, monotonic(12345678901234567)} {
			until := now + monotonic(life)
			got := roundUp(until, now)
			late := time.Duration(got - until)
			if late < 0 || late > stepMost || late > max(life/lifeSteps, stepLeast) {
				t.Errorf("%v from %d: %v late", life, now, late)
			}
		}
	}
}
