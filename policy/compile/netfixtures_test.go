package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// aNet reads the spec of a NetworkPolicy; it is shop's unless the name has a namespace.
func aNet(t testing.TB, name, spec string) *networkingv1.NetworkPolicy {
	t.Helper()
	n := &networkingv1.NetworkPolicy{}
	fatal.If(t, yaml.UnmarshalStrict([]byte(spec), &n.Spec), spec)
	n.Namespace, n.Name = "shop", name
	if space, rest, found := strings.Cut(name, "/"); found {
		n.Namespace, n.Name = space, rest
	}
	return n
}

// spaces are the namespaces of the tests, with their labels.
func spaces() map[string]map[string]string {
	return map[string]map[string]string{
		"shop": {corev1.LabelMetadataName: "shop", "team": "a"}, "bank": {corev1.LabelMetadataName: "bank", "team": "b"},
		"lone": {corev1.LabelMetadataName: "lone"},
	}
}

// farPod is a pod of another node: namespace/name, labels as "app=db,tier=x", addresses.
func farPod(name, set string, ips ...string) *policy.Pod {
	space, rest, _ := strings.Cut(name, "/")
	p := &policy.Pod{PodRef: policy.PodRef{Namespace: space, Name: rest, UID: "uid-" + name}, Labels: map[string]string{}, NodeName: "far", Phase: "Running"}
	for _, pair := range strings.Split(set, ",") {
		if k, v, found := strings.Cut(pair, "="); found {
			p.Labels[k] = v
		}
	}
	for _, ip := range ips {
		p.IPs = append(p.IPs, netip.MustParseAddr(ip))
	}
	return p
}

func withPort(p *policy.Pod, name string, proto policy.Protocol, port uint16) *policy.Pod {
	p.Ports = append(p.Ports, policy.NamedPort{Name: name, Protocol: proto, Port: port})
	return p
}

// besideInput is pod web of shop, selected by a policy without rules, beside NetworkPolicies.
func besideInput(remote []*policy.Pod, nets ...*networkingv1.NetworkPolicy) Input {
	in := Input{Policies: nil, Namespaces: spaces(), Pods: []policy.Pod{aPod("web", "web", "10.0.0.1")}, Remote: remote, NetworkPolicies: nets}
	in.Policies = append(in.Policies, aPolicy("closed", ""))
	return in
}

// setTexts returns each peer set as one line.
func setTexts(s *policy.Snapshot) []string {
	var out []string
	for _, set := range s.PeerSets {
		var has []string
		for _, a := range set.Addrs {
			has = append(has, a.String())
		}
		for _, n := range set.Networks {
			has = append(has, n.String())
		}
		for _, p := range set.Ports {
			has = append(has, fmt.Sprintf("%v:%v/%d", p.Addr, p.Protocol, p.Port))
		}
		out = append(out, fmt.Sprintf("%d %s = %s", set.Kind, set.Key, strings.Join(has, " ")))
	}
	return out
}

// ruleTexts returns each of a view's peer rules as one line.
func ruleTexts(v *policy.View) []string {
	var out []string
	for _, r := range v.PeerRules() {
		out = append(out, fmt.Sprintf("%d %s | %s | %s %s", r.Peer.Kind, r.Peer.Key, r.Ports, r.Policy, r.Path))
	}
	return out
}

// peersAt returns the rules with peers that match what is reached.
func peersAt(s *policy.Snapshot, v *policy.View, a netip.Addr, proto policy.Protocol, port uint16) (out []*policy.Rule) {
	f := policy.Flow{Protocol: proto, Reached: netip.AddrPortFrom(a, port), Would: true}
	for _, step := range policy.Steps(v, s, &f) {
		if step.Ports.Contains(proto, port) {
			out = append(out, step.Rule)
		}
	}
	return out
}

// problemTexts returns the problems as "object reason path: message".
func problemTexts(s *policy.Snapshot) []string {
	var out []string
	for _, p := range s.Problems {
		out = append(out, fmt.Sprintf("%s %s %s: %s", p.Object, p.Reason, p.Path, p.Message))
	}
	return out
}

// allows returns what of "ADDRESS PROTOCOL PORT" a snapshot allows its first view.
func allows(s *policy.Snapshot, asked ...string) []string {
	return slices.DeleteFunc(slices.Clone(asked), func(q string) bool {
		var a, proto string
		var port uint16
		if _, err := fmt.Sscan(q, &a, &proto, &port); err != nil {
			panic(err)
		}
		protocols := map[string]policy.Protocol{"tcp": policy.TCP, "udp": policy.UDP, "sctp": policy.SCTP, "icmp": 1}
		return len(peersAt(s, s.Views[0], netip.MustParseAddr(a), protocols[proto], port)) == 0
	})
}

func netPort(proto corev1.Protocol, port *intstr.IntOrString, end *int32) networkingv1.NetworkPolicyPort {
	p := networkingv1.NetworkPolicyPort{Port: port, EndPort: end}
	if proto != "" {
		p.Protocol = &proto
	}
	return p
}

func labelled(k, v string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
}
