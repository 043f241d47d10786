package compile

import (
	"slices"
	"testing"

	"github.com/namegate/namegate/policy"
)

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
