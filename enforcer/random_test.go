package enforcer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
	"github.com/namegate/namegate/testkit/short"
)

// answered is what a pod was told once.
type answered struct {
	pod  policy.PodRef
	name string
	addr string
}

// opened is a connection that was admitted. Until a restart that came after its
// grant had ended, the agent remembers why.
type opened struct {
	conntrack.Flow
	pod        policy.Pod
	remembered bool
	// early: it began before its snapshot was in force, and may have to be judged again.
	early bool
}

// life is a node on which things happen, and the simple model of what must be:
// deadlines of answers, nothing else.
type life struct {
	*world
	r         *rand.Rand
	serial    int
	pods      map[string]policy.Pod
	policies  map[string]*v1alpha1.FQDNNetworkPolicy
	deadlines map[answered]time.Time
	ever      map[answered]bool // since the name became allowed
	hazy      map[answered]bool // ended before a restart: the next agent may know or not
	flows     []opened
	covered   []coverage
	held      int // how often a coverage of an earlier step still held
	// parted and waited count the pods that a part of a snapshot isolated, and left out.
	parted, waited int
	last           string // what happened last
}

// coverage is grants that were covered in an epoch.
type coverage struct {
	by     *Enforcer
	epoch  uint64
	grants []policy.Grant
}

// cover notes what is covered, which lasts as long as its epoch.
func (l *life) cover(g []policy.Grant) {
	c := coverage{l.e, l.e.grants.Epoch(), g}
	if l.e.grants.Covered(g) {
		l.covered = append(l.covered, c)
	}
}

// coverages looks at those that were noted, now and before each step of the kernel.
func (l *life) coverages(when string) {
	l.covered = slices.DeleteFunc(l.covered, func(c coverage) bool {
		if c.by != l.e || c.epoch != l.e.grants.Epoch() {
			return true
		}
		if !l.e.grants.Covered(c.grants) {
			l.t.Fatalf("after %s, %s: %v is covered no more, in the same epoch", l.last, when, c.grants)
		}
		l.held++
		return false
	})
}

var (
	lifeNames = []string{"n0.test", "n1.test", "n2.test", "n0.example"}
	lifeAddrs = []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1", "2001:db8::2"}
	lifePorts = []string{"any", "tcp/443", "tcp/80", "udp/443", "tcp/443,tcp/8443", "udp/53,tcp/25", "sctp"}
)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func (l *life) randomPolicy(name string) *v1alpha1.FQDNNetworkPolicy {
	var rules []string
	for range l.r.IntN(4) {
		rule := pick(l.r, lifePorts)
		for range 1 + l.r.IntN(2) {
			rule += " " + pick(l.r, append(lifeNames, "*.test", "**.example"))
		}
		rules = append(rules, rule)
	}
	return pol(name, rules...)
}

// input changes one thing of what the source says.
func (l *life) input() {
	name := fmt.Sprintf("p%d", l.r.IntN(5))
	policyName := pick(l.r, []string{"a", "b", "c"})
	_, here := l.pods[name]
	switch what := l.r.IntN(8); {
	case what < 3:
		l.policies[policyName] = l.randomPolicy(policyName)
	case what == 3:
		delete(l.policies, policyName)
	case !here || what == 4:
		l.serial++
		p := l.newPod(name)
		p.UID = fmt.Sprint("uid", l.serial)
		l.pods[name] = p
	case what == 5:
		delete(l.pods, name)
	default:
		p := l.newPod(name)
		p.PodRef, p.IPs = l.pods[name].PodRef, l.pods[name].IPs
		l.pods[name] = p
	}
}

// newPod takes addresses that no other pod has, soon those that one had.
func (l *life) newPod(name string) policy.Pod {
	taken := map[string]bool{}
	for other, p := range l.pods {
		if other != name {
			taken[p.IPs[0].String()] = true
		}
	}
	n := 1
	for taken[fmt.Sprintf("10.1.0.%d", n)] || l.r.IntN(3) == 0 && n < 20 {
		n++
	}
	for taken[fmt.Sprintf("10.1.0.%d", n)] {
		n++
	}
	var labels []string
	for _, p := range []string{"a", "b", "c"} {
		if l.r.IntN(2) == 0 {
			labels = append(labels, p)
		}
	}
	return pod(name, fmt.Sprintf("10.1.0.%d 2001:db8:1::%d", n, n), labels...)
}

