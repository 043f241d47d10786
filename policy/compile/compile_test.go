package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestUnion(t *testing.T) {
	strict := aPolicy("strict", "web")
	strict.Spec.Denied, strict.Spec.DNS.Unmatched = v1alpha1.DeniedDrop, v1alpha1.UnmatchedNXDomain
	stricter := audited(aPolicy("watch", "web", aRule("seen.test")))
	stricter.Spec.Denied, stricter.Spec.DNS.Unmatched = v1alpha1.DeniedDrop, v1alpha1.UnmatchedRefuse
	elsewhere := aPolicy("elsewhere", "", aRule("a.test"))
	elsewhere.Namespace = "other"
	s := compile(
		[]policy.Pod{aPod("web", "web", "10.0.0.1", "2001:db8::1"), aPod("db", "db", "10.0.0.2"), aPod("free", "free", "10.0.0.3"), aPod("seen", "seen", "10.0.0.4")},
		aPolicy("b", "web", on(aRule("b.test", "*.b.test"), tcp(443))), aPolicy("a", "web", aRule("a.test")), strict, stricter,
		aPolicy("db", "db", aRule("a.test")), elsewhere, audited(aPolicy("seen", "seen", aRule("a.test"))),
	)
	type view struct {
		Pod, Policies, Entries, PortSets, Exact string
		Enforced                                bool
		Denied                                  policy.Denied
		Unmatched                               policy.Unmatched
	}
	var got []view
	for _, v := range s.Views {
		var entries []string
		for r := range v.Rules.All() {
			entries = append(entries, fmt.Sprintf("%s %s %s audit=%v", r.Policy, patterns(r), r.Ports, r.Audit))
		}
		opened, denied := v.ExactNames()
		diff.Empty(t, denied, v.Pod.Name, "denied by namespaced policies")
		got = append(got, view{v.Pod.Name, strings.Join(v.Policies, " "), strings.Join(entries, "; "), fmt.Sprint(v.PortSets()),
			fmt.Sprint(opened), v.Enforced, v.Denied, v.Unmatched})
	}
	want := []view{
		{"db", "shop/db", "shop/db [a.test] any audit=false", "[any]", "[a.test]", true, policy.Reject, policy.Resolve},
		{"seen", "shop/seen", "shop/seen [a.test] any audit=true", "[]", "[]", false, policy.Reject, policy.Resolve},
		{"web", "shop/a shop/b shop/strict shop/watch",
			"shop/a [a.test] any audit=false; shop/b [b.test *.b.test] tcp/443 audit=false; shop/watch [seen.test] any audit=true",
			"[any tcp/443]", "[a.test b.test]", true, policy.Drop, policy.NXDomain},
	}
	diff.Error(t, want, got)
	web := s.ViewOf(policy.PodRef{Namespace: "shop", Name: "web", UID: "uid-web"})
	for _, a := range []string{"10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1"} {
		if s.View(addr(a)) != web || web == nil {
			t.Errorf("the view at %s is %v", a, s.View(addr(a)))
		}
	}
	if s.View(addr("10.0.0.3")) != nil || s.View(addr("10.0.0.9")) != nil {
		t.Error("a pod that no policy selects has a view")
	}
	if ref, ok := s.Pod(addr("10.0.0.3")); !ok || ref.Name != "free" {
		t.Errorf("the pod at 10.0.0.3 is %v, %v", ref, ok)
	}
	if len(s.Pods()) != 4 || s.Number != 1 {
		t.Errorf("%d pods, number %d", len(s.Pods()), s.Number)
	}
}

