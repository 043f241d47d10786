package denial

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// requiring makes the rules of the pods require the server name, beside more policies, and grants x.api.example.org to a.
func (w *world) requiring(more ...*v1alpha1.FQDNNetworkPolicy) (v *policy.View) {
	checked := []*v1alpha1.FQDNNetworkPolicy{
		fqdnPolicy("allow", "enforce", v1alpha1.EnforcementEnforce, "web.example.org:443 *.api.example.org:443"), fqdnPolicy("watch", "audit", v1alpha1.EnforcementAudit, "web.example.org:443"),
	}
	for _, p := range checked {
		for i := range p.Spec.Egress {
			p.Spec.Egress[i].ServerName = v1alpha1.ServerNameRequire
		}
	}
	w.snap = compile.New().Compile(compile.Input{Policies: append(checked, more...), Pods: []policy.Pod{w.snap.View(at["a"]).Pod, w.snap.View(at["b"]).Pod}})
	v = w.snap.View(at["a"])
	w.granted = []policy.GrantInfo{{
		Pod: policytest.Ref("a"), Name: policytest.Name("x.api.example.org"), Addr: netip.MustParseAddr("198.51.100.1"), Until: w.now.Add(time.Minute), Rule: v.Rules.NamespaceChecked[1].ID,
	}}
	return v
}

// TestRelayed: a connection that the agent denies has the claimed name, bounded, and the rule that requires it.
func TestRelayed(t *testing.T) {
	w := newWorld(t)
	v := w.requiring()
	check := policy.Egress{Pod: v.Pod.PodRef, View: v, Verdict: policy.CheckFlow, By: v.Rules.NamespaceChecked[0]}
	for _, c := range []struct {
		what   string
		egress policy.Egress
		name   string
		limit  bool
		want   string // "" for no line
	}{
		{"another name", check, "y.test", false, "serverName y.test shop/allow"},
		{"no name", check, "", false, "serverName  shop/allow"},
		{"a long name", check, strings.Repeat("\n", 300), false, "serverName " + strings.Repeat("\n", 255) + " shop/allow"},
		{"no room", check, "", true, "limit  shop/allow"},
		{"no room for one that needs no check", policy.Egress{Pod: v.Pod.PodRef, View: v, Verdict: policy.AllowFlow, By: &policy.Rule{Tier: policy.Admin, Policy: "opens"}}, "", true, "limit  "},
		{"denied by another rule", policy.Egress{Pod: v.Pod.PodRef, View: v, By: &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Policy: "none"}}, "y.test", false, "rule y.test none"},
		{"without a rule", policy.Egress{Pod: v.Pod.PodRef, View: v}, "y.test", false, "expired y.test "},
		{"of no pod", policy.Egress{}, "y.test", false, ""},
	} {
		w.denials, w.lines = New(w.denials.o), nil
		w.denials.Relayed(Relayed{Egress: c.egress, Time: w.now, Source: at["a"], Dialled: netip.MustParseAddrPort("198.51.100.1:443"), ServerName: c.name, Limit: c.limit})
		got := ""
		for _, f := range w.lines {
			got = string(f.Reason) + " " + f.ServerName + " "
			if f.Rule != nil {
				got += f.Rule.Policy
			}
			if f.Verdict != audit.Denied || len(f.Names) != 1 || f.Count != 1 || f.Direction() != audit.Egress || f.Policies[0] != "shop/allow" {
				t.Errorf("%s: %+v", c.what, f)
			}
		}
		diff.Error(t, c.want, got, c.what)
		var counted uint64
		for _, total := range w.denials.Totals() {
			counted += total.Count
		}
		diff.Error(t, uint64(len(w.lines)), counted, c.what, "in the totals")
	}
}

// TestRelayedAlike: connections that claim one name are one flow, and each other name is another.
func TestRelayedAlike(t *testing.T) {
	w := newWorld(t)
	v := w.requiring()
	for _, name := range []string{"y.test", "y.test", "z.test"} {
		w.denials.Relayed(Relayed{
			Egress: policy.Egress{Pod: v.Pod.PodRef, View: v, Verdict: policy.CheckFlow, By: v.Rules.NamespaceChecked[0]}, Time: w.now, Source: at["a"], Dialled: netip.MustParseAddrPort("198.51.100.1:443"), ServerName: name,
		})
	}
	got := map[string]uint64{}
	for _, f := range w.denials.Recent(v.Pod.PodRef) {
		got[f.ServerName] = f.Count
	}
	diff.Error(t, map[string]uint64{"y.test": 2, "z.test": 1}, got)
}

// TestUnchecked: a packet that comes to the kernel in place of the agent is said to be one, as long as the address is
// open by a rule that requires the server name.
func TestUnchecked(t *testing.T) {
	w := newWorld(t)
	w.requiring()
	w.denied("a", "tcp", "198.51.100.1:443")
	w.expect("denied a tcp 198.51.100.1:443 unchecked Namespace shop/allow spec.egress[1] x1 [x.api.example.org by shop/allow *.api.example.org]")
	w.denied("a", "tcp", "198.51.100.1:80")
	w.expect("denied a tcp 198.51.100.1:80 ports x1 [x.api.example.org by shop/allow *.api.example.org]")
	w.granted[0].Until = w.now
	w.denials = New(w.denials.o)
	w.denied("a", "tcp", "198.51.100.1:443")
	w.expect("denied a tcp 198.51.100.1:443 expired x1 [x.api.example.org by shop/allow *.api.example.org]")
}

// TestInside: an address of the cluster, which a rule that requires the server name leaves closed.
func TestInside(t *testing.T) {
	w := newWorld(t)
	w.requiring()
	w.told("a", "web.example.org", "10.2.0.1", 60, audit.BlockedInside)
	w.denied("a", "tcp", "10.2.0.1:443")
	w.expect("denied a tcp 10.2.0.1:443 unchecked Namespace shop/allow spec.egress[0] x1 [web.example.org by shop/allow web.example.org]")
	w.told("a", "web.example.org", "10.2.0.2", 60, "node")
	w.denied("a", "tcp", "10.2.0.2:443")
	w.expect("denied a tcp 10.2.0.2:443 blocked x1 [web.example.org by shop/allow web.example.org]")
}

// TestAuditChecksNothing: what an Audit policy would check counts as allowed, in each direction.
func TestAuditChecksNothing(t *testing.T) {
	w := newWorld(t)
	w.requiring()
	w.told("b", "web.example.org", "198.51.100.1", 60, "")
	w.audited("b", "tcp", "198.51.100.1:443")
	w.expect()
	w.audited("b", "tcp", "198.51.100.1:80")
	w.expect("would-deny b tcp 198.51.100.1:80 ports x1 [web.example.org by shop/watch web.example.org]")

	w = newWorld(t)
	w.requiring(fqdnPolicy("watch-a", "enforce", v1alpha1.EnforcementAudit, "w.test:443"))
	w.told("a", "w.test", "198.51.100.2", 60, "")
	w.denied("a", "tcp", "198.51.100.2:443")
	w.expect("denied a tcp 198.51.100.2:443 unmatched x1 [w.test]", "would-allow a tcp 198.51.100.2:443 unmatched x1 [w.test by shop/watch-a w.test]")
	w.denied("a", "tcp", "198.51.100.1:443") // an enforced rule checks it, whatever Audit policies say
	w.expect("denied a tcp 198.51.100.1:443 unchecked Namespace shop/allow spec.egress[1] x1 [x.api.example.org by shop/allow *.api.example.org]")
}
