package enforcer

import (
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// moved is asksPeers, with two connections open, and the snapshot after one of the
// databases got another address.
func moved(t *testing.T) (*world, *policy.Snapshot, policy.Pod) {
	w, client := asksPeers(t)
	for _, db := range []string{"10.2.0.1:5432", "10.2.0.2:5432"} {
		f := flow("10.1.0.5:"+db[len(db)-4:], db)
		f.Mark = DefaultMark
		w.flows.Track(f)
	}
	w.remote = slices.Clone(w.remote)
	w.remote[0] = far("db1", "10.2.0.9 2001:db8:2::1", "db")
	return w, w.compile([]policy.Pod{client}, pol("allow", "tcp/443 www.example.org")), client
}

// Where only peers differ nothing is asked of the kernel but what differs: neither what
// other sets hold nor which interfaces there are.
func TestPeerChangesReadNothingElse(t *testing.T) {
	t.Parallel()
	w, next, _ := moved(t)
	w.seams.forget(0, false)
	fatal.If(t, w.rollOut(next))
	for _, step := range w.seams.written() {
		if strings.HasPrefix(step, "list ") {
			t.Errorf("%s", step)
		}
	}
	all := w.all()
	if !strings.Contains(all, "10.1.0.5:5432 10.2.0.1:5432 0x0") || !strings.Contains(all, "10.1.0.5:5432 10.2.0.2:5432 0x40") {
		t.Errorf("the connection to the address that went is not cut, or another is:\n%s", all)
	}
}

// A retry of the same snapshot repairs every fault on the way.
func TestFaultsOfPeersAlone(t *testing.T) {
	t.Parallel()
	w, next, _ := moved(t)
	fatal.If(t, w.rollOut(next))
	want := w.all()
	eachFault(t, 3, true, func() (*world, func() error) {
		w, next, _ = moved(t)
		return w, func() error { return w.rollOut(next) }
	}, func(f fault) { f.retried(func() error { return f.rollOut(next) }, want) })
}

// An unselected pod is known from its first snapshot on, also where its peers
// differ and no view does.
func TestPeersAndAnUnselectedPod(t *testing.T) {
	t.Parallel()
	w, _, client := moved(t)
	w.apply([]policy.Pod{client, pod("plain", "10.1.0.77")}, pol("allow", "tcp/443 www.example.org"))
	if !strings.Contains(w.dump(), "10.1.0.77") {
		t.Error("the tables do not know the pod that came together with a change of peers")
	}
	if w.reaches("10.1.0.5", "10.2.0.1:5432", policy.TCP) || !w.reaches("10.1.0.5", "10.2.0.9:5432", policy.TCP) {
		t.Error("the peers are not the snapshot's")
	}
}
