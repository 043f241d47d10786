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

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/testclock"
)

const (
	https = policy.PortSet("tcp/443")
	hold  = 10 * time.Minute
)

var errInjected = errors.New("the kernel is out of memory")

// sets are the kernel's sets in memory, whose writes a test counts, holds up and replaces.
type sets struct {
	now    func() time.Time
	mu     sync.Mutex
	held   map[string]map[netip.Addr]entry // by name
	writes [][]dataplane.GrantOp           // each call with grants
	gate   chan struct{}                   // writes wait until it is closed; nil: they do not
	// instead does an op in place of the kernel, where it is set.
	instead func(op *dataplane.GrantOp) error
	noRules bool // the kernel has no sets of rules
	// replaces: a member with another comment is a new one.
	replaces bool
	listing  func() // is called before a listing returns, where it is set
}

// nameOf is the name of a set in held.
func nameOf(s dataplane.GrantSet) string {
	if s.Rule == "" {
		return s.Name
	}
	return fmt.Sprintf("%s %s", s.Rule, s.Subject)
}

type entry struct {
	until   time.Time
	comment string
	uses    uint64
}

func (s *sets) ApplyGrants(ops []dataplane.GrantOp) {
	s.mu.Lock()
	var full []dataplane.GrantOp
	for _, op := range ops {
		if op.Grants = slices.Clone(op.Grants); len(op.Grants) > 0 {
			full = append(full, op)
		}
	}
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
		if ops[i].Err = nil; len(ops[i].Grants) > 0 {
			ops[i].Err = do(&ops[i])
		}
	}
}

// do is what the kernel does.
func (s *sets) do(op *dataplane.GrantOp) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := nameOf(op.Set); op.Set.Rule != "" && s.held[name] == nil && !s.noRules {
		s.held[name] = map[netip.Addr]entry{}
	}
	members := s.held[nameOf(op.Set)]
	if members == nil {
		return dataplane.NoSet{Err: errors.New("no such set")}
	}
	for _, g := range op.Grants {
		if op.Remove {
			delete(members, g.Addr)
		} else {
			members[g.Addr] = s.written(members[g.Addr], g)
		}
	}
	return nil
}

// ListGrants hands over sets in two parts.
func (s *sets) ListGrants(sets []dataplane.GrantSet, each func(dataplane.GrantSet, []dataplane.Grant)) error {
	for _, asked := range sets {
		for _, key := range s.matching(asked) {
			if key != asked && slices.ContainsFunc(sets, func(o dataplane.GrantSet) bool { return nameOf(o) == nameOf(key) }) {
				continue
			}
			all, _ := s.list(nameOf(key))
			each(key, all[:len(all)/2])
			each(key, all[len(all)/2:])
		}
	}
	if s.listing != nil {
		s.listing()
	}
	return nil
}

// matching returns a set if it is there, or those of a rule.
func (s *sets) matching(key dataplane.GrantSet) (out []dataplane.GrantSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key.Rule == "" || key.Subject.IsValid() {
		if s.held[nameOf(key)] != nil {
			out = append(out, key)
		}
		return out
	}
	for name := range s.held {
		if subject, ofRule := strings.CutPrefix(name, string(key.Rule)+" "); ofRule {
			a := addr(subject)
			out = append(out, dataplane.GrantSet{Rule: key.Rule, Subject: a, IPv6: a.Is6()})
		}
	}
	return out
}

// list returns the live members of a set, sorted, and whether the set is there.
func (s *sets) list(name string) (out []dataplane.Grant, there bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	members, there := s.held[name]
	for a, e := range members {
		if left := e.until.Sub(s.now()); left > 0 {
			out = append(out, dataplane.Grant{Addr: a, Timeout: left, Comment: e.comment, Uses: e.uses})
		}
	}
	slices.SortFunc(out, func(a, b dataplane.Grant) int { return a.Addr.Compare(b.Addr) })
	return out, there
}

// written is a member that is added or replaced. Where the kernel replaces members, one with
// another comment begins with the number that it is given.
func (s *sets) written(last entry, g dataplane.Grant) entry {
	if !last.until.After(s.now()) {
		last = entry{} // it has ended
	}
	e := entry{until: s.now().Add(g.Timeout), comment: g.Comment, uses: last.uses}
	if last.comment == "" || s.replaces && last.comment != g.Comment {
		e.uses = g.Uses
	}
	return e
}

// use has a packet match an address of a set, if it is there.
func (s *sets) use(name string, a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, there := s.held[name][a]; there && e.until.After(s.now()) {
		e.uses++
		s.held[name][a] = e
	}
}

// create creates a set, unless it is there.
func (s *sets) create(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[name] == nil {
		s.held[name] = map[netip.Addr]entry{}
	}
}

func (s *sets) destroy(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, name)
}

