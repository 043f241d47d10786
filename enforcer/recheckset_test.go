package enforcer

import (
	"context"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// dies lets the agent die before the nth step of a roll-out, and tells whether there
// is such a step.
func (w *world) dies(n int, s *policy.Snapshot) (died bool) {
	steps := 0
	w.seams.before = func(step string) {
		if steps++; steps == n {
			panic(w)
		}
	}
	defer func() {
		w.seams.before = nil
		if died = recover() == any(w); died {
			w.restart()
		}
	}()
	fatal.If(w.t, w.rollOut(s))
	return false
}

// TestAnAgentThatDiesLeavesNothingUncut: whenever it dies, the next one cuts what is not
// allowed any more, and no connection of whom that is not about, though it knows nothing
// of the grants that have ended.
func TestAnAgentThatDiesLeavesNothingUncut(t *testing.T) {
	t.Parallel()
	const name, peer = "192.0.2.3:443", "10.2.0.1:80"
	for _, test := range []struct {
		what, lost, kept string // whither web's connections go
		change           func(w *world)
		web              []string // what selects it then, nil: it is gone
	}{
		{"a peer goes", peer, name, func(w *world) { w.remote = nil }, []string{"allow", "more", "np"}},
		{"a peer moves", peer, name, func(w *world) { w.remote = []*policy.Pod{far("db", "10.2.0.2", "db")} }, []string{"allow", "more", "np"}},
		{"a NetworkPolicy goes", peer, name, func(w *world) { w.netpols = w.netpols[1:] }, []string{"allow", "more", "np"}},
		{"a policy goes", name, peer, func(*world) {}, []string{"allow", "np"}},
		{"the pod goes", name, "", func(*world) {}, nil},
		// The agent that dies has followed another.
		{"a peer has gone", peer, name, func(w *world) { w.remote = nil; w.restart() }, []string{"allow", "more", "np"}},
		{"a policy has gone", name, peer, func(w *world) { w.restart() }, []string{"allow", "np"}},
		{"the pod has gone", name, "", func(w *world) { w.restart() }, nil},
	} {
		n := 1
		for died := true; died && n < maxSteps; n++ {
			w := newWorld(t)
			w.remote = []*policy.Pod{far("db", "10.2.0.1", "db")}
			w.netpols = []*networkingv1.NetworkPolicy{netpol("np", "tcp/80 db"), netpol("np2", "tcp/81 db")}
			other := pod("other", "10.1.0.6", "allow", "more", "np2")
			pods := []policy.Pod{pod("web", "10.1.0.5", "allow", "more", "np"), other}
			rules := []string{"tcp/443 www.example.org"}
			w.apply(pods, pol("allow", rules...), pol("more", "tcp/443 mail.test"))
			w.answer(other, "www.example.org", 1, "192.0.2.4")
			w.expire(time.Hour)
			w.answer(pods[0], "mail.test", 60, "192.0.2.3")
			open := func(from, to string) conntrack.Flow {
				f := flow(from, to)
				w.flows.Track(f)
				return f
			}
			lost, ended := open("10.1.0.5:1", test.lost), open("10.1.0.6:3", "192.0.2.4:443")
			kept := ended
			if test.kept != "" {
				kept = open("10.1.0.5:2", test.kept)
			}
			test.change(w)
			if pods = pods[1:]; test.web != nil {
				pods = append(pods, pod("web", "10.1.0.5", test.web...))
			}
			died = w.dies(n, w.compile(pods, pol("allow", rules...), pol("more", "tcp/443 mail.test")))
			w.apply(pods, pol("allow", rules...), pol("more", "tcp/443 mail.test"))
			if w.admitted(lost) || !w.admitted(kept) {
				t.Errorf("%s, and the agent dies before step %d: admitted what is not allowed %v, what is %v", test.what, n, w.admitted(lost), w.admitted(kept))
			}
			if !w.admitted(ended) {
				t.Errorf("%s, and the agent dies before step %d: a pod that this is not about is cut", test.what, n)
			}
			w.clock.Pass(packetGrace)
			w.recheck()
			if left, err := w.e.k.Tables.ListRecheck(context.Background()); err != nil || len(left) > 0 {
				t.Errorf("%s, and the agent dies before step %d: owed are %v, %v", test.what, n, left, err)
			}
		}
		if n < 5 {
			t.Errorf("%s: only %d steps", test.what, n)
		}
	}
}
