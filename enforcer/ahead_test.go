package enforcer

import (
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestFirstStartRefusesNothingAllowed: on a node without an earlier agent the chains say
// what pods may do before anything denies them: at no step is a new connection refused
// that is allowed, and one that is opened on the way goes on.
func TestFirstStartRefusesNothingAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := pod("client", "10.1.0.5 2001:db8:1::5", "allow", "np")
	w.netpols = append(w.netpols, netpol("np", "tcp/5432 db"))
	w.remote = append(w.remote, far("db", "10.2.0.1 2001:db8:2::1", "db"))
	snap := w.compile([]policy.Pod{client}, pol("allow", "tcp/443 www.example.org"))
	open := func(step string) {
		for _, to := range []string{"10.2.0.1:5432", "[2001:db8:2::1]:5432"} {
			from := map[bool]string{true: "10.1.0.5", false: "2001:db8:1::5"}[addrPort(to).Addr().Is4()]
			if !w.reaches(from, to, policy.TCP) {
				t.Errorf("%s is refused before: %s", to, step)
			}
		}
	}
	w.seams.before = open
	w.prepare(snap)
	fatal.If(t, w.answerBy(snap, client, "www.example.org", 60, "192.0.2.1"))
	w.seams.before = func(step string) {
		open(step)
		if !w.reaches("10.1.0.5", "192.0.2.1:443", policy.TCP) {
			t.Errorf("what was granted is refused before: %s", step)
		}
	}
	early := &packet{Src: addr("10.1.0.5"), Dst: addr("10.2.0.1"), Protocol: uint8(policy.TCP), DstPort: 5432}
	if w.passes(early); early.Conn&DefaultMark == 0 {
		t.Error("what a pod opens while its names are resolved has no admission")
	}
	w.commit()
	open("the end")
	if w.reaches("10.1.0.5", "10.2.0.1:5433", policy.TCP) {
		t.Error("nothing is denied")
	}
}

// What an earlier agent's chains say stays in force until the first Commit, also where
// the first snapshot has nothing of it.
func TestFirstPrepareLeavesAnEarlierAgentsChains(t *testing.T) {
	t.Parallel()
	w, client := asksPeers(t)
	w.restart()
	w.netpols = nil
	snap := w.compile([]policy.Pod{client}, pol("allow", "tcp/443 www.example.org"))
	w.prepare(snap)
	if !w.reaches("10.1.0.5", "10.2.0.1:5432", policy.TCP) {
		t.Error("the first Prepare took away what was in force")
	}
}
