package compile

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/short"
)

// change changes one object of a world, without writing into the compiler's input.
func (d netDice) change(in Input) Input {
	in.Pods, in.Remote, in.NetworkPolicies = slices.Clone(in.Pods), slices.Clone(in.Remote), slices.Clone(in.NetworkPolicies)
	switch d.IntN(14) {
	case 0:
		in.Namespaces = d.namespaces()
	case 1:
		if len(in.NetworkPolicies) > 0 {
			i := d.IntN(len(in.NetworkPolicies))
			in.NetworkPolicies = slices.Delete(in.NetworkPolicies, i, i+1)
		}
	case 2, 9, 10:
		n := d.policy(fmt.Sprintf("np%d", d.IntN(10)))
		in.NetworkPolicies = slices.DeleteFunc(in.NetworkPolicies, func(o *networkingv1.NetworkPolicy) bool { return o.Namespace == n.Namespace && o.Name == n.Name })
		in.NetworkPolicies = append(in.NetworkPolicies, n)
	case 3: // the same in other memory
		for i := range in.NetworkPolicies {
			in.NetworkPolicies[i] = in.NetworkPolicies[i].DeepCopy()
		}
	case 4, 11:
		p := d.pod(fmt.Sprintf("pod%d", d.IntN(5)))
		p.NodeName = roll(d, "", "", "far")
		in.Pods = slices.DeleteFunc(in.Pods, func(o policy.Pod) bool { return o.Name == p.Name })
		in.Pods = append(in.Pods, *p)
	case 5:
		if len(in.Remote) > 0 {
			i := d.IntN(len(in.Remote))
			in.Remote = slices.Delete(in.Remote, i, i+1)
		}
	case 6: // the policies of FQDNs leave a namespace, or come back
		in.Policies = slices.Clone(in.Policies)
		in.Policies[1] = in.Policies[1].DeepCopy()
		in.Policies[1].Namespace = roll(d, "bank", "lone")
	case 7: // other labels alone
		if len(in.Remote) > 0 {
			i := d.IntN(len(in.Remote))
			p := *in.Remote[i]
			p.Labels = d.labels()
			in.Remote[i] = &p
		}
	default:
		p := d.pod(fmt.Sprintf("far%d", d.IntN(10)))
		p.NodeName = "far"
		in.Remote = append(slices.DeleteFunc(in.Remote, func(o *policy.Pod) bool { return o.Name == p.Name }), p)
	}
	return in
}

func netDump(s *policy.Snapshot) string {
	var b strings.Builder
	for _, v := range s.Views {
		fmt.Fprintln(&b, v.Pod, v.Pod.Ports, v.NetworkPolicies)
		fmt.Fprintln(&b, strings.Join(ruleTexts(v), "\n"))
		fmt.Fprintln(&b, strings.Join(ingressTexts(v), "\n"))
	}
	fmt.Fprintln(&b, strings.Join(setTexts(s), "\n"))
	fmt.Fprintln(&b, s.Problems)
	return b.String()
}

// TestPeerHistories lets one compiler follow many short histories: its result equals a
// new compiler's and the twin's, and unchanged parts keep their pointers.
func TestPeerHistories(t *testing.T) {
	kept, changed := 0, 0
	rounds := short.Rounds(40, 40, 400)
	for seed := range uint64(rounds) {
		d := netDice{rand.New(rand.NewPCG(seed, 13))}
		in, c := d.withStandards(d.input()), New()
		for range 40 {
			in = d.change(in)
		}
		last := &policy.Snapshot{}
		lastIn := in
		for step := range 25 {
			for range d.IntN(4) {
				in = d.changeIngress(in)
			}
			s, fresh := c.Compile(in), New().Compile(in)
			diff.Fatal(t, netDump(fresh), netDump(s), "seed", seed, "step", step)
			if step%8 == 7 {
				compareWithTwin(t, in, s)
			}
			if len(c.egress.known) > len(in.NetworkPolicies) || len(c.sets) != len(s.PeerSets) || len(c.egress.unions) > len(s.Views) || len(c.ingress.unions) > len(s.Views) || len(c.ingresses) > len(s.Views) {
				t.Fatalf("seed %d, step %d: the compiler keeps %d NetworkPolicies, %d sets and %d unions", seed, step, len(c.egress.known), len(c.sets), len(c.egress.unions))
			}
			k, n := comparePointers(t, lastIn, last, in, s)
			kept, changed = kept+k, changed+n
			last, lastIn = s, in
		}
	}
	if kept < 400 || changed < 400 {
		t.Errorf("%d pointers kept and %d new: the histories are too simple", kept, changed)
	}
}

// comparePointers checks that equal parts are the same pointer, and counts them.
func comparePointers(t *testing.T, lastIn Input, last *policy.Snapshot, in Input, s *policy.Snapshot) (kept, changed int) {
	t.Helper()
	for _, set := range s.PeerSets {
		was := last.PeerSet(set.Peer)
		if same := was != nil && cmp.Equal(was, set, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); same != (was == set) {
			t.Fatalf("%v is another pointer: %v, was equal: %v", set.Peer, was != set, same)
		}
		if was == set {
			kept++
		} else {
			changed++
		}
	}
	selecting := func(in Input, v *policy.View) string {
		var out []string
		for _, n := range in.NetworkPolicies {
			if w := (netTwin{in}); w.selectsFor(n, &v.Pod, false) || w.selectsFor(n, &v.Pod, true) {
				text, err := json.Marshal(n.Spec)
				fatal.If(t, err)
				out = append(out, n.Name+string(text))
			}
		}
		slices.Sort(out)
		for _, p := range in.ClusterNetworkPolicies {
			text, err := json.Marshal(p)
			fatal.If(t, err)
			out = append(out, string(text))
		}
		return fmt.Sprint(in.EnforceNetworkPolicies, in.Namespaces[v.Pod.Namespace], len(in.Policies), strings.Join(out, "\n"))
	}
	for _, v := range s.Views {
		was := last.ViewOf(v.Pod.PodRef)
		joint := in.EnforceNetworkPolicies && strings.Contains(v.Pod.UID, "+") // its policies are those of its claimants
		if was == nil || !was.Pod.Same(&v.Pod) || !slices.Equal(was.Policies, v.Policies) || joint || selecting(lastIn, was) != selecting(in, v) {
			continue
		}
		diff.MustEqual(t, v, was, v.Pod, "the view without a change")
		kept++
	}
	return kept, changed
}
