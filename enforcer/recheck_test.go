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

// TestAPacketUnderWayIsCut has connections appear, admitted, when the agent has listed
// all of them: their first packets were judged before the change.
func TestAPacketUnderWayIsCut(t *testing.T) {
	t.Parallel()
	const name, peer = "192.0.2.3:443", "10.2.0.1:80"
	for _, test := range []struct {
		what, lost string // whither web's connection goes
		kept       string // and one that goes on
		change     func(w *world)
		web        []string // what selects it then, nil: it is gone
	}{
		{"a peer goes", peer, name, func(w *world) { w.remote = nil }, []string{"allow", "more", "np"}},
		{"a NetworkPolicy goes", peer, name, func(w *world) { w.netpols = nil }, []string{"allow", "more", "np"}},
		{"a policy goes", name, peer, func(*world) {}, []string{"allow", "np"}},
		{"the pod goes", name, "", func(*world) {}, nil},
	} {
		for _, how := range []string{"in peace", "another change is prepared", "the agent dies"} {
			w := newWorld(t)
			w.remote = []*policy.Pod{far("db", "10.2.0.1", "db")}
			w.netpols = []*networkingv1.NetworkPolicy{netpol("np", "tcp/80 db")}
			other := pod("other", "10.1.0.6", "allow", "more")
			pods := []policy.Pod{pod("web", "10.1.0.5", "allow", "more", "np"), other}
			policies := func() { w.apply(pods, pol("allow", "tcp/443 www.example.org"), pol("more", "tcp/443 mail.test")) }
			policies()
			w.answer(pods[0], "mail.test", 60, "192.0.2.3")
			w.answer(other, "mail.test", 60, "192.0.2.3")
			test.change(w)
			if pods = pods[1:]; test.web != nil {
				pods = append(pods, pod("web", "10.1.0.5", test.web...))
			}
			policies()
			track := func(from, to string) conntrack.Flow {
				f := flow(from, to)
				w.flows.Track(f)
				return f
			}
			late, others := track("10.1.0.5:1", test.lost), track("10.1.0.6:1", name)
			kept := others
			if test.kept != "" {
				kept = track("10.1.0.5:2", test.kept)
			}
			w.clock.Pass(packetGrace)
			switch how {
			case "another change is prepared":
				fatal.If(t, w.e.Prepare(context.Background(), w.compile(append(pods, pod("new", "10.1.0.9", "allow")))))
				if w.recheck(); !w.admitted(late) {
					t.Errorf("%s, %s: judged while two snapshots count", test.what, how)
				}
				policies()
			case "the agent dies":
				w.restart()
				policies()
			}
			w.recheck()
			if w.admitted(late) || !w.admitted(kept) || !w.admitted(others) {
				t.Errorf("%s, %s: admitted what was under way %v, what is allowed %v, another pod's %v", test.what, how, w.admitted(late), w.admitted(kept), w.admitted(others))
			}
			w.clock.Pass(packetGrace)
			w.recheck()
			if left, err := w.e.k.Tables.ListRecheck(context.Background()); err != nil || len(left) > 0 {
				t.Errorf("%s, %s: owed are %v, %v", test.what, how, left, err)
			}
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
		late, own := flow("10.1.0.5:1", "192.0.2.3:443"), flow("10.1.0.5:2", "192.0.2.4:443")
		w.flows.Track(late)
		w.flows.Track(own)
		w.clock.Pass(packetGrace)
		w.recheck()
		if w.admitted(late) || !w.admitted(own) {
			t.Errorf("restart %v: admitted what the last pod sent %v, what the next one opened %v", restart, w.admitted(late), w.admitted(own))
		}
	}
}
