package dataplane

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// TestSameButNames: every field of a subject makes another one, also a field to come, but those of names and of their
// snapshot, and Entries, which Tiers have too.
func TestSameButNames(t *testing.T) {
	t.Parallel()
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	others := map[reflect.Type][2]any{
		reflect.TypeFor[[]netip.Addr]():             {[]netip.Addr{a}, []netip.Addr{b}},
		reflect.TypeFor[[]policy.PortSet]():         {[]policy.PortSet{"tcp/80"}, []policy.PortSet{"tcp/443"}},
		reflect.TypeFor[*RuleList]():                {&RuleList{Rules: []Rule{{Ports: "tcp/80"}}}, &RuleList{Rules: []Rule{{Ports: "tcp/443"}}}},
		reflect.TypeFor[*Tiers]():                   {&Tiers{Tiers: layout.Tiers{ID: "a"}}, &Tiers{Tiers: layout.Tiers{ID: "b"}}},
		reflect.TypeFor[map[netip.Addr]link.Home](): {map[netip.Addr]link.Home{a: {Iface: "veth1"}}, map[netip.Addr]link.Home{a: {Iface: "veth2"}}},
		reflect.TypeFor[bool]():                     {true, false},
		reflect.TypeFor[*policy.Node]():             {&policy.Node{Name: "n1"}, &policy.Node{Name: "n2"}},
	}
	ref := policy.PodRef{Namespace: "shop", Name: "web"}
	for f := range reflect.TypeFor[Subject]().Fields() {
		if slices.Contains([]string{"Pod", "Entries", "Views", "Snapshot"}, f.Name) {
			continue
		}
		with := func(value any) Subjects {
			p := &Subject{Pod: ref}
			reflect.ValueOf(p).Elem().FieldByIndex(f.Index).Set(reflect.ValueOf(value))
			return Subjects{ref: p}
		}
		without, one, two := Subjects{ref: {Pod: ref}}, with(others[f.Type][0]), with(others[f.Type][1])
		if without.SameButNames(one) || one.SameButNames(without) || one.SameButNames(two) || two.SameButNames(one) || !two.SameButNames(two) {
			t.Errorf("another %s makes the same subject", f.Name)
		}
	}
	one := Subjects{ref: {Pod: ref}}
	if !one.SameButNames(Subjects{ref: {Pod: ref, Views: []*policy.View{{}}, Snapshot: &policy.Snapshot{}}}) {
		t.Error("other names make another subject")
	}
	if (Subjects{}).SameButNames(one) || one.SameButNames(Subjects{{Name: "db"}: {}}) {
		t.Error("other pods are the same subjects")
	}
}