func (l *life) next() *policy.Snapshot {
	return l.compile(slices.Collect(maps.Values(l.pods)), slices.Collect(maps.Values(l.policies))...)
}

// roll brings the input into force, now and then past a fault of the kernel.
func (l *life) roll(faulty bool) {
	s := l.next()
	if faulty {
		l.seams.forget(1+l.r.IntN(40), l.r.IntN(2) == 0)
		if err := l.rollOut(s); err != nil && !errors.Is(err, errInjected) {
			l.t.Fatal(err)
		}
		l.seams.forget(0, false)
	}
	fatal.If(l.t, l.rollOut(s))
	l.takeBack(s)
}

// grant lets a pod ask for a name.
func (l *life) grant(faulty bool) {
	if len(l.snap.Views) == 0 {
		return
	}
	v, name, ttl := pick(l.r, l.snap.Views), pick(l.r, lifeNames), uint32(30+l.r.IntN(600))
	a := answered{v.Pod.PodRef, name, pick(l.r, lifeAddrs)}
	if !v.Decide(dns(name)).Allowed() {
		g := policy.Grant{Pod: a.pod, Name: dns(name), Addrs: addrs(a.addr), Ports: policy.PortSet(pick(l.r, lifePorts)), Deadline: l.clock.Now().Add(time.Hour)}
		if err := granttest.Grant(context.Background(), l.e.grants, []policy.Grant{g}); err == nil {
			l.t.Fatalf("%s may ask for %s", a.pod, name)
		}
		return
	}
	g := l.grants(l.snap, a.pod, name, ttl, a.addr)
	if faulty {
		l.seams.forget(1, l.r.IntN(2) == 0)
		_ = granttest.Grant(context.Background(), l.e.grants, g) // some of it may be written
		l.seams.forget(0, false)
	}
	fatal.If(l.t, granttest.Grant(context.Background(), l.e.grants, g))
	l.cover(g)
	l.ever[a] = true
	if g[0].Deadline.After(l.deadlines[a]) {
		l.deadlines[a] = g[0].Deadline
	}
}

// dial opens a connection, which gets through exactly if the model says so.
func (l *life) dial() {
	if len(l.snap.Views) == 0 {
		return
	}
	v, dst := pick(l.r, l.snap.Views), l.destination()
	proto, port := policy.TCP, pick(l.r, []uint16{443, 8443, 25, 80})
	if l.r.IntN(3) == 0 {
		proto, port = policy.UDP, 53
	}
	src := v.Pod.IPs[0]
	if addr(dst).Is6() {
		src = v.Pod.IPs[1]
	}
	p := &packet{Src: src, Dst: addr(dst), Protocol: uint8(proto), DstPort: port}
	l.place(p)
	passes, may := l.passes(p), l.may(v, dst, proto, port)
	if passes != may {
		l.t.Fatalf("after %s: %s %s to %s port %d: passes %v, may %v", l.last, v.Pod.PodRef, src, dst, port, passes, may)
	}
	if passes {
		l.serial++
		f := conntrack.Flow{Protocol: uint8(proto), Src: netip.AddrPortFrom(src, uint16(l.serial)), Dst: netip.AddrPortFrom(addr(dst), port), Mark: p.Conn}
		l.world.flows.Track(f)
		l.flows = append(l.flows, opened{f, v.Pod, true, false})
	}
}

