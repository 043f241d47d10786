package peers

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func aPod(name, address string, labels map[string]string, ports ...policy.NamedPort) *policy.Pod {
	return &policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: name}, NodeName: "far", Labels: labels, Ports: ports,
		IPs: []netip.Addr{netip.MustParseAddr(address)}}
}

// specOf is the pods of shop with the labels.
func specOf(t *testing.T, labels map[string]string) *Spec {
	t.Helper()
	s, err := NewSelector(&metav1.LabelSelector{MatchLabels: labels})
	fatal.If(t, err)
	var d Destinations
	d.AddPods("shop", s)
	d.Normalize(1)
	return d.ByNumber()[0]
}

// TestWantedLabels are indexed, as specs come and go, and no others.
func TestWantedLabels(t *testing.T) {
	x, one, two := NewIndex(), specOf(t, map[string]string{"app": "db"}), specOf(t, map[string]string{"app": "db", "tier": "x"})
	far := aPod("db", "10.1.0.1", map[string]string{"app": "db", "tier": "x", "a": "b", "c": "d", "e": "f"})
	moved := aPod("db", "10.1.0.1", map[string]string{"tier": "x"})
	for i, step := range []struct {
		came, went []*Spec
		pod        *policy.Pod
		want       []string // the label and how many pods have it
	}{
		{nil, nil, far, nil},
		{[]*Spec{one}, nil, far, []string{"[app db] 1"}},
		{[]*Spec{two}, nil, far, []string{"[app db] 1", "[tier x] 1"}},
		{nil, []*Spec{one}, far, []string{"[app db] 1", "[tier x] 1"}},
		{nil, nil, moved, []string{"[app db] 0", "[tier x] 1"}},
		{nil, nil, far, []string{"[app db] 1", "[tier x] 1"}},
		{nil, []*Spec{two}, far, nil},
		{[]*Spec{one}, nil, nil, []string{"[app db] 0"}},
		{nil, nil, far, []string{"[app db] 1"}},
	} {
		x.Want(step.came, step.went)
		x.Update(uint64(i+1), nil, nil, []*policy.Pod{step.pod})
		var got []string
		for at, b := range x.byLabel {
			got = append(got, fmt.Sprint(at, len(b.pods)))
		}
		slices.Sort(got)
		diff.Error(t, step.want, got, "step", i)
	}
}

// TestIndexCounts the ports of the pods in each bucket as pods come and go, and keeps
// nothing of pods that are gone.
func TestIndexCounts(t *testing.T) {
	x := NewIndex()
	x.Want([]*Spec{specOf(t, map[string]string{"app": "db"})}, nil)
	ports := [][]policy.NamedPort{nil,
		{{Name: "x", Protocol: policy.TCP, Port: 1}, {Name: "sql", Protocol: policy.TCP, Port: 2}, {Name: "x", Protocol: policy.UDP, Port: 3}},
		{{Name: "sql", Protocol: policy.TCP, Port: 5432}}, {{Name: "x", Protocol: policy.TCP, Port: 1}, {Name: "x", Protocol: policy.TCP, Port: 2}}}
	pods := make([]*policy.Pod, 5)
	for i := range 40 {
		at := i % len(pods)
		pods[at] = aPod(fmt.Sprint("p", at), fmt.Sprintf("10.1.0.%d", at+1), map[string]string{"app": []string{"db", "web"}[i*5%3%2]}, ports[i*7%len(ports)]...)
		x.Update(uint64(i+1), nil, nil, pods)
		check := func(what string, b *bucket, of func(*pod) int) {
			ports := 0
			for _, p := range b.pods {
				ports += of(p)
			}
			diff.Equal(t, b.ports, ports, "step", i, what, "ports")
		}
		all := func(p *pod) int { return len(p.ports) }
		for name, sp := range x.spaces {
			check(name, &sp.bucket, all)
		}
		for name, b := range x.byPort {
			check(name, b, func(p *pod) int { return len(of(p.ports, name)) })
		}
		for at, b := range x.byLabel {
			check(fmt.Sprint(at), b, all)
		}
	}
	x.Update(100, nil, nil, nil)
	got := []int{len(x.remote), len(x.local), len(x.byAddr), len(x.byLabel), len(x.byPort), len(x.spaces)}
	diff.Error(t, []int{0, 0, 0, 1, 0, 0}, got)
}
