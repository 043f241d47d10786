package enforcer

import (
	"context"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestAChangeAppliesOnce: a change is applied to the tables once to prepare it and once to commit it. One Apply
// is two transactions where chains come: they are there before elements lead to them. With the dataplane iptables a
// pod without peers has no chain. With the dataplane nftables
// sets of grants come before rules ask them, the second net is written too, and what no rule asks goes at last.
func TestAChangeAppliesOnce(t *testing.T) {
	t.Parallel()
	all := map[string]policy.Pod{"web": pod("web", "10.1.0.5", "allow"), "db": pod("db", "10.1.0.6", "allow"), "late": pod("late", "10.1.0.7", "allow")}
	for what, test := range map[string]struct {
		pods   []string
		policy string
		want   map[string][2]int // transactions of Prepare and Commit
	}{
		"nothing":         {[]string{"web", "db"}, "tcp/443 www.example.org", map[string][2]int{iptablesPlane: {0, 0}, nftablesPlane: {0, 0}}},
		"names":           {[]string{"web", "db"}, "tcp/443 www.example.org mail.test", map[string][2]int{iptablesPlane: {0, 0}, nftablesPlane: {0, 0}}},
		"ports":           {[]string{"web", "db"}, "tcp/80-90 www.example.org", map[string][2]int{iptablesPlane: {0, 1}, nftablesPlane: {3, 4}}},
		"a pod that came": {[]string{"web", "db", "late"}, "tcp/443 www.example.org", map[string][2]int{iptablesPlane: {1, 1}, nftablesPlane: {3, 2}}},
		"a pod that goes": {[]string{"web"}, "tcp/443 www.example.org", map[string][2]int{iptablesPlane: {0, 2}, nftablesPlane: {0, 4}}},
	} {
		for plane, want := range test.want {
			w := newNode(t)
			w.plane = plane
			w.restart()
			w.apply([]policy.Pod{all["web"], all["db"]}, pol("allow", "tcp/443 www.example.org"))
			var pods []policy.Pod
			for _, name := range test.pods {
				pods = append(pods, all[name])
			}
			w.seams.forget(0, false)
			fatal.If(t, w.e.Prepare(context.Background(), w.compile(pods, pol("allow", test.policy))))
			prepared := w.seams.writes("nft")
			w.seams.forget(0, false)
			fatal.If(t, w.e.Commit(context.Background()))
			if committed := w.seams.writes("nft"); len(prepared) != want[0] || len(committed) != want[1] {
				t.Errorf("%s, %s: %q, then %q, want %v transactions", what, plane, prepared, committed, want)
			}
		}
	}
}
