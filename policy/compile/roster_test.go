package compile

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/policy"
)

// TestLabelsThatAreAskedFor are indexed, as NetworkPolicies come and go, and no others.
func TestLabelsThatAreAskedFor(t *testing.T) {
	c, far := New(), farPod("shop/db", "app=db,tier=x,a=b,c=d,e=f", "10.1.0.1")
	one := aNet(t, "one", `egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]`)
	two := aNet(t, "two", `egress: [{to: [{podSelector: {matchLabels: {tier: x, app: db}}}]}]`)
	none := aNet(t, "none", `egress: [{to: [{podSelector: {matchExpressions: [{key: app, operator: Exists}]}}]}]`)
	moved := *far
	moved.Labels = map[string]string{"tier": "x"}
	for i, step := range []struct {
		in   Input
		want []string // the label and how many pods have it
	}{
		{besideInput([]*policy.Pod{far}, none), nil},
		{besideInput([]*policy.Pod{far}, none, one), []string{"[app db] 1"}},
		{besideInput([]*policy.Pod{far}, none, one, two), []string{"[app db] 1", "[tier x] 1"}},
		{besideInput([]*policy.Pod{far}, none, two), []string{"[app db] 1", "[tier x] 1"}},
		{besideInput([]*policy.Pod{&moved}, none, two), []string{"[app db] 0", "[tier x] 1"}},
		{besideInput([]*policy.Pod{far}, none, two), []string{"[app db] 1", "[tier x] 1"}},
		{besideInput([]*policy.Pod{far}, none), nil},
		{besideInput(nil, one), []string{"[app db] 0"}},
		{besideInput([]*policy.Pod{far}, one), []string{"[app db] 1"}},
		{besideInput([]*policy.Pod{far}), nil},
		{besideInput([]*policy.Pod{far}, one), []string{"[app db] 1"}},
	} {
		s := c.Compile(step.in)
		var got []string
		if c.crowd != nil {
			for at, r := range c.crowd.byLabel {
				got = append(got, fmt.Sprint(at, len(r.pods)))
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
		if diff := cmp.Diff(netDump(New().Compile(step.in)), netDump(s)); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
	}
}

// TestLabelsOfStrangers: an agent has all pods of the cluster, and keeps for labels that
// nobody asks for no more than is written.
func TestLabelsOfStrangers(t *testing.T) {
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

// TestManyPortsOfAStranger: a label of a pod that is nobody's peer costs little, however
// many ports it has.
func TestManyPortsOfAStranger(t *testing.T) {
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
	if got := c.crowd.having("p7").counts(); len(c.crowd.byPort) != len(big.Ports) || got != (counts{1, 1}) {
		t.Errorf("%d names, %v", len(c.crowd.byPort), got)
	}
}

// TestRostersCount what those who are in them have, as pods come and go.
func TestRostersCount(t *testing.T) {
	c, in := New(), besideInput(shopCluster(),
		aNet(t, "np", `egress: [{to: [{podSelector: {matchLabels: {app: db}}}, {namespaceSelector: {}}]}, {ports: [{port: sql}, {port: x}, {port: x, protocol: UDP}]}]`))
	ports := [][]policy.NamedPort{nil, {{Name: "x", Protocol: policy.TCP, Port: 1}, {Name: "sql", Protocol: policy.TCP, Port: 2}, {Name: "x", Protocol: policy.UDP, Port: 3}}, {{Name: "sql", Protocol: policy.TCP, Port: 5432}}, {{Name: "x", Protocol: policy.TCP, Port: 1}, {Name: "x", Protocol: policy.TCP, Port: 2}}}
	for i := range 40 {
		in.Remote = slices.Clone(in.Remote)
		p := *in.Remote[i%len(in.Remote)]
		p.Ports, p.Labels = ports[i*7%len(ports)], maps.Clone(p.Labels)
		p.Labels["app"] = []string{"db", "web"}[i*5%3%2]
		in.Remote[i%len(in.Remote)] = &p
		s := c.Compile(in)
		if diff := cmp.Diff(netDump(New().Compile(in)), netDump(s)); diff != "" {
			t.Fatalf("step %d: %s", i, diff)
		}
		check := func(what string, r *roster, of func(*peerPod) int) {
			ports := 0
			for _, p := range r.pods {
				ports += of(p)
			}
			if ports != r.ports || len(r.pods) == 0 {
				t.Errorf("step %d: %s has %d pods, counted %d ports, there are %d", i, what, len(r.pods), r.ports, ports)
			}
		}
		all := func(p *peerPod) int { return len(p.ports) }
		for name, sp := range c.crowd.spaces {
			check(name, &sp.roster, all)
		}
		for name, r := range c.crowd.byPort {
			check(name, r, func(p *peerPod) int { return len(of(p.ports, name)) })
		}
		for at, r := range c.crowd.byLabel {
			if len(r.pods) > 0 {
				check(fmt.Sprint(at), r, all)
			}
		}
	}
}
