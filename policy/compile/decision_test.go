package compile

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

func audited(p *v1alpha1.FQDNNetworkPolicy) *v1alpha1.FQDNNetworkPolicy {
	p.Spec.Enforcement = v1alpha1.EnforcementAudit
	return p
}

func withTTL(p *v1alpha1.FQDNNetworkPolicy, least, most, grace int64) *v1alpha1.FQDNNetworkPolicy {
	p.Spec.TTL = v1alpha1.TTL{MinSeconds: &least, MaxSeconds: &most, GraceSeconds: &grace}
	return p
}

// TestOpenings is the union of the matches: per port set the longest lifetime and reuse, and
// nothing of an Audit policy.
func TestOpenings(t *testing.T) {
	other := aPolicy("other", "", aRule("b.test"))
	other.Spec.TTL.InUse = v1alpha1.InUseExpire
	v := compile([]policy.Pod{aPod("web", "x", "10.0.0.1")},
		withTTL(aPolicy("short", "", on(aRule("a.test"), tcp(443))), 1, 10, 1),
		withTTL(aPolicy("long", "", on(aRule("*.test", "a.test"), tcp(443)), on(aRule("a.test"), tcp(80), tcp(81))), 1, 100, 5),
		other,
		audited(aPolicy("watch", "", aRule("a.test", "seen.example.org"))),
	).Views[0]
	for _, c := range []struct {
		name             string
		ttl              uint32
		allowed, audited bool
		want             []policy.Opening
	}{
		{"a.test", 50, true, false, []policy.Opening{
			{Ports: "tcp/443", Lifetime: 55 * time.Second, Reuse: policy.DefaultReuse, By: []string{"shop/long *.test", "shop/long a.test", "shop/short a.test"}},
			{Ports: "tcp/80-81", Lifetime: 55 * time.Second, Reuse: policy.DefaultReuse, By: []string{"shop/long a.test"}},
		}},
		{"a.test", 5, true, false, []policy.Opening{
			{Ports: "tcp/443", Lifetime: 10 * time.Second, Reuse: policy.DefaultReuse, By: []string{"shop/long *.test", "shop/long a.test", "shop/short a.test"}},
			{Ports: "tcp/80-81", Lifetime: 10 * time.Second, Reuse: policy.DefaultReuse, By: []string{"shop/long a.test"}},
		}},
		{"b.test", 0, true, false, []policy.Opening{
			{Ports: "any", Lifetime: 90 * time.Second, By: []string{"shop/other b.test"}},
			{Ports: "tcp/443", Lifetime: 6 * time.Second, Reuse: policy.DefaultReuse, By: []string{"shop/long *.test"}},
		}},
		{"seen.example.org", 60, false, true, nil},
		{"unknown.example.org", 60, false, false, nil},
	} {
		d := v.Decide(policytest.Name(c.name))
		if d.Allowed() != c.allowed || d.Audited() != c.audited {
			t.Errorf("%s: allowed %v, audited %v", c.name, d.Allowed(), d.Audited())
		}
		for i := range c.want {
			c.want[i].Name = policytest.Name(c.name)
		}
		diff.Error(t, c.want, d.Openings(c.ttl), c.name, "with TTL", c.ttl)
	}
}

// TestDecideAllocatesNothing where one place of the index answers.
func TestDecideAllocatesNothing(t *testing.T) {
	v := compile([]policy.Pod{aPod("web", "x", "10.0.0.1")}, aPolicy("p", "", aRule("a.test", "*.b.test", "**.test", "w*-x.c.test"))).Views[0]
	for _, text := range []string{"a.test", "x.b.test", "x.y.z.test", "w1-x.c.test", "none.example.org"} {
		n := policytest.Name(text)
		if got := testing.AllocsPerRun(100, func() { v.Decide(n) }); got > 0 {
			t.Errorf("%s: %v allocations", text, got)
		}
	}
}