// TestSecondInterfaces: a policy applies to the first interface of a pod, and each
// selected pod's further interfaces are reported.
func TestSecondInterfaces(t *testing.T) {
	several, free, finished, host := aPod("several", "x", "10.0.0.1"), aPod("free", "y", "10.0.0.2"), aPod("done", "x", "10.0.0.3"), aPod("host", "x", "192.0.2.1")
	for _, p := range []*policy.Pod{&several, &free, &finished, &host} {
		p.SecondInterfaces = true
	}
	finished.Phase, host.HostNetwork = "Failed", true
	c := New()
	in := Input{Pods: []policy.Pod{several, free, finished, host, aPod("one", "x", "10.0.0.4")},
		Policies: []*v1alpha1.FQDNNetworkPolicy{aPolicy("q", "x", aRule("a.test")), aPolicy("p", "x")}}
	s := c.Compile(in)
	if len(s.Problems) != 2 || s.Problems[0].Reason != policy.ReasonHostNetwork || len(s.Views) != 2 {
		t.Fatalf("problems %v, views %v", s.Problems, s.Views)
	}
	got := s.Problems[1]
	diff.Has(t, "shop/p, shop/q cannot hold", got.Message, "message")
	got.Message = ""
	want := policy.Problem{Object: "pod shop/several", Reason: policy.ReasonSecondInterface, Pod: several.PodRef, Policies: []string{"shop/p", "shop/q"}}
	diff.Error(t, want, got)
	before := s.ViewOf(several.PodRef)
	in.Pods = slices.Clone(in.Pods)
	in.Pods[0].SecondInterfaces = false
	s = c.Compile(in)
	if v := s.ViewOf(several.PodRef); v.Pod.SecondInterfaces || v == before || len(s.Problems) != 1 {
		t.Errorf("after the interfaces went: %v, problems %v", v.Pod, s.Problems)
	}
}

// TestPodsThatAreNotSelected: finished, of another node, on the host network.
func TestPodsThatAreNotSelected(t *testing.T) {
	succeeded, failed, remote, host := aPod("done", "x", "10.0.0.1"), aPod("failed", "x", "10.0.0.1"), aPod("remote", "x", "10.0.1.1"), aPod("host", "x", "192.0.2.1")
	succeeded.Phase, failed.Phase, remote.NodeName, host.HostNetwork = "Succeeded", "Failed", "node-b", true
	heir := aPod("heir", "x", "10.0.0.1") // of the address that the finished ones held
	s := compile([]policy.Pod{succeeded, failed, remote, host, heir}, aPolicy("p", "", aRule("a.test")))
	if len(s.Views) != 1 || s.View(addr("10.0.0.1")) == nil || s.View(addr("10.0.0.1")).Pod.Name != "heir" {
		t.Errorf("views %v", s.Views)
	}
	if ref, ok := s.Pod(addr("10.0.1.1")); !ok || ref.Name != "remote" {
		t.Errorf("the remote pod is %v, %v", ref, ok)
	}
	if ref, ok := s.Pod(addr("192.0.2.1")); ok {
		t.Errorf("the node's address is that of %v", ref)
	}
	if len(s.Problems) != 1 || s.Problems[0].Object != "pod shop/host" || s.Problems[0].Reason != policy.ReasonHostNetwork ||
		!strings.Contains(s.Problems[0].Message, "shop/p cannot hold for it") {
		t.Errorf("problems %v", s.Problems)
	}
	diff.Equal(t, 5, len(s.Pods()), "pods")
	for _, p := range s.Pods() {
		if p.Finished() && p.IPs != nil {
			t.Errorf("the finished pod %v holds %v", p, p.IPs)
		}
	}
	if got := compile([]policy.Pod{host}).Problems; got != nil {
		t.Errorf("an unselected host-network pod is a problem: %v", got)
	}
}

