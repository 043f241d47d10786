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

// TestNetworkPoliciesComeAndGo: the index follows the labels that they require.
func TestNetworkPoliciesComeAndGo(t *testing.T) {
	c, far := New(), farPod("shop/db", "app=db,tier=x,a=b,c=d,e=f", "10.1.0.1")
	one := aNet(t, "one", `egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]`)
	two := aNet(t, "two", `egress: [{to: [{podSelector: {matchLabels: {tier: x, app: db}}}]}]`)
	none := aNet(t, "none", `egress: [{to: [{podSelector: {matchExpressions: [{key: app, operator: Exists}]}}]}]`)
	moved := *far
	moved.Labels = map[string]string{"tier": "x"}
	for i, in := range []Input{
		besideInput([]*policy.Pod{far}, none),
		besideInput([]*policy.Pod{far}, none, one),
		besideInput([]*policy.Pod{far}, none, one, two),
		besideInput([]*policy.Pod{far}, none, two),
		besideInput([]*policy.Pod{&moved}, none, two),
		besideInput([]*policy.Pod{far}, none, two),
		besideInput([]*policy.Pod{far}, none),
		besideInput(nil, one),
		besideInput([]*policy.Pod{far}, one),
		besideInput([]*policy.Pod{far}),
		besideInput([]*policy.Pod{far}, one),
	} {
		s := c.Compile(in)
		if diff := cmp.Diff(netDump(New().Compile(in)), netDump(s)); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
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

// TestNamedPortsChange, and the labels of the pods that have them.
func TestNamedPortsChange(t *testing.T) {
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
	}
}
