package explain

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/short"
)

// network draws a NetworkPolicy for the pods of shop, of few peers and ports.
func (d draw) network(i int) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("np", i)}}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	if d.IntN(4) > 0 {
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": d.one("cart", "cart", "other")}
	}
	for range d.IntN(3) {
		var r networkingv1.NetworkPolicyEgressRule
		for range d.IntN(3) {
			r.To = append(r.To, d.peer())
		}
		for range d.IntN(3) {
			port := networkingv1.NetworkPolicyPort{}
			switch n := d.one("", "80", "81", "web"); n {
			case "":
			case "web":
				port.Port = new(intstr.FromString(n))
			default:
				port.Port = new(intstr.Parse(n))
			}
			r.Ports = append(r.Ports, port)
		}
		p.Spec.Egress = append(p.Spec.Egress, r)
	}
	return p
}

func (d draw) peer() (p networkingv1.NetworkPolicyPeer) {
	some := func() *metav1.LabelSelector {
		if d.IntN(3) == 0 {
			return &metav1.LabelSelector{}
		}
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": d.one("db", "web")}}
	}
	switch d.IntN(4) {
	case 0:
		p.IPBlock = &networkingv1.IPBlock{CIDR: d.one("10.2.0.0/16", "10.2.0.1/32", "203.0.113.0/24", "0.0.0.0/0")}
	case 1:
		p.PodSelector = some()
	case 2:
		p.NamespaceSelector = &metav1.LabelSelector{}
	default:
		p.NamespaceSelector, p.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": d.one("shop", "pay")}}, some()
	}
	return p
}

// peers are the pods of other nodes: of two namespaces, two apps and two numbers of the
// port called web.
func (d draw) peers() (out []*policy.Pod) {
	for i := range 4 {
		p := &policy.Pod{
			PodRef: policy.PodRef{Namespace: d.one("shop", "pay"), Name: fmt.Sprint("peer", i)}, NodeName: "node-2", Labels: map[string]string{"app": d.one("db", "web")},
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 2, 0, byte(1 + i)})}, HostNetwork: d.IntN(8) == 0,
		}
		if d.IntN(3) > 0 {
			p.Ports = []policy.NamedPort{{Name: "web", Protocol: policy.TCP, Port: uint16(80 + d.IntN(2))}}
		}
		out = append(out, p)
	}
	return out
}

// union is a pod, its policies and the cluster around it.
type union struct {
	pods     []*policy.Pod
	networks []*networkingv1.NetworkPolicy
	services map[netip.Addr]*policy.Service
}

func (u *union) facts(t *testing.T) Facts {
	t.Helper()
	pod := cart()
	policies := manifests(t, base)
	snap := compile.New().Compile(compile.Input{
		Policies: policies, Pods: []policy.Pod{pod}, NetworkPolicies: u.networks, Remote: u.pods,
		Namespaces: map[string]map[string]string{"shop": {"kubernetes.io/metadata.name": "shop"}, "pay": {"kubernetes.io/metadata.name": "pay"}},
	})
	f := about(t, pod, policies)
	f.View, f.Snapshot, f.NetworkPolicies, f.Services = snap.ViewOf(pod.PodRef), snap, u.networks, u.services
	f.Pods = func(yield func(*policy.Pod) bool) {
		for _, p := range append([]*policy.Pod{&pod}, u.pods...) {
			if !yield(p) {
				return
			}
		}
	}
	return f
}

// plainlyReached is the slow twin: the actual destinations of a target, read off the
// Services, and the compiled view's verdict for each.
func (u *union) plainlyReached(f *Facts, to Target) (all bool) {
	ends := []netip.AddrPort{netip.AddrPortFrom(to.Addr, to.Port)}
	if s := u.services[to.Addr]; s != nil && s.Ports[0].Port == to.Port {
		ends = nil
		for _, p := range u.pods {
			if p.Namespace != s.Ref.Namespace || !labels.SelectorFromSet(s.Selector).Matches(labels.Set(p.Labels)) {
				continue
			}
			switch {
			case s.Ports[0].TargetName == "":
				ends = append(ends, netip.AddrPortFrom(p.IPs[0], s.Ports[0].Target))
			case len(p.Ports) > 0:
				ends = append(ends, netip.AddrPortFrom(p.IPs[0], p.Ports[0].Port))
			}
		}
	}
	for _, e := range ends {
		if allowed, _ := policy.Evaluate(f.View, f.Snapshot, &policy.Flow{Protocol: policy.TCP, Dialled: e, Reached: e}); !allowed {
			return false
		}
	}
	return len(ends) > 0
}