// TestAddressConflict: what two pods of the node claim is closed if one of them
// is default-deny, and their other addresses work.
func TestAddressConflict(t *testing.T) {
	web, db := aPod("web", "web", "10.0.0.1", "10.0.0.2", "2001:db8::2"), aPod("db", "db", "10.0.0.2", "10.0.0.3", "2001:db8::2")
	open := aPolicy("open", "web", aRule("**"))
	open.Spec.DNS.Unmatched = v1alpha1.UnmatchedRefuse
	watch := audited(aPolicy("watch", "db", aRule("**")))
	for name, c := range map[string]struct {
		policies []*v1alpha1.FQDNNetworkPolicy
		closed   bool // a closed view has the addresses in conflict
		enforced bool
		policy   string
	}{
		"both selected":    {[]*v1alpha1.FQDNNetworkPolicy{open, watch}, true, true, "shop/open shop/watch"},
		"one enforced":     {[]*v1alpha1.FQDNNetworkPolicy{open}, true, true, "shop/open"},
		"one only audited": {[]*v1alpha1.FQDNNetworkPolicy{watch}, true, false, "shop/watch"},
		"none selected":    {nil, false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := compile([]policy.Pod{web, db}, c.policies...)
			v := s.View(addr("10.0.0.2"))
			ref, known := s.Pod(addr("10.0.0.2"))
			if !known {
				t.Error("the address is no pod's: an outside name could point at it")
			}
			if !c.closed {
				if v != nil || len(s.Problems) > 0 || ref.Name != "db" {
					t.Errorf("view %v, problems %v, pod %v", v, s.Problems, ref)
				}
				return
			}
			if v == nil || v.Enforced != c.enforced || strings.Join(v.Policies, " ") != c.policy || ref != v.Pod.PodRef || s.View(addr("2001:db8::2")) != v {
				t.Fatalf("view %+v", v)
			}
			if v.Pod.Name != "db+web" || !slices.Equal(v.Pod.IPs, []netip.Addr{addr("10.0.0.2"), addr("2001:db8::2")}) || s.ViewOf(ref) != v {
				t.Errorf("it stands for %v", v.Pod)
			}
			if v.Decide(policytest.Name("a.test")).Matches != nil || v.PortSets() != nil || len(slices.Concat(v.ExactNames())) > 0 || len(v.Rules.Namespace) > 0 {
				t.Error("the address in conflict may do something")
			}
			for _, own := range s.Views {
				if own != v && (slices.Contains(own.Pod.IPs, addr("10.0.0.2")) || own.Decide(policytest.Name("a.test")).Matches == nil) {
					t.Errorf("the view of %v: addresses %v", own.Pod, own.Pod.IPs)
				}
			}
			if !slices.IsSortedFunc(s.Views, func(a, b *policy.View) int { return a.Pod.Compare(b.Pod.PodRef) }) {
				t.Error("the views are not sorted")
			}
			if len(s.Problems) != 4 || s.Problems[0].Object != "pod shop/db" || s.Problems[0].Reason != policy.ReasonAddressConflict ||
				s.Problems[0].Message != "shop/db and shop/web claim the address 10.0.0.2; nothing is allowed for it until one of them is gone" {
				t.Errorf("problems %v", s.Problems)
			}
		})
	}
	diff.Equal(t, 3, len(web.IPs), "addresses of the input afterwards")
}

// TestAddressConflictAcrossNodes: a pod of another node cannot send from here.
func TestAddressConflictAcrossNodes(t *testing.T) {
	local, remote := aPod("web", "web", "10.0.0.1"), aPod("a", "web", "10.0.0.1")
	remote.NodeName = "node-b"
	s := compile([]policy.Pod{remote, local}, aPolicy("p", "", aRule("a.test")))
	if v := s.View(addr("10.0.0.1")); v == nil || v.Pod.Name != "web" || len(s.Problems) > 0 {
		t.Errorf("view %v, problems %v", v, s.Problems)
	}
	if ref, _ := s.Pod(addr("10.0.0.1")); ref.Name != "web" {
		t.Errorf("pod %v", ref)
	}
}

func TestGivenTwice(t *testing.T) {
	pod := aPod("web", "web", "10.0.0.1", "::ffff:10.0.0.1")
	s := compile([]policy.Pod{pod, pod}, aPolicy("p", "", aRule("first.test")), aPolicy("p", "", aRule("second.test")))
	if len(s.Views) != 1 || s.Views[0].Decide(policytest.Name("first.test")).Matches == nil || s.Views[0].Decide(policytest.Name("second.test")).Matches != nil {
		t.Errorf("views %v", s.Views)
	}
	diff.Error(t, []netip.Addr{addr("10.0.0.1")}, s.Views[0].Pod.IPs, "addresses")
	if len(s.Problems) != 2 || s.Problems[0].Object != "pod shop/web" || s.Problems[1].Object != "policy shop/p" {
		t.Errorf("problems %v", s.Problems)
	}
}