// dump prints all sets.
func (s *sets) dump() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.held)
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
			if op.Remove {
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
	s.instead = func(op *dataplane.GrantOp) error {
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
	*testclock.Clock
	t        testing.TB
	sets     *sets
	table    *Table
	compiler *compile.Compiler
	snap     *policy.Snapshot // in force
	cluster  []*v1alpha1.ClusterFQDNNetworkPolicy
	// coexisting: another agent writes too.
	coexisting bool
	inPlace    bool // the kernel moves deadlines in place
}

// newNode returns a node that no agent has run on, with a table.
func newNode(t testing.TB) *node {
	n := &node{t: t, Clock: testclock.New(time.Unix(1_700_000_000, 0))}
	n.sets = &sets{now: n.Now, held: map[string]map[netip.Addr]entry{}}
	n.restart()
	return n
}

// restart replaces the table by an empty one.
func (n *node) restart() {
	n.table = New(Config{Kernel: n.sets, Clock: NewClock(n.Now, time.Duration(n.Now().UnixNano())), Hold: hold, InPlace: n.inPlace, WriteFailed: func() {}, Coexisting: func() bool { return n.coexisting }})
	n.snap, n.compiler = nil, compile.New()
}

// grantSet is the set of a pod on a port set.
func grantSet(pod policy.PodRef, ports policy.PortSet, ipv6 bool) dataplane.GrantSet {
	return dataplane.GrantSet{Pod: pod, Ports: ports, IPv6: ipv6, Name: fmt.Sprintf("%s-%s-%v", pod.Name, ports, ipv6)}
}

// set4 is the name of a pod's IPv4 set for HTTPS.
func set4(p policy.Pod) string { return grantSet(p.PodRef, https, false).Name }

func (n *node) compile(pods []policy.Pod, policies ...*v1alpha1.FQDNNetworkPolicy) *policy.Snapshot {
	n.t.Helper()
	s := n.compiler.Compile(compile.Input{Pods: pods, Policies: policies, ClusterPolicies: n.cluster})
	if len(s.Problems) > 0 {
		n.t.Fatalf("the fixture cannot work: %v", s.Problems)
	}
	return s
}

// rollOut brings a snapshot into force as the enforcer does.
func (n *node) rollOut(s *policy.Snapshot) error {
	var missing []dataplane.GrantSet
	held := map[dataplane.GrantSet][]dataplane.Grant{}
	for _, v := range s.Views {
		for _, ports := range v.PortSets() {
			for _, ipv6 := range []bool{false, true} {
				if set := grantSet(v.Pod.PodRef, ports, ipv6); !n.table.Holds(set) {
					missing, held[set] = append(missing, set), nil
				}
			}
		}
	}
	listed := n.Now()
	err := n.sets.ListGrants(missing, func(set dataplane.GrantSet, part []dataplane.Grant) {
		held[set] = append(held[set], part...)
	})
	if err != nil {
		return err
	}
	for _, set := range missing {
		n.sets.create(set.Name)
	}
	n.table.Adopt(held, listed)
	if _, err := n.table.CarryOver(n.snap, s); err != nil {
		return err
	}
	n.snap = s
	for ref := range n.table.Pods() {
		v := s.ViewOf(ref)
		had := n.table.pod(ref).all()
		_, err := n.table.TakeBack(ref, v, func(set dataplane.GrantSet) bool { return asks(v, set) }, func() error { return nil })
		for _, s := range had {
			if s.key.Rule == "" && !n.table.Holds(s.key) {
				n.sets.destroy(s.key.Name)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// asks tells whether a view has a rule that needs a set.
func asks(v *policy.View, set dataplane.GrantSet) bool {
	switch {
	case v == nil:
		return false
	case set.Rule == "":
		return slices.Contains(v.PortSets(), set.Ports)
	}
	return slices.Contains(v.Pod.IPs, set.Subject) &&
		slices.ContainsFunc(slices.Collect(v.Rules.Cluster()), func(r *policy.Rule) bool { return r.ID == set.Rule && r.Ports == set.Ports && !r.Audit })
}

// apply brings pods and policies into force.
func (n *node) apply(pods []policy.Pod, policies ...*v1alpha1.FQDNNetworkPolicy) {
	n.t.Helper()
	fatal.If(n.t, n.rollOut(n.compile(pods, policies...)))
}

// grants returns the grants of an answer.
func (n *node) grants(pod policy.PodRef, name string, ttl uint32, answer string) (out []policy.Grant) {
	n.t.Helper()
	for _, o := range n.snap.ViewOf(pod).Decide(dns(name)).Openings(ttl) {
		out = append(out, policy.Grant{Pod: pod, Name: dns(name), Addrs: addrs(answer), Ports: o.Ports, Deadline: n.Now().Add(o.Lifetime), By: o.By})
	}
	if len(out) == 0 {
		n.t.Fatalf("no policy of pod %s allows %s", pod, name)
	}
	return out
}

// answer grants the addresses of an answer, which must work.
func (n *node) answer(pod policy.Pod, name string, ttl uint32, answer string) {
	n.t.Helper()
	fatal.If(n.t, granttest.Grant(context.Background(), n.table, n.grants(pod.PodRef, name, ttl, answer)))
}

// expire lets time pass and ends the grants that are due.
func (n *node) expire(d time.Duration) {
	n.t.Helper()
	n.Pass(d)
	fatal.If(n.t, n.table.Expire())
}

// entries returns the live members of a pod's HTTPS sets, sorted.
func (n *node) entries(pod policy.Pod, ipv6 bool) []dataplane.Grant {
	out, _ := n.sets.list(grantSet(pod.PodRef, https, ipv6).Name)
	return out
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

// pod returns a pod that the named policies select.
func pod(name string, selectedBy ...string) policy.Pod {
	return policytest.Pod(name, "", selectedBy...)
}

// The words of the tests.
var (
	addr  = netip.MustParseAddr
	addrs = policytest.Addrs
	dns   = policytest.Name
	pol   = policytest.Policy
)
