package enforcer_test

import (
	"slices"
	"time"

	"github.com/namegate/namegate/policy"
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
