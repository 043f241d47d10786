package compile

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
)

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
