package denial

import (
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
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
		diff.Equal(t, 0, total.Count, total, "of an allowed connection")
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
