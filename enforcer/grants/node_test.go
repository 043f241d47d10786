package grants

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
)

const (
	https = policy.PortSet("tcp/443")
	hold  = 10 * time.Minute
)

var errInjected = errors.New("the kernel is out of memory")

// sets are fake sets whose writes a test counts, holds up and replaces.
type sets struct {
	*ipset.Fake
	mu     sync.Mutex
	writes [][]ipset.Op  // each call with entries
	gate   chan struct{} // writes wait until it is closed; nil: they do not
	// instead does an op in place of the kernel, where it is set.
	instead func(op *ipset.Op) error
}

func (s *sets) Apply(ops []ipset.Op) {
	s.mu.Lock()
	full := slices.DeleteFunc(slices.Clone(ops), func(op ipset.Op) bool { return len(op.Entries) == 0 })
	if len(full) > 0 {
		s.writes = append(s.writes, full)
	}
	gate, do := s.gate, s.instead
	s.mu.Unlock()
	if gate != nil && len(full) > 0 {
		<-gate
	}
	if do == nil {
		do = s.do
	}
	for i := range ops {
		if ops[i].Err = nil; len(ops[i].Entries) > 0 {
			ops[i].Err = do(&ops[i])
		}
	}
}

// do is what the kernel does.
func (s *sets) do(op *ipset.Op) error {
	if op.Delete {
		return s.Fake.Delete(op.Set, op.Entries...)
	}
	return s.Fake.Add(op.Set, op.Entries...)
}

func (s *sets) Add(name string, entries ...ipset.Entry) error {
	return s.one(ipset.Op{Set: name, Entries: entries})
}

func (s *sets) Delete(name string, entries ...ipset.Entry) error {
	return s.one(ipset.Op{Set: name, Delete: true, Entries: entries})
}

func (s *sets) one(op ipset.Op) error {
	ops := []ipset.Op{op}
	s.Apply(ops)
	return ops[0].Err
}

// count returns how many calls wrote.
func (s *sets) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.writes)
}

// ops returns how many sets were written, or had entries deleted, since the last call.
func (s *sets) ops() (added, deleted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ops := range s.writes {
		for _, op := range ops {
			if op.Delete {
				deleted++
			} else {
				added++
			}
		}
	}
	s.writes = nil
	return added, deleted
}

// fail lets the nth op from now on fail, late: after it was done.
func (s *sets) fail(n int, late bool) {
	s.instead = func(op *ipset.Op) error {
		if n--; n != 0 {
			return s.do(op)
		}
		if late {
			return errors.Join(s.do(op), errInjected)
		}
		return errInjected
	}
}

// block lets writes wait until the returned function is called.
func (s *sets) block() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
	return sync.OnceFunc(func() { close(s.gate) })
}

// node is the grants of a node, with the sets of its kernel.
type node struct {
	t        testing.TB
	sets     *sets
	table    *Table
	compiler *compile.Compiler
	snap     *policy.Snapshot // in force
	left     map[string]bool  // sets of an earlier agent
	coexists bool

	mu  sync.Mutex
	now time.Time
}

// newNode returns a node that no agent has run on, with a table.
func newNode(t testing.TB) *node {
	n := &node{t: t, now: time.Unix(1_700_000_000, 0)}
	n.sets = &sets{Fake: ipset.NewFake(n.clock)}
	n.restart()
	return n
}

func (n *node) clock() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

func (n *node) pass(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = n.now.Add(d)
}

// restart replaces the table by an empty one.
func (n *node) restart() {
	n.table = New(Config{
		Sets: n.sets, Clock: NewClock(n.clock, time.Duration(n.clock().UnixNano())), Hold: hold, SetName: setName,
		Coexisting: func() bool { return n.coexists }, WriteFailed: func() {},
	})
	n.snap, n.compiler, n.left = nil, compile.New(), map[string]bool{}
	names, err := n.sets.Names()
	fatal.If(n.t, err)
	for _, name := range names {
		n.left[name] = true
	}
}