// TestUnion: for random NetworkPolicies, pods and Services, explain's verdict is the
// view's behind the Service; and the NetworkPolicy that it writes allows the target, and
// nothing else.
func TestUnion(t *testing.T) {
	tried := map[Verdict]int{}
	advised := 0
	rounds := short.Rounds(200, 800, 8_000)
	for seed := range uint64(rounds) {
		d := draw{rand.New(rand.NewPCG(seed, 7))}
		u := &union{pods: d.peers()}
		for i := range d.IntN(4) {
			u.networks = append(u.networks, d.network(i))
		}
		port := policy.ServicePort{Protocol: policy.TCP, Port: 8000, Target: 80}
		if d.IntN(2) == 0 {
			port = policy.ServicePort{Protocol: policy.TCP, Port: 8000, TargetName: "web"}
		}
		service := netip.MustParseAddr("10.96.0.5")
		u.services = map[netip.Addr]*policy.Service{service: {
			Ref: policy.ServiceRef{Namespace: d.one("shop", "pay"), Name: "svc"}, Selector: map[string]string{"app": d.one("db", "web")}, Ports: []policy.ServicePort{port},
		}}
		targets := []string{"10.2.0.1:80", "10.2.0.2:81", "203.0.113.9:80", "10.96.0.5:8000", "10.96.0.5:81"}
		to := target(t, targets[d.IntN(len(targets))])
		f := u.facts(t)
		e := Explain(Question{To: to}, f)
		tried[e.Verdict]++
		diff.MustEqual(t, u.plainlyReached(&f, to), e.Verdict == Allowed, "seed", seed, to, e.Verdict, e.Reason, "networks", u.networks)
		if e.Verdict != Denied || e.Advice == nil || e.Advice.NetworkPolicy == "" {
			continue
		}
		u.applyAdvice(t, seed, to, e.Advice.NetworkPolicy, targets)
		advised++
	}
	if tried[Allowed] < rounds/8 || tried[Denied] < rounds/8 || advised < rounds/8 {
		t.Errorf("too few of one kind: %v, %d mended", tried, advised)
	}
}

// applyAdvice applies an advised NetworkPolicy. It cannot open only those of the Service's
// pods that lack the port's name, or are on the host network.
func (u *union) applyAdvice(t *testing.T, seed uint64, to Target, manifest string, others []string) {
	t.Helper()
	var p networkingv1.NetworkPolicy
	fatal.If(t, yaml.UnmarshalStrict([]byte(manifest), &p))
	for _, n := range u.networks {
		if n.Name == p.Name {
			t.Fatalf("seed %d: the name %s is taken", seed, p.Name)
		}
	}
	was := u.facts(t)
	after := &union{pods: u.pods, networks: append(u.networks[:len(u.networks):len(u.networks)], &p), services: u.services}
	is := after.facts(t)
	if len(is.Snapshot.Problems) > 0 && strings.Contains(is.Snapshot.Problems[0].Object, p.Name) {
		t.Fatalf("seed %d: %+v of\n%s", seed, is.Snapshot.Problems, manifest)
	}
	if e := Explain(Question{To: to}, is); e.Verdict != Allowed && !(u.services[to.Addr] != nil && u.unopenable(to)) {
		t.Fatalf("seed %d: %s is still %s (%s) after\n%s\n%v", seed, to, e.Verdict, e.Reason, manifest, u.networks)
	}
	for _, text := range others {
		other := target(t, text)
		if other.Port == to.Port || u.services[to.Addr] != nil || u.services[other.Addr] != nil {
			continue
		}
		diff.MustEqual(t, Explain(Question{To: other}, was).Verdict, Explain(Question{To: other}, is).Verdict, "seed", seed, other, "after", manifest)
	}
}

// unopenable tells whether no pod is behind a Service, or one on the host network.
func (u *union) unopenable(to Target) bool {
	s, pods := u.services[to.Addr], 0
	for _, p := range u.pods {
		if p.Namespace == s.Ref.Namespace && labels.SelectorFromSet(s.Selector).Matches(labels.Set(p.Labels)) {
			if p.HostNetwork {
				return true
			}
			if s.Ports[0].TargetName == "" || len(p.Ports) > 0 {
				pods++
			}
		}
	}
	return pods == 0
}
