package denial

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestWhyDenied: the first reason that holds, with the names that show it.
func TestWhyDenied(t *testing.T) {
	for _, c := range []struct {
		what  string
		given func(w *world)
		proto string
		to    string
		want  string
	}{
		{"nobody knows the address", func(*world) {}, "tcp", "198.51.100.1:443", "denied a tcp 198.51.100.1:443 address x1 []"},
		{"no match covers the name", func(w *world) { w.told("a", "x.test", "198.51.100.1", 60, "") }, "tcp", "198.51.100.1:443",
			"denied a tcp 198.51.100.1:443 unmatched x1 [x.test]"},
		{"an ICMP echo is on no port", func(w *world) { w.opened("a", "web.example.org", "198.51.100.1", time.Minute) }, "icmp", "198.51.100.1",
			"denied a 1 198.51.100.1:0 ports x1 [web.example.org by shop/allow web.example.org]"},
		{"a match on another port", func(w *world) { w.opened("a", "web.example.org", "198.51.100.1", time.Minute) }, "tcp", "198.51.100.1:80",
			"denied a tcp 198.51.100.1:80 ports x1 [web.example.org by shop/allow web.example.org]"},
		{"a match on the port of another protocol", func(w *world) { w.opened("a", "web.example.org", "198.51.100.1", time.Minute) }, "udp", "198.51.100.1:443",
			"denied a udp 198.51.100.1:443 ports x1 [web.example.org by shop/allow web.example.org]"},
		{"its time is over", func(w *world) { w.opened("a", "x.api.example.org", "198.51.100.1", -time.Minute) }, "tcp", "198.51.100.1:443",
			"denied a tcp 198.51.100.1:443 expired x1 [x.api.example.org by shop/allow *.api.example.org]"},
		{"the guard took it out", func(w *world) { w.told("a", "web.example.org", "198.51.100.1", 60, "node") }, "tcp", "198.51.100.1:443",
			"denied a tcp 198.51.100.1:443 blocked x1 [web.example.org by shop/allow web.example.org]"},
		{"the guard took it out, and it is another port", func(w *world) { w.told("a", "web.example.org", "198.51.100.1", 60, "node") }, "tcp", "198.51.100.1:80",
			"denied a tcp 198.51.100.1:80 ports x1 [web.example.org by shop/allow web.example.org]"},
		{"one name is blocked, another over", func(w *world) {
			w.told("a", "web.example.org", "198.51.100.1", 60, "node")
			w.opened("a", "y.api.example.org", "198.51.100.1", -time.Second)
		}, "tcp", "198.51.100.1:443",
			"denied a tcp 198.51.100.1:443 expired x1 [y.api.example.org by shop/allow *.api.example.org; web.example.org by shop/allow web.example.org]"},
		{"another pod asked, by an answer that opened nothing", func(w *world) { w.told("b", "x.test", "198.51.100.1", 60, "") }, "tcp", "198.51.100.1:443",
			"denied a tcp 198.51.100.1:443 another x1 [x.test of b]"},
		{"another pod asked, and it was opened for it", func(w *world) { w.opened("other", "web.example.org", "198.51.100.1", time.Hour) }, "tcp", "198.51.100.1:443",
			"denied a tcp 198.51.100.1:443 another x1 [web.example.org of other by shop/allow web.example.org]"},
		{"the pod's own names go before another's", func(w *world) {
			w.told("b", "theirs.test", "198.51.100.1", 60, "")
			w.told("a", "mine.test", "198.51.100.1", 60, "")
		}, "tcp", "198.51.100.1:443", "denied a tcp 198.51.100.1:443 unmatched x1 [mine.test]"},
		{"the newest name first", func(w *world) {
			w.told("a", "old.test", "198.51.100.1", 60, "")
			w.now = w.now.Add(time.Second)
			w.told("a", "new.test", "198.51.100.1", 60, "")
		}, "tcp", "198.51.100.1:443", "denied a tcp 198.51.100.1:443 unmatched x1 [new.test; old.test]"},
		{"an Audit policy's match opens nothing", func(w *world) { w.told("a", "any.example.org", "198.51.100.1", 60, "") }, "tcp", "198.51.100.1:443",
			"denied a tcp 198.51.100.1:443 unmatched x1 [any.example.org]"},
		{"what was open and is forgotten", func(w *world) {
			w.memory.Remember(policy.GrantInfo{Pod: policytest.Ref("a"), Name: policytest.Name("gone.test"), Addr: at["a"].Next(), Until: start})
		}, "tcp", at["a"].Next().String() + ":443", "denied a tcp 10.1.0.6:443 unmatched x1 [gone.test]"},
		{"IPv6", func(w *world) { w.told("a", "x.test", "2001:db8::1", 60, "") }, "udp", "[2001:db8::1]:53",
			"denied a udp [2001:db8::1]:53 unmatched x1 [x.test]"},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t)
			c.given(w)
			w.denied("a", c.proto, c.to)
			if w.expect(c.want); t.Failed() {
				return
			}
			f := w.denials.Recent(policytest.Ref("a"))
			if len(f) != 1 || text(f[0]) != c.want || f[0].Address != at["a"] || f[0].Workload != "mode=enforce" || len(f[0].Policies) != 1 || f[0].Policies[0] != "shop/allow" {
				t.Errorf("lately: %+v", f)
			}
		})
	}
}