// again lets the next agent follow: this one ended, was killed, or still answers
// and grants until queries come to the next.
func (l *life) again(how string) {
	if l.r.IntN(2) == 0 {
		defer l.stepClock()
		l.stepClock()
	}
	if how != "an upgrade" && l.r.IntN(2) == 0 {
		l.peerInput()
	}
	switch how {
	case "a restart":
		l.e.intercept.Stop()
		l.restart()
	case "a kill":
		l.restart()
	case "an upgrade":
		first, v := l.e, l.snap
		_, end := overlap(l.t, l.world, func() { l.forget(); l.roll(false) })
		next := l.e
		l.e, l.snap, v = first, v, l.snap
		for range 3 {
			l.grant(false)
		}
		l.e, l.snap = next, v
		end()
		l.preparesAgain()
		first.intercept.Stop()
		return
	}
	l.forget()
	l.roll(false)
}

// step lets one thing happen.
func (l *life) step() {
	happens := []struct {
		what   string
		weight int
		do     func()
	}{
		{"a change", 12, func() { l.input(); l.roll(false) }},
		{"a change past a fault", 6, func() { l.input(); l.roll(true) }},
		{"a change of peers", 12, func() { l.peerInput(); l.roll(false) }},
		{"a change of peers past a fault", 6, func() { l.peerInput(); l.roll(true) }},
		{"an abandoned snapshot", 6, l.abandon},
		{"an answer", 40, func() { l.grant(false) }},
		{"an answer past a fault", 5, func() { l.grant(true) }},
		{"a connection", 20, l.dial},
		{"time", 18, func() { l.clock.Pass(time.Duration(1+l.r.IntN(150)) * time.Second) }},
		{"a refused expiry", 2, func() {
			l.seams.forget(1, false)
			_ = l.e.grants.Expire()
			l.seams.forget(0, false)
			l.clock.Pass(2 * time.Second)
		}},
		{"a link", 2, func() {
			n := 1 + l.r.IntN(8)
			l.links.SetHome(addr(fmt.Sprintf("10.1.0.%d", n)), pick(l.r, []link.Home{{}, {Iface: fmt.Sprintf("veth%d", n)}, {Iface: "br0", Port: fmt.Sprintf("port%d", n)}}))
			l.reconcile()
		}},
		{"a rival's removal of a rule", 2, func() { l.rival(l.removeRule) }},
		{"a rival's flush of a table", 2, func() { l.rival(l.flushTable) }},
		{"a rival's flush of a set", 2, func() { l.rival(l.flushSet) }},
		{"a rival's flush of nft", 2, func() { l.rival(l.flushElements) }},
		{"a rival's writes of entries", 3, func() { l.rival(l.writeEntries) }},
		{"a rival's end of a set", 2, func() { l.rival(l.destroySet) }},
		{"a step of the clock", 4, l.stepClock},
		{"a restart", 1, func() { l.again("a restart") }},
		{"a kill", 1, func() { l.again("a kill") }},
		{"an upgrade", 1, func() { l.again("an upgrade") }},
	}
	n := 0
	for _, h := range happens {
		n += h.weight
	}
	n = l.r.IntN(n)
	for _, h := range happens {
		if n -= h.weight; n < 0 {
			l.last = h.what
			h.do()
			break
		}
	}
	fatal.If(l.t, l.e.grants.Expire())
}

func TestLife(t *testing.T) {
	t.Parallel()
	steps := short.Rounds(2_000, 4_000, 40_000)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	l := &life{
		world: newNode(t), r: rand.New(rand.NewPCG(seed, 0)), pods: map[string]policy.Pod{},
		policies: map[string]*v1alpha1.FQDNNetworkPolicy{}, deadlines: map[answered]time.Time{}, ever: map[answered]bool{}, hazy: map[answered]bool{},
	}
	l.tellBoth()
	l.restart()
	l.roll(false)
	l.seams.before = func(step string) { l.coverages("before " + step) }
	seen := map[string]int{}
	for range steps {
		l.step()
		seen[l.last]++
		l.check()
	}
	if len(seen) < 20 || l.serial < steps/50 {
		t.Errorf("little happened: %v", seen)
	}
	if l.parted < 5 || l.waited < 5 {
		t.Errorf("parts isolated %d pods, and left out %d", l.parted, l.waited)
	}
	if l.held < steps {
		t.Errorf("only %d times something was still covered", l.held)
	}
	if left := strings.Count(l.dump(), "\n"); left == 0 {
		t.Error("the node holds nothing")
	}
}