func TestNilSnapshot(t *testing.T) {
	var s *policy.Snapshot
	if _, ok := s.Pod(addr("10.0.0.1")); ok || s.View(addr("10.0.0.1")) != nil || s.ViewOf(policy.PodRef{}) != nil || s.Pods() != nil {
		t.Error("a nil snapshot knows something")
	}
}

// TestUnchangedViewsStay: an unchanged view keeps its pointer.
func TestUnchangedViewsStay(t *testing.T) {
	c := New()
	in := Input{
		Policies: []*v1alpha1.FQDNNetworkPolicy{aPolicy("web", "web", aRule("a.test")), aPolicy("db", "db", aRule("a.test"))},
		Pods:     []policy.Pod{aPod("web", "web", "10.0.0.1"), aPod("db", "db", "10.0.0.2"), aPod("x+y", "z", "10.0.0.3"), aPod("z", "db", "10.0.0.3")},
	}
	first := c.Compile(in)
	in.Policies = []*v1alpha1.FQDNNetworkPolicy{in.Policies[0].DeepCopy(), aPolicy("db", "db", aRule("b.test"))}
	second := c.Compile(in)
	at := func(s *policy.Snapshot, a string) *policy.View { return s.View(addr(a)) }
	diff.Equal(t, at(second, "10.0.0.1"), at(first, "10.0.0.1"), "the view of an unchanged pod")
	if at(first, "10.0.0.2") == at(second, "10.0.0.2") || at(first, "10.0.0.2").Decide(policytest.Name("a.test")).Matches == nil {
		t.Error("the view of a changed policy is not new, or the old one was changed")
	}
	if at(first, "10.0.0.3") != at(second, "10.0.0.3") || at(first, "10.0.0.3") == nil {
		t.Error("the closed view is new")
	}
	diff.Equal(t, 2, second.Number, "number")
}

func patterns(r *policy.Rule) (out []string) {
	for _, m := range r.Matches {
		out = append(out, m.Pattern.String())
	}
	return out
}

// dump is all that a snapshot says, to compare two of them.
func dump(t *testing.T, s *policy.Snapshot, names []fqdn.Name) string {
	t.Helper()
	var b strings.Builder
	for _, v := range s.Views {
		fmt.Fprintln(&b, v.Pod, v.Pod.Labels, v.Pod.IPs, v.Pod.Phase, v.Enforced, v.Denied, v.Unmatched, v.Policies, v.PortSets(), slices.Concat(v.ExactNames()), len(v.Rules.Namespace))
		for r := range v.Rules.All() {
			fmt.Fprintln(&b, "  ", r.Policy, r.Path, r.Peer, patterns(r), r.Ports, r.TTL, r.Audit, r.ServerName, r.ID)
		}
		for _, n := range names {
			fmt.Fprintln(&b, "  ", n, matchPaths(v.Decide(n)))
		}
	}
	fmt.Fprintln(&b, s.Problems)
	for _, p := range s.Pods() {
		fmt.Fprintln(&b, p, p.UID, p.Labels, p.IPs, p.Phase, p.NodeName, p.HostNetwork)
		for _, a := range p.IPs {
			ref, ok := s.Pod(a)
			fmt.Fprintln(&b, "  ", a, ref, ok, s.View(a) != nil)
		}
	}
	return b.String()
}