// TestOrderedOpenings: each ordered rule has its own, and rules that deny or pass come first
// and last longest. An ID stays as long as the rule has the same place, action and ports.
func TestOrderedOpenings(t *testing.T) {
	openings := func(pastes string, priority int) []policy.Opening {
		in := besideInput(nil)
		in.Policies = append(in.Policies, aPolicy("open", "", on(aRule("a.test"), tcp(443))))
		in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{
			aCluster(t, "first", fmt.Sprintf("{tier: Admin, priority: %d, %s, ttl: {maxSeconds: 60}, egress: [{action: Accept, matches: [{name: a.test}], ports: [{protocol: TCP, port: 80}]}]}", priority, everyPod)),
			aCluster(t, "second", "{tier: Admin, priority: 2, "+everyPod+", dns: {denied: Resolve}, egress: [{action: Deny, matches: ["+pastes+"], ports: [{protocol: TCP, port: 22}]}, {action: Pass, matches: [{pattern: '**.test'}]}]}"),
			aCluster(t, "watched", "{tier: Admin, priority: 0, enforcement: Audit, "+everyPod+", egress: [{action: Deny, matches: [{name: a.test}]}]}"),
		}
		return New().Compile(in).Views[0].Decide(policytest.Name("a.test")).Openings(600)
	}
	got := openings("{name: a.test}", 1)
	for i, want := range []policy.Opening{
		{Ports: "any", Lifetime: 24*time.Hour + 10*time.Minute, By: []string{"second **.test"}},
		{Ports: "tcp/22", Lifetime: 24*time.Hour + 10*time.Minute, By: []string{"second a.test"}},
		{Ports: "tcp/443", Lifetime: 11 * time.Minute, Reuse: policy.DefaultReuse, By: []string{"shop/open a.test"}},
		{Ports: "tcp/80", Lifetime: 2 * time.Minute, Reuse: policy.DefaultReuse, By: []string{"first a.test"}},
	} {
		id := got[i].Rule
		want.Name = policytest.Name("a.test")
		if want.Rule = id; (id == "") != (want.Ports == "tcp/443") || id.Lasting() != (i < 2) {
			t.Errorf("opening %d has ID %q", i, id)
		}
		diff.Error(t, want, got[i])
	}
	if got[0].Rule == got[1].Rule || got[0].Rule[1:] == got[3].Rule[1:] {
		t.Errorf("rules share an ID: %v", got)
	}
	for i, o := range openings("{name: b.test}, {name: a.test}", 3) {
		diff.Equal(t, got[i].Rule, o.Rule, "opening", i, "after names and priority changed", o)
	}
}

// TestLabelsWithoutASelector: an agent has all pods of the cluster, and keeps no more
// than the text of labels that no selector asks for.
func TestLabelsWithoutASelector(t *testing.T) {
	var remote []*policy.Pod
	written := 0
	for i := range 10 {
		p := farPod("stranger/p", "", fmt.Sprintf("10.9.0.%d", i+1))
		for j := range 20000 {
			k := fmt.Sprintf("%d-%d", i, j)
			p.Labels[k] = ""
			written += len(k) + len(`"":"",`)
		}
		remote = append(remote, p)
	}
	in := besideInput(remote, aNet(t, "np", `egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]`))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := New()
	s := c.Compile(in)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int(after.HeapAlloc) - int(before.HeapAlloc); kept > written {
		t.Errorf("%d bytes are kept for %d", kept, written)
	}
	runtime.KeepAlive(in)
	runtime.KeepAlive(c)
	runtime.KeepAlive(s)
}

// TestManyPortsOfAnotherNamespace: a label of a pod that is no peer costs little, however
// many ports it has.
func TestManyPortsOfAnotherNamespace(t *testing.T) {
	big := farPod("stranger/big", "v=1", "10.9.0.1")
	for j := range 150000 {
		big.Ports = append(big.Ports, policy.NamedPort{Name: fmt.Sprint("p", j), Protocol: policy.TCP, Port: uint16(j)})
	}
	c, np := New(), aNet(t, "np", `egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]`)
	next := *big
	next.Labels = map[string]string{"v": "2"}
	took := spent(t, func() {
		c.Compile(besideInput([]*policy.Pod{big}, np))
		c.Compile(besideInput([]*policy.Pod{&next}, np))
	})
	if took > time.Minute {
		t.Errorf("two compiles took %v", took)
	}
}
