package enforcer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// busy is a node in the midst of its life and the change that comes next: a pod
// goes, one comes, one becomes selected with connections open, one's ports
// change, one of two policies goes, an address gets another owner.
func busy(t *testing.T) (*world, *policy.Snapshot) { return busyOn(t, iptablesPlane) }

// busyOn is busy with a dataplane.
func busyOn(t *testing.T, plane string) (*world, *policy.Snapshot) {
	w := newWorldOn(t, plane)
	for a, h := range map[string]link.Home{
		"10.1.0.5": {Iface: "veth5"}, "2001:db8:1::5": {Iface: "veth5"}, "10.1.0.6": {Iface: "br0", Port: "port6"},
		"10.1.0.7": {Iface: "veth7"}, "10.1.0.8": {Iface: "br0", Port: "port8"},
	} {
		w.links.SetHome(addr(a), h)
	}
	web, gone, late := pod("web", "10.1.0.5 2001:db8:1::5", "one", "two"), pod("gone", "10.1.0.6 10.1.0.9", "two"), pod("late", "10.1.0.7", "three")
	one, two := pol("one", "tcp/443 www.example.org"), pol("two", "tcp/443 www.example.net", "tcp/25 mail.test")
	w.apply([]policy.Pod{web, gone, late}, one, two)
	w.answer(web, "www.example.org", 60, "192.0.2.1 2001:db8::1 192.0.2.3")
	w.answer(web, "www.example.net", 90, "192.0.2.2 192.0.2.3")
	w.answer(web, "mail.test", 90, "192.0.2.4")
	w.answer(gone, "www.example.net", 60, "192.0.2.2")
	for _, f := range []string{
		"10.1.0.5:1001 192.0.2.1:443", "10.1.0.5:1002 192.0.2.2:443", "10.1.0.5:1003 192.0.2.4:25", "[2001:db8:1::5]:1001 [2001:db8::1]:443",
		"10.1.0.6:1001 192.0.2.2:443", "10.1.0.7:1001 192.0.2.53:53", "10.1.0.7:1002 192.0.2.9:443",
	} {
		src, dst, _ := strings.Cut(f, " ")
		w.track(src, dst)
	}
	w.clock.Pass(10 * time.Second)
	two = pol("two", "tcp/443,tcp/8443 www.example.net", "tcp/25 mail.test")
	heir := pod("heir", "10.1.0.8 10.1.0.9", "two")
	next := w.compile([]policy.Pod{web, heir, late}, two, pol("three", "udp/53 dns.test"))
	return w, next
}

// all is everything that must be equal: the kernel and the connections' marks.
func (w *world) all() string {
	w.t.Helper()
	var lines []string
	for i := range 10 {
		flows, err := w.flows.Flows(conntrack.Query{Sources: addrs(fmt.Sprintf("10.1.0.%d", i))})
		fatal.If(w.t, err)
		for _, f := range flows {
			lines = append(lines, fmt.Sprintf("flow %s %s %#x", f.Src, f.Dst, f.Mark))
		}
	}
	slices.Sort(lines)
	return w.dump() + "\n" + strings.Join(lines, "\n")
}

// maxSteps bounds the loops over every step of a roll-out.
const maxSteps = 400

// fault is a world after one step failed.
type fault struct {
	*world
	step, when string
	err        error // of what the step belongs to
}

// eachFault has each step of what run does in a world fail in turn, before it is done and, if
// late, after it, and calls after. There must be so many steps at least.
func eachFault(t *testing.T, least int, late bool, begin func() (w *world, run func() error), after func(f fault)) {
	t.Helper()
	for _, late := range []bool{false, true}[:map[bool]int{false: 1, true: 2}[late]] {
		n := 1
		for ; n < maxSteps; n++ {
			w, run := begin()
			w.seams.forget(n, late)
			err := run()
			if w.seams.steps < n {
				break
			}
			f := fault{w, w.seams.failed, fmt.Sprintf("step %d, %q, failed (late: %t)", n, w.seams.failed, late), err}
			w.seams.forget(0, false)
			after(f)
		}
		if n < least || n == maxSteps {
			t.Errorf("there are %d steps: the test does not see them", n)
		}
	}
}

// told asserts that what a step belongs to failed with it, unless it was made good: a transaction
// of iptables that is refused is tried once more, from the chains that are there then, as a set of
// grants is that is not made, and the second net that could not be changed is made anew.
func (f fault) told() {
	f.t.Helper()
	good := f.err == nil && (strings.HasPrefix(f.step, "restore") || strings.HasPrefix(f.step, "ensure") || f.step == "nft net")
	if !errors.Is(f.err, errInjected) && !good {
		f.t.Errorf("%s, and the error is %v", f.when, f.err)
	}
}