// spent returns the processor time that f takes, on however busy a machine.
func spent(t *testing.T, f func()) time.Duration {
	t.Helper()
	used := func() time.Duration {
		var r syscall.Rusage
		fatal.If(t, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	before := used()
	f()
	return used() - before
}

func TestSameButPeers(t *testing.T) {
	net := aNet(t, "db", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]}")
	db := farPod("shop/db", "app=db", "10.2.0.1")
	for _, c := range []struct {
		what   string
		change func(*Input)
		same   bool
	}{
		{"nothing", func(*Input) {}, true},
		{"a peer comes", func(in *Input) { in.Remote = append(slices.Clone(in.Remote), farPod("shop/db2", "app=db", "10.2.0.2")) }, true},
		{"a peer has other labels", func(in *Input) { in.Remote = []*policy.Pod{farPod("shop/db", "app=web", "10.2.0.1")} }, true},
		{"a pod of the node that nobody selects comes", func(in *Input) {
			p := *farPod("lone/new", "app=new", "10.1.0.9")
			p.NodeName = ""
			in.Pods = append(slices.Clone(in.Pods), p)
		}, false},
		{"a pod has another address", func(in *Input) {
			in.Pods = slices.Clone(in.Pods)
			in.Pods[0].IPs = farPod("shop/web", "", "10.1.0.77").IPs
		}, false},
		{"a policy goes", func(in *Input) { in.Policies = nil }, false},
		{"a NetworkPolicy goes", func(in *Input) { in.NetworkPolicies = nil }, false},
	} {
		in, compiler := besideInput([]*policy.Pod{db}, net), New()
		before := compiler.Compile(in)
		c.change(&in)
		after := compiler.Compile(in)
		if after.SameButPeers(before) != c.same || before.SameButPeers(after) != c.same {
			t.Errorf("%s: same %v, want %v", c.what, !c.same, c.same)
		}
		if after.SameButPeers(nil) || (*policy.Snapshot)(nil).SameButPeers(before) {
			t.Errorf("%s: the same as none", c.what)
		}
	}
}

// TestDefer: a pod that becomes isolated stays as it was, if it can, and all others are
// as the newer snapshot has them.
func TestDefer(t *testing.T) {
	db := aPod("db", "db", "10.0.0.2")
	last := []policy.Pod{aPod("web", "web", "10.0.0.1"), db}
	for _, c := range []struct {
		what            string
		before          []policy.Pod
		policies        []*v1alpha1.FQDNNetworkPolicy // in last
		after           []policy.Pod
		deferred, known bool
	}{
		{"a pod that was there", last, nil, last, true, true},
		{"a pod that comes", []policy.Pod{db}, nil, last, true, false},
		{"a pod that was audited", last, []*v1alpha1.FQDNNetworkPolicy{audited(aPolicy("seen", "web", aRule("a.test")))}, last, true, true},
		{"a pod that was isolated", last, []*v1alpha1.FQDNNetworkPolicy{aPolicy("old", "web")}, last, false, true},
		{"a pod with another's address", []policy.Pod{aPod("old", "old", "10.0.0.1"), db}, nil, last, false, true},
		{"a pod with one address more", last, nil, []policy.Pod{aPod("web", "web", "10.0.0.1", "2001:db8::1"), db}, false, true},
	} {
		compiler := New()
		before := compiler.Compile(Input{Pods: c.before, Policies: c.policies})
		now := compiler.Compile(Input{Pods: c.after, Policies: []*v1alpha1.FQDNNetworkPolicy{aPolicy("new", "web", aRule("www.example.org")), aPolicy("db", "db", aRule("db.test"))}})
		web := now.View(addr("10.0.0.1")).Pod.PodRef
		got := now.Defer(before, map[policy.PodRef]bool{web: true, {Name: "nobody"}: true})
		if (got != now) != c.deferred {
			t.Errorf("%s: deferred %v", c.what, got != now)
			continue
		}
		if got.Isolates(web) == c.deferred || got.ViewOf(web) != before.ViewOf(web) && c.deferred || got.View(addr("10.0.0.1")) != got.ViewOf(web) {
			t.Errorf("%s: the pod's view is %v", c.what, got.ViewOf(web))
		}
		_, known := got.Pod(addr("10.0.0.1"))
		listed := slices.ContainsFunc(got.Pods(), func(p policy.Pod) bool { return p.PodRef == web })
		if known != c.known || listed != c.known {
			t.Errorf("%s: the pod is known %v, listed %v", c.what, known, listed)
		}
		if !got.Isolates(db.PodRef) || got.ViewOf(db.PodRef) != now.ViewOf(db.PodRef) || !slices.Contains(got.Views, now.ViewOf(db.PodRef)) {
			t.Errorf("%s: a neighbour waits too", c.what)
		}
		if !slices.IsSortedFunc(got.Views, func(a, b *policy.View) int { return a.Pod.Compare(b.Pod.PodRef) }) {
			t.Errorf("%s: views %v", c.what, got.Views)
		}
		if !now.Isolates(web) || now.View(addr("10.0.0.1")) != now.ViewOf(web) {
			t.Errorf("%s: the snapshot itself has changed", c.what)
		}
	}
}
