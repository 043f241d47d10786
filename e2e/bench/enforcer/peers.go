package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

const (
	// networkPolicies and remotePods are the cluster's, beside the node's maxPods pods.
	networkPolicies = 1_000
	remotePods      = 5_000
	// peerSpaces are the namespaces that all are spread over.
	peerSpaces = 50
	// tiers are what pods of other nodes are told apart by in a namespace, beside app.
	tiers = 4
)

var (
	peersState = fmt.Sprintf("%d NetworkPolicies, %d pods elsewhere, %d pods", networkPolicies, remotePods, maxPods)
	peerComes  = peersState + ", a peer comes"
	peerGoes   = peersState + ", a peer goes"
)

// peered is what the child of peers measured, in ms: compiling everything, bringing it
// into force, and one pod's label change: its compile, and the whole of it where it
// makes the pod a peer, or none any more. Deltas are how many peer sets each change
// changed, Sets in how many sets of the kernel.
type peered struct {
	Compile, Full, ChangeCompile []float64
	Comes, Goes                  []float64
	Deltas, Sets                 []float64
	PeerSets, Entries            int
}

// peers measures NetworkPolicies beside policies: their compile, one pod's label
// change down to the kernel, and the agent's memory.
func (b *bench) peers() error {
	b.Note("peers: %s", peersState)
	var p peered
	for range nodesApplied {
		var once peered
		if err := b.onNewNode("peers", &once); err != nil {
			return err
		}
		p.Compile, p.Full = append(p.Compile, once.Compile...), append(p.Full, once.Full...)
		p.ChangeCompile = append(p.ChangeCompile, once.ChangeCompile...)
		p.Comes, p.Goes = append(p.Comes, once.Comes...), append(p.Goes, once.Goes...)
		p.Deltas, p.Sets = append(p.Deltas, once.Deltas...), append(p.Sets, once.Sets...)
		p.PeerSets, p.Entries = once.PeerSets, once.Entries
	}
	b.Note("peers: %d peer sets with %d entries; a change writes to %g sets of the kernel at most; in force after %.0f ms", p.PeerSets, p.Entries,
		slices.Max(p.Sets), figure.Median(p.Full))
	for _, m := range []struct {
		name, unit, state string
		value             float64
	}{
		{"peers.compile_ms", "ms", peersState, figure.Median(p.Compile)},
		{"peers.apply_ms", "ms", peersState, figure.Median(p.Full)},
		{"peers.change_compile_ms", "ms", peersState, figure.Median(p.ChangeCompile)},
		{"peers.change_ms", "ms", peerComes, figure.Median(p.Comes)},
		{"peers.change_ms", "ms", peerGoes, figure.Median(p.Goes)},
		{"peers.change_deltas", "sets", peersState, slices.Max(p.Deltas)},
	} {
		b.Note("%s, %s: %.3g", m.name, m.state, m.value)
		if err := b.Report(figure.Figure{Name: m.name, Value: m.value, Unit: m.unit, State: m.state}, 0); err != nil {
			return err
		}
	}
	return b.peersMemory()
}

// peersChild is the child of peers; outside is the namespace that it must not be in.
func peersChild(outside string, rounds int, out io.Writer) error {
	if err := inside(outside); err != nil {
		return err
	}
	e, sets, err := openEnforcer()
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := e.Start(ctx); err != nil {
		return err
	}
	var p peered
	in, c := peerCluster(), compile.New()
	var last *policy.Snapshot
	force := func() (compile, whole float64, err error) {
		began := time.Now()
		last = c.Compile(in)
		compile = time.Since(began).Seconds() * 1e3
		if err = e.Prepare(ctx, last); err == nil {
			err = e.Commit(ctx)
		}
		return compile, time.Since(began).Seconds() * 1e3, err
	}
	compile, whole, err := force()
	if err != nil {
		return err
	}
	if len(last.Views) != maxPods || len(last.Problems) > 0 {
		return fmt.Errorf("%d pods are selected and there are %d problems", len(last.Views), len(last.Problems))
	}
	p.Compile, p.Full, p.PeerSets = append(p.Compile, compile), append(p.Full, whole), len(last.PeerSets)
	for _, s := range last.PeerSets {
		p.Entries += len(s.Addrs) + len(s.Networks) + len(s.Ports)
	}
	for turn := 1; turn <= 2*rounds; turn++ {
		before := last.PeerSets
		in.Remote = relabelled(in.Remote, turn)
		sets.forget()
		compile, whole, err := force()
		if err != nil {
			return err
		}
		changed := 0
		for i, s := range last.PeerSets {
			if len(before) != len(last.PeerSets) || before[i] != s {
				changed++
			}
		}
		if changed == 0 || len(sets.entries) == 0 {
			return fmt.Errorf("turn %d changed nothing", turn)
		}
		p.ChangeCompile = append(p.ChangeCompile, compile)
		if turn%2 == 0 {
			p.Comes = append(p.Comes, whole)
		} else {
			p.Goes = append(p.Goes, whole)
		}
		p.Deltas, p.Sets = append(p.Deltas, float64(changed)), append(p.Sets, float64(len(sets.entries)))
	}
	return json.NewEncoder(out).Encode(p)
}