// TestWouldDeny: a connection of a pod that only Audit policies select is a flow exactly
// if its policies would not open the destination when enforced.
func TestWouldDeny(t *testing.T) {
	for _, c := range []struct {
		what  string
		given func(w *world)
		proto string
		to    string
		want  string // "" for none
	}{
		{"by address", func(*world) {}, "tcp", "198.51.100.1:443", "would-deny b tcp 198.51.100.1:443 address x1 []"},
		{"covered", func(w *world) { w.told("b", "web.example.org", "198.51.100.1", 60, "") }, "tcp", "198.51.100.1:443", ""},
		{"covered on every port", func(w *world) { w.told("b", "any.example.org", "198.51.100.1", 60, "") }, "icmp", "198.51.100.1", ""},
		{"another port", func(w *world) { w.told("b", "web.example.org", "198.51.100.1", 60, "") }, "tcp", "198.51.100.1:80",
			"would-deny b tcp 198.51.100.1:80 ports x1 [web.example.org by shop/watch web.example.org]"},
		{"no match", func(w *world) { w.told("b", "x.test", "198.51.100.1", 60, "") }, "tcp", "198.51.100.1:80", "would-deny b tcp 198.51.100.1:80 unmatched x1 [x.test]"},
		{"blocked", func(w *world) { w.told("b", "web.example.org", "198.51.100.1", 60, "pod") }, "tcp", "198.51.100.1:443",
			"would-deny b tcp 198.51.100.1:443 blocked x1 [web.example.org by shop/watch web.example.org]"},
		{"in its last moment", func(w *world) {
			w.told("b", "web.example.org", "198.51.100.1", 60, "")
			w.now = w.now.Add(2*time.Minute - time.Nanosecond)
		}, "tcp", "198.51.100.1:443", ""},
		{"over", func(w *world) {
			w.told("b", "web.example.org", "198.51.100.1", 60, "")
			w.now = w.now.Add(2 * time.Minute)
		}, "tcp", "198.51.100.1:443", "would-deny b tcp 198.51.100.1:443 expired x1 [web.example.org by shop/watch web.example.org]"},
		{"asked again", func(w *world) {
			w.told("b", "web.example.org", "198.51.100.1", 60, "")
			w.now = w.now.Add(2 * time.Minute)
			w.told("b", "web.example.org", "198.51.100.1", 60, "")
		}, "tcp", "198.51.100.1:443", ""},
		{"another pod's answer", func(w *world) { w.told("a", "web.example.org", "198.51.100.1", 60, "") }, "tcp", "198.51.100.1:443",
			"would-deny b tcp 198.51.100.1:443 another x1 [web.example.org of a by shop/watch web.example.org]"},
		{"DNS at a resolver", func(*world) {}, "udp", "192.0.2.53:53", ""},
		{"DNS over TCP", func(*world) {}, "tcp", "192.0.2.53:53", ""},
		{"ICMP to a resolver", func(*world) {}, "icmp", "192.0.2.53", "would-deny b 1 192.0.2.53:0 address x1 []"},
		{"DNS elsewhere", func(*world) {}, "udp", "198.51.100.53:53", "would-deny b udp 198.51.100.53:53 address x1 []"},
		{"itself", func(*world) {}, "tcp", at["b"].String() + ":80", ""},
		{"what was enforced a moment ago", func(w *world) {
			w.memory.Remember(policy.GrantInfo{Pod: policytest.Ref("b"), Name: policytest.Name("web.example.org"), Addr: at["c"], Until: w.now.Add(time.Minute)})
		}, "tcp", at["c"].String() + ":443", ""},
		{"what was enforced, and asked for since with less", func(w *world) {
			w.memory.Remember(policy.GrantInfo{Pod: policytest.Ref("b"), Name: policytest.Name("web.example.org"), Addr: at["c"], Until: w.now.Add(time.Hour)})
			w.told("b", "web.example.org", at["c"].String(), 1, "")
			w.now = w.now.Add(59 * time.Minute)
		}, "tcp", at["c"].String() + ":443", ""},
		{"what was enforced and is over", func(w *world) {
			w.memory.Remember(policy.GrantInfo{Pod: policytest.Ref("b"), Name: policytest.Name("web.example.org"), Addr: at["c"], Until: w.now})
		}, "tcp", at["c"].String() + ":443", "would-deny b tcp 10.1.0.7:443 expired x1 [web.example.org by shop/watch web.example.org]"},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t)
			c.given(w)
			w.audited("b", c.proto, c.to)
			if c.want == "" {
				w.expect()
				return
			}
			w.expect(c.want)
		})
	}
}

