package agent

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestHostLearns: an answer for a name of a failsafe waits until its addresses are in force with the ports of
// the failsafe, and no longer than learnWait.
func TestHostLearns(t *testing.T) { synctest.Test(t, hostLearns) }

func hostLearns(t *testing.T) {
	name, err := fqdn.ParseName("api.corp.test")
	fatal.If(t, err)
	api := failsafe.Target{Host: "api", Ports: failsafe.Port(policy.TCP, 6443), Reason: "API server", Source: "kubeconfig"}
	keeper := &keeperFake{}
	h := &hostNode{name: "n1", resolvers: func([]netip.Addr) {}, keeper: keeper, read: func() ([]netip.Addr, error) { return nil, nil },
		offer: func(rollout.State) {}, log: slog.New(slog.DiscardHandler)}
	left := make(chan bool, 1)
	then := func() { left <- true }
	want := func(when string, answered bool) {
		t.Helper()
		select {
		case <-left:
			if !answered {
				t.Errorf("%s: the answer leaves", when)
			}
		default:
			if answered {
				t.Errorf("%s: the answer waits", when)
			}
		}
	}
	view := func(addrs ...netip.Addr) *policy.View {
		n := &policy.Node{Name: "n1"}
		for _, a := range addrs {
			n.Failsafes = append(n.Failsafes, api.At(a).Failsafe)
		}
		return &policy.View{Node: n}
	}
	h.learn(name, addrs("192.0.2.10"), then)
	want("before the first list", true)
	h.setFailsafes(&failsafe.List{Queries: map[fqdn.Name][]failsafe.Target{name: {api}}})
	h.learn(name, addrs("192.0.2.10"), then)
	want("without a policy", true)
	h.inForce(view(addrs("192.0.2.10")...))
	h.learn(name, addrs("192.0.2.10"), then)
	want("an open address", true)

	h.learn(name, addrs("192.0.2.10", "192.0.2.11"), then)
	want("a new address", false)
	if got := keeper.learned["api"]; !slices.Equal(got, addrs("192.0.2.10", "192.0.2.11")) {
		t.Errorf("learned %v", got)
	}
	other := view(addrs("192.0.2.10")...)
	other.Node.Failsafes = append(other.Node.Failsafes, policy.Failsafe{Prefix: netip.MustParsePrefix("192.0.2.11/32"), Ports: failsafe.Port(policy.TCP, 179)})
	h.inForce(other)
	want("an address with another port", false)
	h.inForce(view(addrs("192.0.2.10", "192.0.2.11")...))
	want("in force", true)

	h.learn(name, addrs("192.0.2.12"), then)
	<-left // after learnWait
	synctest.Wait()
	if len(h.learned.waiting) > 0 {
		t.Errorf("%d answers wait", len(h.learned.waiting))
	}
}