// relabelled returns the pods with another tier of one: one that a rule asks for, or
// none that any does, by whether turn is even.
func relabelled(pods []*policy.Pod, turn int) []*policy.Pod {
	out := slices.Clone(pods)
	p := *out[0]
	p.Labels = maps.Clone(p.Labels)
	p.Labels["tier"] = "none"
	if turn%2 == 0 {
		p.Labels["tier"] = tier(0)
	}
	out[0] = &p
	return out
}

func peerSpace(i int) string { return fmt.Sprintf("ns-%d", i%peerSpaces) }

func tier(i int) string { return fmt.Sprintf("tier-%d", i%tiers) }

func team(space int) string { return fmt.Sprintf("team-%d", space%10) }

// peerCluster is a cluster in which each pod of the node is selected by a policy and
// by a fifth of its namespace's NetworkPolicies, each of which allows pods of its own
// namespace, pods of other namespaces, and a network less a part of it.
func peerCluster() compile.Input {
	in := compile.Input{Namespaces: map[string]map[string]string{}}
	for i := range peerSpaces {
		name := peerSpace(i)
		in.Namespaces[name] = map[string]string{"kubernetes.io/metadata.name": name, "team": team(i)}
		p := v1alpha1.FQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "names"}}
		p.Spec.Egress = []v1alpha1.EgressRule{rule([]int32{443}, "www.example.org", "*.example.org")}
		in.Policies = append(in.Policies, p)
	}
	for i := range maxPods {
		a4, a6 := podAddrs(i)
		in.Pods = append(in.Pods, policy.Pod{
			PodRef: policy.PodRef{Namespace: peerSpace(i), Name: fmt.Sprintf("pod-%04d", i), UID: fmt.Sprint(i)},
			Labels: map[string]string{"app": group(i, peerSpaces), "hash": fmt.Sprint(i)},
			IPs:    []netip.Addr{a4, a6},
		})
	}
	for i := range remotePods {
		in.Remote = append(in.Remote, remotePod(i))
	}
	for i := range networkPolicies {
		in.NetworkPolicies = append(in.NetworkPolicies, networkPolicy(i))
	}
	return in
}

func remotePod(i int) *policy.Pod {
	return &policy.Pod{
		PodRef: policy.PodRef{Namespace: peerSpace(i), Name: fmt.Sprintf("far-%04d", i), UID: fmt.Sprintf("far-%d", i)},
		Labels: map[string]string{"app": group(i, peerSpaces), "tier": tier(i / peerSpaces / groups), "pod-template-hash": fmt.Sprint(i % 97)},
		IPs: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 128 + byte(i/250), byte(i % 250), 7}),
			netip.MustParseAddr(fmt.Sprintf("2001:db8:%x:%x::7", i/250+1, i%250)),
		},
		NodeName: fmt.Sprintf("node-%d", i%100),
		Phase:    "Running",
		Ports:    []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: 8080}},
	}
}

func networkPolicy(i int) *networkingv1.NetworkPolicy {
	tcp := func(n int32) []networkingv1.NetworkPolicyPort {
		port := intstr.FromInt32(n)
		return []networkingv1.NetworkPolicyPort{{Port: &port}}
	}
	labels := func(pairs ...string) *metav1.LabelSelector {
		s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
		for j := 0; j < len(pairs); j += 2 {
			s.MatchLabels[pairs[j]] = pairs[j+1]
		}
		return s
	}
	nth := i / peerSpaces // in its namespace
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: peerSpace(i), Name: fmt.Sprintf("allow-%04d", i)},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *labels("app", fmt.Sprintf("app-%d", nth%groups)),
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{
				{ // one tier of its own application, which no other rule asks for
					To:    []networkingv1.NetworkPolicyPeer{{PodSelector: labels("app", fmt.Sprintf("app-%d", nth%groups), "tier", tier(nth/groups%tiers))}},
					Ports: tcp(5432),
				},
				{
					To:    []networkingv1.NetworkPolicyPeer{{NamespaceSelector: labels("team", team(i)), PodSelector: labels("app", fmt.Sprintf("app-%d", (nth+1)%groups))}},
					Ports: tcp(8080),
				},
				{
					To:    []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "198.18.0.0/15", Except: []string{fmt.Sprintf("198.18.%d.0/24", i%256)}}}},
					Ports: tcp(443),
				},
			},
		},
	}
}
