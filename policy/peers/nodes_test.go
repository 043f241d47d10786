package peers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestNodes: a selector of nodes selects no pod, and one of pods and namespaces no node.
func TestNodes(t *testing.T) {
	selector := func(labels map[string]string) *Selector {
		s, err := NewSelector(&metav1.LabelSelector{MatchLabels: labels})
		fatal.If(t, err)
		return s
	}
	role := map[string]string{"role": "x"}
	absent, err := NewSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpDoesNotExist}}})
	fatal.If(t, err)
	address := netip.MustParseAddr
	inner := []*policy.Pod{
		aPod("db", "10.1.0.1", role), aPod("web", "10.1.0.2", nil),
		Node("one", role, []netip.Addr{address("192.0.2.1"), address("2001:db8::1")}), Node("two", nil, []netip.Addr{address("192.0.2.2")}),
	}
	namespaces := map[string]map[string]string{"shop": {}}
	for want, add := range map[string]func(*Destinations){
		"[192.0.2.1 2001:db8::1]":           func(d *Destinations) { d.AddNodes(selector(role)) },
		"[192.0.2.1 192.0.2.2 2001:db8::1]": func(d *Destinations) { d.AddNodes(selector(nil)) },
		"[10.1.0.1]":                        func(d *Destinations) { d.AddPodsOf(selector(nil), selector(role)) },
		"[10.1.0.1 10.1.0.2]":               func(d *Destinations) { d.AddPodsOf(absent, absent) },
		"[10.1.0.2 192.0.2.2]":              func(d *Destinations) { d.AddNodes(selector(nil)); d.AddPods("shop", selector(nil)) },
	} {
		var d Destinations
		add(&d)
		d.Normalize(1)
		diff.Equal(t, d.nodes, d.Elsewhere(), want, d)
		set, x := NewSet(d.ByNumber()[0]), NewIndex()
		x.Want([]*Spec{set.Spec}, nil)
		x.Update(1, namespaces, nil, inner)
		set.Update(x)
		if want == "[10.1.0.2 192.0.2.2]" { // one member of each goes
			x.Update(2, namespaces, nil, []*policy.Pod{inner[1], inner[3]})
			set.Update(x)
		}
		got := set.Members().Addrs
		if !slices.IsSortedFunc(got, netip.Addr.Compare) || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", set.Spec.Key, got, want)
		}
	}
}

// TestLongKeys differ where the texts do, however late.
func TestLongKeys(t *testing.T) {
	long := strings.Repeat("a", maxKey)
	diff.Equal(t, long, bounded(long), "a text of the bound's length")
	texts := []string{bounded(long + "a"), bounded(long + "b"), bounded(long + "aa"), bounded(bounded(long + "a"))}
	diff.Equal(t, texts[0], texts[3], "the text of a key")
	slices.Sort(texts)
	if texts = slices.Compact(texts); len(texts) != 3 {
		t.Errorf("%q", texts)
	}
	for _, text := range texts {
		if len(text) > maxKey || !strings.Contains(text, "... sha256:") {
			t.Errorf("%q", text)
		}
	}
	for name, want := range map[string]string{"shop": "shop", "a.b-1": "a.b-1", "": "x''", "ns team=a": "x'6e73207465616d3d61'", "Shop": "x'53686f70'"} {
		diff.Equal(t, want, plain(name), name)
	}
}