// retried asserts that a retry makes all that was wanted.
func (f fault) retried(retry func() error, want string) {
	f.t.Helper()
	if err := retry(); err != nil {
		f.t.Errorf("%s; the retry says %v", f.when, err)
	} else if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(f.all(), "\n")); diff != "" {
		f.t.Errorf("%s; after a retry (-want +got):\n%s", f.when, diff)
	}
}

// leastSteps are how many steps a roll-out of busy has at least.
var leastSteps = map[string]int{iptablesPlane: 30, nftablesPlane: 15}

func TestRetryRepairsEveryFaultOfARollOut(t *testing.T) {
	t.Parallel()
	eachPlane(t, func(t *testing.T, plane string) {
		testFaults(t, leastSteps[plane], true, func() (*world, *policy.Snapshot) { return busyOn(t, plane) })
	})
}

func TestRetryRepairsEveryFaultOfARestart(t *testing.T) {
	t.Parallel()
	eachPlane(t, func(t *testing.T, plane string) {
		testFaults(t, 0, false, func() (*world, *policy.Snapshot) {
			w, _ := busyOn(t, plane)
			w.restart()
			web := pod("web", "10.1.0.5 2001:db8:1::5", "one", "two")
			return w, w.compile([]policy.Pod{web, pod("late", "10.1.0.7", "three")}, pol("one", "tcp/443 www.example.org"), pol("three", "udp/53 dns.test"))
		})
	})
}

// testFaults has a retry repair each fault of the roll-out of the next snapshot.
func testFaults(t *testing.T, least int, late bool, begin func() (w *world, next *policy.Snapshot)) {
	w, next := begin()
	fatal.If(t, w.rollOut(next))
	want := w.all()
	eachFault(t, least, late, func() (*world, func() error) {
		w, next = begin()
		return w, func() error { return w.rollOut(next) }
	}, func(f fault) {
		f.told()
		f.retried(func() error { return f.rollOut(next) }, want)
	})
}

// TestNoFaultOpensAnything matters more than the repair by a retry: a roll-out
// that stops anywhere leaves no pod with more rights than the two snapshots allow, and a
// newly selected pod only with the rights of the coming one. It stays so while the same
// snapshot, or the next one, is prepared again and the kernel is compared meanwhile.
func TestNoFaultOpensAnything(t *testing.T) {
	t.Parallel()
	var next *policy.Snapshot
	eachFault(t, leastSteps[iptablesPlane], true, func() (w *world, run func() error) {
		w, next = busy(t)
		return w, func() error { return w.rollOut(next) }
	}, func(f fault) {
		f.told()
		f.allowsNoMore(f.when)
		if err := f.e.Prepare(context.Background(), next); err != nil {
			t.Errorf("%s: %v", f.when, err)
		}
		f.allowsNoMore(f.when + ", and it is prepared again")
		f.reconcile()
		f.allowsNoMore(f.when + ", and it is prepared again and compared")
	})
}

// allowsNoMore looks at what the snapshots of busy do not allow.
func (w *world) allowsNoMore(when string) {
	w.t.Helper()
	for _, d := range []struct {
		src, dst string
		port     uint16
	}{
		{"10.1.0.5", "192.0.2.9", 443}, {"10.1.0.5", "192.0.2.1", 80}, {"10.1.0.5", "192.0.2.1", 8443},
		{"2001:db8:1::5", "2001:db8::1", 80}, {"10.1.0.6", "192.0.2.1", 443},
		// These become selected.
		{"10.1.0.7", "192.0.2.9", 443}, {"10.1.0.8", "192.0.2.9", 443},
	} {
		becomes := d.src == "10.1.0.7" || d.src == "10.1.0.8"
		if (becomes || slices.Contains(w.selected(), d.src)) && w.dials(d.src, d.dst, d.port) {
			w.t.Errorf("%s: %s reaches %s port %d", when, d.src, d.dst, d.port)
		}
	}
}

// selected returns the addresses that are default-deny in the kernel.
func (w *world) selected() []string {
	var out []string
	for _, f := range ipVersions {
		es, err := w.sets.List(setPrefix(f) + setSelected)
		fatal.If(w.t, err)
		for _, e := range es {
			out = append(out, e.Addr.String())
		}
	}
	return out
}

