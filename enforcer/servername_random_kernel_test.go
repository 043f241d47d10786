package enforcer_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// claims asserts what Egress says of a flow with each name: the relay connects where the pod holds a live grant of the address
// for the name by a rule that decides, and where the flow were allowed if no rule required a name.
func (w *twin) claims(from string, f *policy.Flow) {
	w.t.Helper()
	v := w.view(from)
	if v == nil {
		return
	}
	source := w.Pod(from).Addr4
	if f.Dialled.Addr().Is6() {
		source = w.Pod(from).Addr6
	}
	flow := policy.Flow{Protocol: policy.TCP, Dialled: f.Dialled, Reached: f.Dialled, ByName: true}
	held := w.e.Grants().NamesOf(v.Pod.PodRef, f.Dialled.Addr())
	judged := func(counts func(policy.GrantInfo) bool) policy.Verdict {
		g := flow
		for _, info := range held {
			if !info.Until.Before(time.Now()) && counts(info) {
				g.EnterGrant(v, &info)
			}
		}
		verdict, _ := policy.Judge(v, w.snapshot, &g)
		return verdict
	}
	before := judged(func(policy.GrantInfo) bool { return true })
	for _, name := range []string{"a.test", "b.test", "c.test", "d.test"} {
		holds, want := false, before
		if before == policy.CheckFlow {
			want = judged(func(i policy.GrantInfo) bool { return !i.Rule.ServerName() || i.Name == policytest.Name(name) })
			if want != policy.CheckFlow {
				want = policy.DenyFlow
			}
		}
		for _, i := range held {
			holds = holds || i.Rule.ServerName() && i.Name == policytest.Name(name)
		}
		if w.inside(f) {
			want = policy.DenyFlow
		}
		got := w.egress(source, f.Dialled, policytest.Name(name)).Verdict
		if got != want || got == policy.CheckFlow && !holds {
			w.t.Errorf("%s to %s with %s: %v, want %v; it holds the name: %v; grants %+v", from, f.Dialled, name, got, want, holds, held)
		}
		if got != policy.DenyFlow && !w.withoutNames(v, flow, held) {
			w.t.Errorf("%s to %s with %s: %v, and without the check of names it were denied", from, f.Dialled, name, got)
		}
		w.claimed[got]++
	}
}

// withoutNames evaluates a flow as if no rule required a name.
func (w *twin) withoutNames(v *policy.View, f policy.Flow, held []policy.GrantInfo) bool {
	bare := *v
	for _, list := range []*[]*policy.Rule{&bare.Rules.Admin, &bare.Rules.Namespace, &bare.Rules.Baseline, &bare.Rules.NamespaceChecked} {
		*list = slices.Clone(*list)
		for i, r := range *list {
			plain := *r
			plain.ServerName = false
			(*list)[i] = &plain
		}
	}
	for _, info := range held {
		if info.Until.Before(time.Now()) {
			continue
		}
		if f.EnterGrant(&bare, &info); info.Rule.ServerName() {
			f.Open = append(f.Open, info.Ports)
		}
	}
	allowed, _ := policy.Evaluate(&bare, w.snapshot, &f)
	return allowed
}

// TestRelayedConnectionsOfLostTables: tables that are flushed, and conntrack entries that are deleted, open nothing that a pod
// could not open before, and after a repair connections are led again. One that had a right goes on.
func TestRelayedConnectionsOfLostTables(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		outside := outsides(1)
		p.serveRelay()
		p.ordered = map[string][]*policy.Rule{"client": {checked(policy.Namespace, "tcp/80", "checked", "a.test")}}
		p.apply()
		p.answer("client", "a.test", outside...)
		dialled := func() (open []net.Conn) {
			for _, a := range outside {
				open = append(open, p.dial("client", a, 80))
			}
			return open
		}
		led := func(when string) {
			t.Helper()
			for _, a := range outside {
				p.leads(when, "client", netip.AddrPortFrom(a, 80), true)
				p.leads(when+", of another pod", "other", netip.AddrPortFrom(a, 80), false)
			}
			p.silent(when, p.relays()...)
		}
		open := dialled()
		for _, command := range []string{"flush ruleset", "delete table inet namegate"} {
			_, err := p.Node.Run("sh", "-c", "nft "+command)
			fatal.If(t, err)
			_ = p.Node.Do(p.e.Compare) // what is to be rechecked cannot be noted in a table that is lost
			p.reconcile()
			led("after nft " + command)
			p.goOn("after nft "+command, true, open...)
			if d := p.e.Deviations(); len(d) != 0 {
				t.Errorf("after nft %s: %v", command, d)
			}
		}
		_, err := p.Node.Run("sh", "-c", "conntrack -D -p tcp; conntrack -D -f ipv6 -p tcp; true")
		fatal.If(t, err)
		p.goOn("without entries of conntrack", true, open...)
		p.ordered["client"][0] = checked(policy.Namespace, "tcp/81", "checked", "a.test")
		p.apply()
		p.goOn("without the right", false, open...)
		p.silent("without the right", p.relays()...)
	})
}

// TestRelayedConnectionsAreCutAfterAnAgent: what an earlier agent's relay opened is cut by the next one where the right is
// gone, and a direct connection where a rule begins to require the name; none is cut where it does so no more.
func TestRelayedConnectionsAreCutAfterAnAgent(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		outside := outsides(1)
		p.serveRelay()
		rules := func(names ...string) {
			t.Helper()
			p.ordered = map[string][]*policy.Rule{"client": {checked(policy.Admin, "tcp/80", "checked", names...)}}
			p.apply()
		}
		both := func() []net.Conn {
			return []net.Conn{p.dial("client", outside[0], 80), p.dial("client", outside[1], 80)}
		}
		rules("a.test", "b.test")
		p.answer("client", "a.test", outside...)
		relayed := both()
		p.restart()
		rules("a.test", "b.test")
		p.reconcile()
		p.goOn("under the next agent", true, relayed...)
		rules("b.test")
		p.goOn("without its name", false, relayed...)

		plain := []*policy.Rule{byName(policy.Admin, policy.Accept, "tcp/80", "checked", "a.test"), {Tier: policy.Admin, Action: policy.Deny, Ports: "tcp/80", Policy: "cluster"}}
		p.ordered["client"] = plain
		p.apply()
		p.answer("client", "a.test", outside...)
		direct := both()
		rule := checked(policy.Admin, "tcp/80", "checked", "a.test")
		audit := checked(policy.Admin, "tcp/80", "checked", "a.test")
		audit.Audit, audit.Matches[0].Audit = true, true
		p.ordered["client"] = append([]*policy.Rule{audit}, plain...)
		p.apply()
		p.goOn("under an Audit policy that requires the name", true, direct...)
		p.ordered["client"] = []*policy.Rule{rule, plain[1]}
		p.apply()
		p.goOn("where the name is required", false, direct...)
		p.answer("client", "a.test", outside...)
		relayed = both()
		p.ordered["client"] = append([]*policy.Rule{rule}, plain...)
		p.apply()
		p.answer("client", "a.test", outside...)
		p.ordered["client"] = plain
		p.apply()
		p.goOn("where the name is required no more", true, relayed...)
	})
}