func setName(k Key) string { return fmt.Sprintf("%s-%s-%d", k.Pod.Name, k.Ports, of(k.IPv6)) }

// set4 is the name of a pod's IPv4 set for HTTPS.
func set4(p policy.Pod) string { return setName(Key{p.PodRef, https, false}) }

func (n *node) compile(pods []policy.Pod, policies ...v1alpha1.FQDNNetworkPolicy) *policy.Snapshot {
	n.t.Helper()
	s := n.compiler.Compile(compile.Input{Pods: pods, Policies: policies})
	if len(s.Problems) > 0 {
		n.t.Fatalf("the fixture cannot work: %v", s.Problems)
	}
	return s
}

// rollOut brings a snapshot into force as the enforcer does.
func (n *node) rollOut(s *policy.Snapshot) (err error) {
	missing := n.table.Missing(func(yield func(Key) bool) {
		for _, v := range s.Views {
			for _, ports := range v.PortSets() {
				if !yield(Key{v.Pod.PodRef, ports, false}) || !yield(Key{v.Pod.PodRef, ports, true}) {
					return
				}
			}
		}
	}, n.left)
	if missing.NeedsListing() {
		if err := n.sets.ListAll(missing.Read); err != nil {
			return err
		}
	}
	for _, name := range missing.Add(func(_ Key, e error) { err = e }) {
		delete(n.left, name)
	}
	if err != nil {
		return err
	}
	if _, err := n.table.CarryOver(n.snap, s); err != nil {
		return err
	}
	n.snap = s
	for ref := range n.table.Pods() {
		var ports []policy.PortSet
		if v := s.ViewOf(ref); v != nil {
			ports = v.PortSets()
		}
		_, released, err := n.table.TakeBack(ref, s.ViewOf(ref), ports, func() error { return nil })
		for _, name := range released {
			err = errors.Join(err, n.sets.Destroy(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// apply brings pods and policies into force.
func (n *node) apply(pods []policy.Pod, policies ...v1alpha1.FQDNNetworkPolicy) {
	n.t.Helper()
	fatal.If(n.t, n.rollOut(n.compile(pods, policies...)))
}

// grants returns the grants of an answer.
func (n *node) grants(pod policy.PodRef, name string, ttl uint32, answer string) (out []policy.Grant) {
	n.t.Helper()
	for _, o := range n.snap.ViewOf(pod).Decide(dns(name)).Openings(ttl) {
		out = append(out, policy.Grant{Pod: pod, Name: dns(name), Addrs: addrs(answer), Ports: o.Ports, Deadline: n.clock().Add(o.Lifetime), By: o.By})
	}
	if len(out) == 0 {
		n.t.Fatalf("no policy of pod %s allows %s", pod, name)
	}
	return out
}

// answer grants the addresses of an answer, which must work.
func (n *node) answer(pod policy.Pod, name string, ttl uint32, answer string) {
	n.t.Helper()
	fatal.If(n.t, n.table.Grant(context.Background(), n.grants(pod.PodRef, name, ttl, answer)))
}

// expire lets time pass and ends the grants that are due.
func (n *node) expire(d time.Duration) {
	n.t.Helper()
	n.pass(d)
	fatal.If(n.t, n.table.Expire())
}

// repair repairs the sets that deviate and returns how many did.
func (n *node) repair() int {
	n.t.Helper()
	for s := range n.table.All() {
		if _, err := n.table.Compare(s); err != nil {
			n.t.Fatal(err)
		}
	}
	wrong, err := n.table.Deviating()
	fatal.If(n.t, err)
	repaired := 0
	for _, s := range wrong {
		deviated, err := n.table.Repair(s)
		fatal.If(n.t, err)
		if deviated {
			repaired++
		}
	}
	return repaired
}

// entries returns the live entries of a pod's HTTPS sets, sorted.
func (n *node) entries(pod policy.Pod, ipv6 bool) []ipset.Entry {
	n.t.Helper()
	es, err := n.sets.List(setName(Key{pod.PodRef, https, ipv6}))
	if err != nil && !ipset.IsNotFound(err) {
		n.t.Fatal(err)
	}
	slices.SortFunc(es, func(a, b ipset.Entry) int { return a.Addr.Compare(b.Addr) })
	return es
}

// stays returns how long an address stays open by the kernel alone, 0 if it is not.
func (n *node) stays(pod policy.Pod, a string) time.Duration {
	n.t.Helper()
	for _, e := range n.entries(pod, addr(a).Is6()) {
		if e.Addr == addr(a) {
			return e.Timeout
		}
	}
	return 0
}

// near tells whether a timeout of the kernel is right for a lifetime: never less than the
// lifetime and the hold, and at most two seconds of rounding more.
func near(got, lifetime time.Duration) bool {
	want := lifetime + hold
	return got >= want && got <= want+2*time.Second
}

// web is one pod that one policy allows two names.
func web(t testing.TB) (*node, policy.Pod) {
	n := newNode(t)
	p := pod("web", "allow")
	n.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org *.example.net"))
	return n, p
}

// crowd is a node with pods that may reach *.example.net.
func crowd(t testing.TB, pods int) (*node, []policy.Pod) {
	n := newNode(t)
	var all []policy.Pod
	for i := range pods {
		all = append(all, pod(fmt.Sprintf("p%d", i), "allow"))
	}
	n.apply(all, pol("allow", "tcp/443 *.example.net"))
	return n, all
}

// fresh returns grants of addresses that were never granted, pod by pod in turn.
func (n *node) fresh(pods []policy.Pod, count int) [][]policy.Grant {
	o := n.snap.ViewOf(pods[0].PodRef).Decide(dns("n.example.net")).Openings(3600)[0]
	until := n.clock().Add(o.Lifetime)
	out := make([][]policy.Grant, count)
	for i := range out {
		p := pods[i%len(pods)].PodRef
		out[i] = []policy.Grant{{
			Pod: p, View: n.snap.ViewOf(p), Name: dns(fmt.Sprintf("host-%d.example.net", i)), Ports: o.Ports, Deadline: until, By: o.By,
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{198, 18 + byte(i/len(pods)>>16), byte(i / len(pods) >> 8), byte(i / len(pods))})},
		}}
	}
	return out
}

// pod returns a pod that the named policies select.
func pod(name string, selectedBy ...string) policy.Pod {
	p := policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: name, UID: "uid-" + name}, Labels: map[string]string{}}
	for _, l := range selectedBy {
		p.Labels[l] = "yes"
	}
	return p
}

// pol returns a policy that selects the pods labelled with its name. Each rule is a
// protocol and port followed by names and patterns.
func pol(name string, rules ...string) v1alpha1.FQDNNetworkPolicy {
	p := v1alpha1.FQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	p.Spec.PodSelector.MatchLabels = map[string]string{name: "yes"}
	for _, r := range rules {
		words := strings.Fields(r)
		ports := policy.PortSet(words[0]).Ranges()[0]
		protocol, port := v1alpha1.Protocol(strings.ToUpper(ports.Protocol.String())), int32(ports.First)
		rule := v1alpha1.EgressRule{Ports: []v1alpha1.Port{{Protocol: &protocol, Port: &port}}}
		for _, w := range words[1:] {
			if strings.Contains(w, "*") {
				rule.Matches = append(rule.Matches, v1alpha1.Match{Pattern: &w})
			} else {
				rule.Matches = append(rule.Matches, v1alpha1.Match{Name: &w})
			}
		}
		p.Spec.Egress = append(p.Spec.Egress, rule)
	}
	return p
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrs(s string) (out []netip.Addr) {
	for w := range strings.FieldsSeq(s) {
		out = append(out, addr(w))
	}
	return out
}

func dns(s string) fqdn.Name {
	n, err := fqdn.ParseName(s)
	if err != nil {
		panic(err)
	}
	return n
}
