package explain

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// aboutNode returns the facts of a node under a policy for nodes, and asks with the right to read it.
func aboutNode(t *testing.T, enforcement string) Facts {
	t.Helper()
	p := &v1alpha1.ClusterFQDNNetworkPolicy{}
	p.Name = "workers"
	fatal.If(t, yaml.UnmarshalStrict([]byte("{tier: Admin, priority: 1, subject: {nodes: {}}, enforcement: "+enforcement+", egress: ["+
		"{action: Accept, matches: [{name: registry.test}], ports: [{protocol: TCP, port: 443}]}, {name: rest, action: Deny}]}"), &p.Spec))
	node := &policy.Node{Name: "n1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}, Failsafes: []policy.Failsafe{{
		Name: "nodes", Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/28")}, Ports: []policy.PortRange{{Protocol: policy.TCP, First: 10250, Last: 10250}}}}}
	f := about(t, policy.Pod{PodRef: policy.NodeRef("n1")}, nil)
	f.Snapshot = compile.New().Compile(compile.Input{ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{p}, Node: node})
	f.View, f.SeesCluster = f.Snapshot.Node(), func(bool) bool { return true }
	return f
}

// TestNodes: what decides for a node: its own addresses and failsafes first, then the rules.
func TestNodes(t *testing.T) {
	open := policy.GrantInfo{Pod: policy.NodeRef("n1"), Name: policytest.Name("registry.test"), Addr: netip.MustParseAddr("198.51.100.1"), Until: noon.Add(time.Hour), By: "workers registry.test"}
	for _, c := range []struct {
		enforcement, to string
		verdict         Verdict
		says, advice    string
	}{
		{"Enforce", "192.0.2.3:10250", Allowed, "failsafe nodes: TCP 10250: no rule denies it", ""},
		{"Enforce", "192.0.2.7:80", Allowed, "the node's own address", ""},
		{"Enforce", "192.0.2.3:22", Denied, "workers", "networks: [192.0.2.3/32]}; `namegate check --node` tries it"},
		{"Enforce", "198.51.100.1:443", Allowed, "the node asked for registry.test", ""},
		{"Enforce", "registry.test:443", Allowed, "", ""},
		{"Enforce", "other.test:443", Denied, "workers", "matches: [{name: other.test}]"},
		{"Audit", "other.test:443", WouldDeny, "only Audit policies select the node", "matches: [{name: other.test}]"},
	} {
		f := aboutNode(t, c.enforcement)
		rule := f.View.Rules.Admin[0]
		open.Rule, open.Ports = rule.ID, rule.Ports
		if c.enforcement == "Enforce" {
			f.Open = []policy.GrantInfo{open}
		}
		to, err := ParseTarget(c.to)
		fatal.If(t, err)
		e := Explain(Question{Node: "n1", To: to}, f)
		do := ""
		if e.Advice != nil {
			do = strings.Join(e.Advice.Do, "\n")
			if e.Advice.Manifest != "" || e.Advice.NetworkPolicy != "" {
				t.Errorf("%s: %+v", c.to, e.Advice)
			}
		}
		if e.Verdict != c.verdict || !strings.Contains(e.Reason, c.says) || !strings.Contains(do, c.advice) || (c.advice == "") != (do == "") || strings.Contains(e.Reason, "the pod") || e.Pod != "node n1" {
			t.Errorf("%s %s: %s: %s\n%s", c.enforcement, c.to, e.Verdict, e.Reason, do)
		}
	}
	f := aboutNode(t, "Enforce")
	to, _ := ParseTarget("192.0.2.3:22")
	if notes := Explain(Question{Node: "n1", To: to}, f).Notes; len(notes) != 2 || !strings.HasPrefix(notes[0], "failsafe always: ") || notes[1] != "failsafe nodes: TCP 10250 to 192.0.2.0/28" {
		t.Errorf("the table: %q", notes)
	}
	f.View = nil
	to, _ = ParseTarget("other.test:443")
	if e := Explain(Question{To: to}, f); e.Verdict != Allowed || e.Reason != "no policy selects the node: everything is allowed" {
		t.Errorf("%+v", e)
	}
}