// TestAuditedConnectionWaitsForItsAnswer: an audited connection is judged by the answers
// known a moment later.
func TestAuditedConnectionWaitsForItsAnswer(t *testing.T) {
	w := newWorld(t)
	w.denials.take(w.packet(nflog.PrefixAudited, "b", "tcp", "198.51.100.1:443"))
	w.pass(settle - time.Nanosecond)
	w.expect()
	w.told("b", "web.example.org", "198.51.100.1", 60, "")
	w.pass(time.Nanosecond)
	w.expect()
	for _, total := range w.denials.Totals() {
		if total.Count != 0 {
			t.Errorf("%+v of an allowed connection", total)
		}
	}
}

// TestPacketsWithoutAVerdict: packets of a pod that is enforced by now, of an unselected
// pod, of an unknown pod, and of another program's rules.
func TestPacketsWithoutAVerdict(t *testing.T) {
	w := newWorld(t)
	w.audited("a", "tcp", "198.51.100.1:443")
	w.audited("c", "tcp", "198.51.100.1:443")
	unknown := w.packet(nflog.PrefixDenied, "a", "tcp", "198.51.100.1:443")
	unknown.Source = at["a"].Prev().Prev().Prev()
	w.denials.take(unknown)
	w.denials.take(w.packet("theirs ", "a", "tcp", "198.51.100.1:443"))
	w.pass(settle)
	w.expect()
	// It was denied, whatever the policies say a moment later.
	w.denied("c", "tcp", "198.51.100.1:443")
	w.expect("denied c tcp 198.51.100.1:443 address x1 []")
	w.snap = nil
	w.denied("a", "tcp", "198.51.100.1:443")
	w.expect()
}

// TestAuditMatchesOpenNothing: where an enforcing policy selects the pod too.
func TestAuditMatchesOpenNothing(t *testing.T) {
	w := newWorld(t)
	w.snap = compile.New().Compile(compile.Input{
		Policies: []v1alpha1.FQDNNetworkPolicy{
			fqdnPolicy("allow", "enforce", v1alpha1.EnforcementEnforce, "web.example.org:443"),
			fqdnPolicy("watch", "enforce", v1alpha1.EnforcementAudit, "any.example.org:0"),
		},
		Pods: []policy.Pod{{PodRef: policytest.Ref("a"), IPs: []netip.Addr{at["a"]}, Labels: map[string]string{"mode": "enforce"}}},
	})
	w.told("a", "any.example.org", "198.51.100.1", 60, "")
	w.denied("a", "tcp", "198.51.100.1:443")
	w.expect("denied a tcp 198.51.100.1:443 unmatched x1 [any.example.org]",
		"would-allow a tcp 198.51.100.1:443 unmatched x1 [any.example.org by shop/watch any.example.org]")
	if f := w.denials.Recent(policytest.Ref("a"))[0]; !slices.Equal(f.Policies, []string{"shop/allow", "shop/watch"}) {
		t.Errorf("policies: %v", f.Policies)
	}
}

func TestNamesAreBounded(t *testing.T) {
	w := newWorld(t)
	for i := range 2 * maxNames {
		w.opened("other", string(rune('a'+i))+".test", "198.51.100.1", time.Hour)
	}
	w.opened("other", "web.example.org", "198.51.100.1", time.Hour)
	w.denied("a", "tcp", "198.51.100.1:443")
	f := w.denials.Recent(policytest.Ref("a"))[0]
	if len(f.Names) != maxNames || f.Names[0].Match == nil || f.Reason != audit.ReasonAnother {
		t.Errorf("%s", text(f))
	}
}
