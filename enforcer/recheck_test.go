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

// packetGrace is after how long the second look at connections is due.
const packetGrace = time.Second

// recheck lets the agent take a second look, if that is due.
func (w *world) recheck() { w.e.recheckDue(context.Background()) }

// loss is a change by which a pod loses what one of its connections goes to.
type loss struct {
	what, lost string // whither web's connection goes
	kept       string // and one that goes on, "": the pod is gone
	change     func(w *world)
	web        []string // what selects it then
}

// losses are of a peer and of a name.
func losses() []loss {
	const name, peer = "192.0.2.3:443", "10.2.0.1:80"
	return []loss{
		{"a peer goes", peer, name, func(w *world) { w.remote = nil }, []string{"allow", "more", "np"}},
		{"a peer moves", peer, name, func(w *world) { w.remote = []*policy.Pod{far("db", "10.2.0.2", "db")} }, []string{"allow", "more", "np"}},
		{"a NetworkPolicy goes", peer, name, func(w *world) { w.netpols = w.netpols[1:] }, []string{"allow", "more", "np"}},
		{"a policy goes", name, peer, func(*world) {}, []string{"allow", "np"}},
		{"the pod goes", name, "", func(*world) {}, nil},
	}
}

// losing is a world with the pods web and other, and connections: what web loses, what it keeps, and what of the
// other pod no grant covers any more.
type losing struct {
	*world
	pods              []policy.Pod
	lost, kept, ended conntrack.Flow
}

func newLosing(t *testing.T) *losing {
	l := &losing{world: newWorld(t), pods: []policy.Pod{pod("web", "10.1.0.5", "allow", "more", "np"), pod("other", "10.1.0.6", "allow", "more", "np2")}}
	l.remote = []*policy.Pod{far("db", "10.2.0.1", "db")}
	l.netpols = []*networkingv1.NetworkPolicy{netpol("np", "tcp/80 db"), netpol("np2", "tcp/81 db")}
	l.bring()
	l.answer(l.pods[1], "www.example.org", 1, "192.0.2.4")
	l.expire(time.Hour)
	l.answer(l.pods[0], "mail.test", 60, "192.0.2.3")
	return l
}

// next is the snapshot of the pods, and bring brings it into force.
func (l *losing) next() *policy.Snapshot {
	return l.compile(l.pods, pol("allow", "tcp/443 www.example.org"), pol("more", "tcp/443 mail.test"))
}

func (l *losing) bring() {
	l.t.Helper()
	fatal.If(l.t, l.rollOut(l.next()))
}

// change makes the change of a loss, which next has.
func (l *losing) change(by loss) {
	by.change(l.world)
	if l.pods = l.pods[1:]; by.kept != "" {
		l.pods = append(l.pods, pod("web", "10.1.0.5", by.web...))
	}
}

// opens opens the connections.
func (l *losing) opens(by loss) {
	l.lost, l.ended = l.track("10.1.0.5:1", by.lost), l.track("10.1.0.6:3", "192.0.2.4:443")
	if l.kept = l.ended; by.kept != "" {
		l.kept = l.track("10.1.0.5:2", by.kept)
	}
}

// isCut asserts that what is lost is cut alone, and that nothing is left to look for.
func (l *losing) isCut(when string) {
	l.t.Helper()
	if l.admitted(l.lost) || !l.admitted(l.kept) || !l.admitted(l.ended) {
		l.t.Errorf("%s: admitted what is not allowed %v, what is %v, another pod's %v", when, l.admitted(l.lost), l.admitted(l.kept), l.admitted(l.ended))
	}
	l.clock.Pass(packetGrace)
	l.recheck()
	if left, err := l.e.k.Tables.ListRecheck(context.Background()); err != nil || len(left) > 0 {
		l.t.Errorf("%s: owed are %v, %v", when, left, err)
	}
}

// TestAPacketUnderWayIsCut has connections appear, admitted, when the agent has listed
// all of them: their first packets were judged before the change.
func TestAPacketUnderWayIsCut(t *testing.T) {
	t.Parallel()
	for _, by := range losses() {
		for _, how := range []string{"in peace", "another change is prepared", "the agent dies"} {
			l := newLosing(t)
			l.change(by)
			l.bring()
			l.opens(by)
			l.clock.Pass(packetGrace)
			switch how {
			case "another change is prepared":
				l.prepare(l.compile(append(l.pods, pod("new", "10.1.0.9", "allow"))))
				if l.recheck(); !l.admitted(l.lost) {
					t.Errorf("%s, %s: judged while two snapshots count", by.what, how)
				}
				l.bring()
			case "the agent dies":
				l.restart()
				l.bring()
			}
			l.recheck()
			l.isCut(by.what + ", " + how)
		}
	}
}

// TestNextPodKeepsItsConnections has an address change hands: of what appears after the
// cut only the next pod's own connections stay.
func TestNextPodKeepsItsConnections(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		w := newWorld(t)
		last, next := pod("web", "10.1.0.5", "allow", "more"), pod("heir", "10.1.0.5", "allow")
		allow, more := pol("allow", "tcp/443 www.example.org"), pol("more", "tcp/443 mail.test")
		w.apply([]policy.Pod{last}, allow, more)
		w.answer(last, "mail.test", 60, "192.0.2.3")
		if restart {
			w.restart()
		}
		w.apply([]policy.Pod{next}, allow, more)
		w.answer(next, "www.example.org", 60, "192.0.2.4")
		late, own := w.track("10.1.0.5:1", "192.0.2.3:443"), w.track("10.1.0.5:2", "192.0.2.4:443")
		w.clock.Pass(packetGrace)
		w.recheck()
		if w.admitted(late) || !w.admitted(own) {
			t.Errorf("restart %v: admitted what the last pod sent %v, what the next one opened %v", restart, w.admitted(late), w.admitted(own))
		}
	}
}
