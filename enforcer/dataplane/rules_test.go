package dataplane

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/policy"
)

func TestRuleLists(t *testing.T) {
	list := func(rules ...Rule) *RuleList { return NewRuleList(rules) }
	a, b := Rule{policy.Peer{Kind: 1, Key: "a"}, "tcp/1"}, Rule{policy.Peer{Kind: 2, Key: "a"}, "tcp/1"}
	if list(a).ID == list(b).ID || list(a).ID == "" {
		t.Error("two lists have one ID")
	}
	if l := list(b, a, b); l.ID != list(a, b).ID || len(l.Rules) != 2 {
		t.Errorf("equal lists differ: %+v", l)
	}
	if got := list(Rule{Ports: ""}); got != nil {
		t.Errorf("no port at all is %+v", got)
	}
	everything := list(Rule{Ports: "any"}, Rule{policy.Peer{Kind: 1, Key: "a"}, "any"})
	if diff := cmp.Diff([]Rule{{Ports: "any"}}, everything.Rules); diff != "" || !everything.All() || everything.Rendered.ID != everything.ID {
		t.Errorf("everything (-want +got):\n%s", diff)
	}
	both := list(a).Union(list(b))
	for _, test := range []struct {
		l, o *RuleList
		want bool
	}{
		{nil, nil, true}, {nil, list(a), true}, {list(a), nil, false}, {list(a), both, true}, {both, list(a), false},
		{both, everything, true}, {everything, both, false},
	} {
		if got := test.l.Within(test.o); got != test.want {
			t.Errorf("%+v within %+v: %v", test.l, test.o, got)
		}
	}
	if list(a).Union(nil).ID != list(a).ID || both.ID != list(a, b).ID || both.ID == everything.ID {
		t.Error("unions differ")
	}
}
