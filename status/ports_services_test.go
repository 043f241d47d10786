package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/status/companion"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/statustest"
)

// TestPortsOfServices: a companion has the ports to which the Services lead that the
// policy names, follows them, and is not written for others.
func TestPortsOfServices(t *testing.T) {
	inShop(t, nil, func(t *testing.T, w *world) {
		r := w.agents["n1"]
		r.SetDomain(statustest.ClusterLocal)
		w.change(func(p *v1alpha1.FQDNNetworkPolicy) { statustest.WithName(p, "db.shop.svc.cluster.local") })
		other := statustest.Service("other", policy.ServicePort{Port: 443, Target: 9443})
		services := func(list ...*policy.Service) {
			r.SetServices(append([]*policy.Service{other}, list...))
		}
		services(statustest.Service("db", policy.ServicePort{Port: 443, Target: 8443}, policy.ServicePort{Port: 80, Target: 8080}))
		w.want(soonOpen, "ports", "its node is ready")
		opens := func() string {
			for _, n := range w.networkPolicies() {
				if isCompanion(&n) && opensPorts(&n) {
					var out []string
					for _, p := range n.Spec.Egress[1].Ports {
						out = append(out, fmt.Sprint(*p.Protocol, "/", p.Port))
					}
					return strings.Join(out, " ")
				}
			}
			return "nothing"
		}
		want := func(after time.Duration, want, why string) {
			t.Helper()
			w.pass(after)
			if got := opens(); got != want {
				t.Errorf("%s: %s, want %s", why, got, want)
			}
		}
		want(time.Second, "TCP/443 TCP/8443", "at first")
		services(statustest.Service("db", policy.ServicePort{Port: 443, TargetName: "https"}))
		want(10*time.Second, "TCP/443 TCP/https", "a port that has a name")
		services(statustest.Service("db", policy.ServicePort{Port: 443, Target: 9000}))
		want(30*time.Second, "TCP/443 TCP/9000", "another number")

		writes := func() (n int) {
			for _, a := range w.client.Actions() {
				if a.Matches("update", "networkpolicies") || a.Matches("create", "networkpolicies") || a.Matches("delete", "networkpolicies") {
					n++
				}
			}
			return n
		}
		before := writes()
		db := statustest.Service("db", policy.ServicePort{Port: 443, Target: 9000})
		for i := range 20 {
			services(db, statustest.Service(fmt.Sprint("more-", i), policy.ServicePort{Port: 443, Target: uint16(2000 + i)}))
			w.pass(time.Second)
		}
		if n := writes() - before; n != 0 {
			t.Errorf("%d writes for Services that the policy does not name", n)
		}
		services()
		want(2*time.Minute, "TCP/443", "the Service is gone")
		services(db)
		want(5*time.Minute, "TCP/443 TCP/9000", "it is back")
		r.SetDomain("\x04test")
		want(10*time.Minute, "TCP/443", "another domain")
	})
}

// TestTooManyPorts: ports without room are reported once.
func TestTooManyPorts(t *testing.T) {
	inShop(t, nil, func(t *testing.T, w *world) {
		w.change(func(p *v1alpha1.FQDNNetworkPolicy) {
			first, last := int32(1), int32(1000)
			tcp := v1alpha1.ProtocolTCP
			statustest.WithName(p, "db.shop.svc.cluster.local").Spec.Egress[0].Ports = []v1alpha1.Port{{Protocol: &tcp, Port: &first, EndPort: &last}}
		})
		r := w.agents["n1"]
		r.SetDomain(statustest.ClusterLocal)
		greedy := func(n int) {
			s := statustest.Service("db")
			for i := range n {
				s.Ports = append(s.Ports, policy.ServicePort{Protocol: policy.TCP, Port: uint16(1 + i), Target: uint16(2000 + 2*i)})
			}
			r.SetServices([]*policy.Service{s})
		}
		greedy(compile.MaxTargetPorts)
		w.want(soonOpen, "ports", "its node is ready")
		said := func() (n int) {
			for _, e := range w.events() {
				if e == "FQDNNetworkPolicy/web Warning "+companion.ReasonTooManyPorts {
					n++
				}
			}
			return n
		}
		if said() != 0 {
			t.Error("said though there is room")
		}
		for i := range 5 {
			greedy(compile.MaxTargetPorts + 1 + i)
			w.pass(5 * time.Second)
		}
		if n := said(); n != 1 {
			t.Errorf("said %d times", n)
		}
		for _, n := range w.networkPolicies() {
			if isCompanion(&n) && len(n.Spec.Egress[1].Ports) != 1+compile.MaxTargetPorts {
				t.Errorf("%d ports", len(n.Spec.Egress[1].Ports))
			}
		}
	})
}

// TestUnchangedServices cause no work.
func TestUnchangedServices(t *testing.T) {
	r, err := New(Options{Client: fake.NewClientset(), Dynamic: &dynamic.DynamicClient{}, Namespace: "namegate", Log: statustest.Silent})
	fatal.If(t, err)
	db := statustest.Service("db", policy.ServicePort{Port: 443, Target: 8443})
	list := []*policy.Service{db}
	moved := *db
	moved.Selector = map[string]string{"app": "db"}
	for _, c := range []struct {
		what string
		tell func()
		news bool
	}{
		{"the first", func() { r.SetServices(list) }, true},
		{"the same list", func() { r.SetServices(list) }, false},
		{"one that says the same", func() { r.SetServices(slices.Clone(list)) }, false},
		{"another selector", func() { r.SetServices([]*policy.Service{&moved}) }, false},
		{"another port", func() {
			r.SetServices([]*policy.Service{statustest.Service("db", policy.ServicePort{Port: 443, Target: 1})})
		}, true},
		{"another name", func() {
			r.SetServices([]*policy.Service{statustest.Service("dc", policy.ServicePort{Port: 443, Target: 1})})
		}, true},
		{"one more", func() {
			r.SetServices([]*policy.Service{statustest.Service("dc", policy.ServicePort{Port: 443, Target: 1}), db})
		}, true},
		{"a domain", func() { r.SetDomain(statustest.ClusterLocal) }, true},
		{"the same domain", func() { r.SetDomain(statustest.ClusterLocal) }, false},
		{"none", func() { r.SetServices(nil) }, true},
	} {
		c.tell()
		news := len(r.leadChanged) > 0
		if news {
			<-r.leadChanged
		}
		if news != c.news {
			t.Errorf("%s: news %v", c.what, news)
		}
	}
}