func TestFaultsWhileOthersWait(t *testing.T) {
	t.Parallel()
	w, next := busy(t)
	w.seams.refuse = "restore"
	if err := w.rollOut(next); !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	w.seams.refuse = ""
	for _, a := range []string{"10.1.0.5", "2001:db8:1::5", "10.1.0.6", "10.1.0.7", "10.1.0.8"} {
		w.links.SetHome(addr(a), link.Home{})
	}
	// The source moved on: another snapshot comes instead of the same again.
	after := w.compile(nil, []*v1alpha1.FQDNNetworkPolicy{}...)
	fatal.If(t, w.rollOut(after))
	if got := w.selected(); len(got) != 0 {
		t.Errorf("still denied: %v", got)
	}
	for _, set := range []string{dataplane.PodID(pod("web", "").PodRef), dataplane.PodID(pod("heir", "").PodRef)} {
		if strings.Contains(w.sets.Dump(), set) {
			t.Errorf("sets of %s are left", set)
		}
	}
}

// TestFailedFirstRollOutKeepsTheNodesRules: the first snapshot of an agent may fail at any step. The
// rules of the node that the agent before it left stay in force.
func TestFailedFirstRollOutKeepsTheNodesRules(t *testing.T) {
	t.Parallel()
	eachPlane(t, func(t *testing.T, plane string) {
		failed := 0
		eachFault(t, 2, false, func() (*world, func() error) {
			w := newWorldOn(t, plane)
			compiled := func(allow *v1alpha1.FQDNNetworkPolicy) *policy.Snapshot {
				return w.compiler.Compile(compile.Input{
					Pods: []policy.Pod{pod("web", "10.1.0.5", "allow")}, Policies: []*v1alpha1.FQDNNetworkPolicy{allow}, Node: &policy.Node{Name: "n1", Interfaces: []string{"eth0"}},
					NodePolicies: []*v1alpha1.NodeNetworkPolicy{policytest.NodePolicy(t, "nodes", "{nodeSelector: {}, priority: 1, egress: [{action: Deny}]}")},
				})
			}
			fatal.If(t, w.rollOut(compiled(pol("allow", "tcp/443 www.example.org"))))
			w.restart()
			return w, func() error { return w.rollOut(compiled(pol("allow", "tcp/8443 www.example.org"))) }
		}, func(f fault) {
			if errors.Is(f.err, errInjected) {
				failed++
			}
			if f.inet.Table.Chains["node-output"] == nil || !strings.Contains(f.inet.Dump(), "goto node-output-rejected") {
				t.Errorf("%s, and the node has no rules", f.when)
			}
		})
		if failed == 0 {
			t.Error("no step fails: the test does not see them")
		}
	})
}

// TestARetryAfterARestartKeepsHomes has each step of the first roll-out of a successor fail: a
// pod's address keeps its home while the same snapshot is prepared again, and its queries
// are intercepted.
func TestARetryAfterARestartKeepsHomes(t *testing.T) {
	t.Parallel()
	for _, home := range []link.Home{{Iface: "veth5"}, {Iface: "br0", Port: "port5"}} {
		var before []string
		var next *policy.Snapshot
		eachFault(t, 2, false, func() (*world, func() error) {
			w := newWorld(t)
			w.links.SetHome(addr("10.1.0.5"), home)
			web := pod("web", "10.1.0.5 2001:db8:1::5", "allow")
			w.apply([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
			before = w.nftElements()
			w.restart()
			next = w.compile([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
			return w, func() error { return w.rollOut(next) }
		}, func(f fault) {
			if !errors.Is(f.err, errInjected) {
				return
			}
			check := func(when string) {
				if f.at("10.1.0.5", "veth9", "") {
					t.Errorf("%s, %s: the pod's address passes on another pod's interface", f.when, when)
				}
				if gone := slices.DeleteFunc(slices.Clone(before), func(e string) bool { return slices.Contains(f.nftElements(), e) }); len(gone) > 0 {
					t.Errorf("%s, %s: nft has no more %q", f.when, when, gone)
				}
			}
			check("then")
			f.prepare(next)
			check("prepared again")
		})
	}
}

// nftElements returns the elements of the nft tables that are of no generation.
func (w *world) nftElements() (out []string) {
	for i, table := range []*knftables.Fake{w.inet, w.bridge} {
		for line := range strings.Lines(table.Dump()) {
			if words := strings.Fields(line); strings.HasPrefix(line, "add element") && !slices.Contains([]string{"intercept4", "intercept6", "giveback4", "giveback6"}, words[4]) {
				out = append(out, fmt.Sprint(i, words[4:]))
			}
		}
	}
	return out
}
