package companion

import (
	"fmt"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/testkit/statustest"
)

// TestDecisionsAgainstTheRule: an accepted policy that enforces, has ports and was opted in
// opens them where no node reports a bypass, after a while or where they are open already.
func TestDecisionsAgainstTheRule(t *testing.T) {
	for _, mode := range []Ports{PortsNever, PortsAsked, PortsAlways} {
		for _, value := range []string{"-", "Ports", "DNS", "?"} {
			for i := range 1 << 6 {
				bit := func(n int) bool { return i>>n&1 == 1 }
				accepted, audit, empty, bypassed, open, old := bit(0), bit(1), bit(2), bit(3), bit(4), bit(5)
				p := statustest.WithPort(statustest.Policy("shop", "web"), 443)
				if audit {
					p.Spec.Enforcement = v1alpha1.EnforcementAudit
				}
				if empty {
					p.Spec.Egress = nil
				}
				if value != "-" {
					statustest.Annotated(p, value)
				}
				o := options(fake.NewClientset(), nil)
				o.Ports = mode
				c := New(o)
				c.state = State{Policies: statustest.ByID(p), Accepted: map[string]bool{"shop/web": accepted}, Bypassed: map[string]Bypass{}}
				if bypassed {
					c.state.Bypassed["shop/web"] = Bypass{Node: "n0", Reason: "NotSeen"}
				}
				since := statustest.At(0)
				c.openable[keyOf(p)] = openableSince{since, &p.Spec.PodSelector}
				n := newCompanion(p, &metav1.LabelSelector{}, statustest.Endpoint)
				if open {
					n.Spec.Egress = append(n.Spec.Egress, portRules(podPorts("tcp/443"))...)
				}
				now := since.Add(OpenAfter - time.Second)
				if old {
					now = since.Add(OpenAfter)
				}
				optedIn := mode == PortsAlways && value == "-" || mode != PortsNever && value == "Ports"
				want := accepted && !audit && !empty && optedIn && !bypassed && (open || old)
				if got := c.newRound(now, []*networkingv1.NetworkPolicy{n}).portsOf(p, n).Numbers == "tcp/443"; got != want {
					t.Error(fmt.Sprintf("opens ports: %v, want %v;", got, want), mode, value, accepted, audit, empty, bypassed, open, old)
				}
			}
		}
	}
}
