package denial

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestManyConnectionsAreOneLineAndACount: the first connection is logged immediately, the others
// at the end of the minute, and a continuing flow is a line a minute.
func TestManyConnectionsAreOneLineAndACount(t *testing.T) {
	w := newWorld(t)
	for i := range 1000 {
		w.denied("a", "tcp", "198.51.100.1:443")
		if i == 0 {
			w.expect("denied a tcp 198.51.100.1:443 address x1 []")
		}
		w.pass(50 * time.Millisecond)
	}
	w.expect()
	if got := w.denials.Recent(policytest.Ref("a")); len(got) != 1 || got[0].Count != 1000 || !got[0].Time.Equal(start) || !got[0].Last.Equal(w.now.Add(-50*time.Millisecond)) {
		t.Errorf("lately: %+v", got)
	}
	w.pass(start.Add(period - 1).Sub(w.now))
	w.expect()
	w.pass(1)
	diff.MustEqual(t, 1, len(w.lines), "lines")
	if f := w.lines[0]; !f.Time.Equal(start.Add(50*time.Millisecond)) || !f.Last.Equal(start.Add(999*50*time.Millisecond)) {
		t.Errorf("counted from %v to %v", f.Time, f.Last)
	}
	w.expect("denied a tcp 198.51.100.1:443 address x999 []")
	w.denied("a", "tcp", "198.51.100.1:443")
	w.expect() // the flow continues
	w.pass(period)
	w.expect("denied a tcp 198.51.100.1:443 address x1 []")
	w.pass(period)
	w.expect() // it does not
	w.denied("a", "tcp", "198.51.100.1:443")
	w.expect("denied a tcp 198.51.100.1:443 address x1 []") // a new flow is logged immediately
	if got := w.denials.Recent(policytest.Ref("a")); len(got) != 1 || got[0].Count != 1002 {
		t.Errorf("lately: %+v", got)
	}
}

// TestReasonFollowsTheSnapshot: the line of a minute has the reason at its end, and each
// connection counts for the reason at its time.
func TestReasonFollowsTheSnapshot(t *testing.T) {
	w := newWorld(t)
	w.denied("a", "tcp", "198.51.100.1:80")
	w.pass(10 * time.Second)
	w.opened("a", "web.example.org", "198.51.100.1", time.Hour)
	w.denied("a", "tcp", "198.51.100.1:80")
	w.denied("a", "tcp", "198.51.100.1:80")
	w.pass(period)
	w.expect("denied a tcp 198.51.100.1:80 address x1 []", "denied a tcp 198.51.100.1:80 ports x2 [web.example.org by shop/allow web.example.org]")
	for _, total := range w.denials.Totals() {
		want := map[audit.FlowReason]uint64{audit.ReasonAddress: 1, audit.ReasonPorts: 2}[total.Reason]
		if total.Verdict != audit.Denied {
			want = 0
		}
		diff.Equal(t, want, total.Count, total)
	}
	diff.Equal(t, 3*(len(reasons)+3)+3*3+5, len(w.denials.Totals()), "totals")
}

// TestNoisyPodHasALimit: a port scan has a limited number of flows; connections beyond it
// are counted and logged once a minute.
func TestNoisyPodHasALimit(t *testing.T) {
	w := newWorld(t)
	var log strings.Builder
	w.denials.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	countedOfPod := countedFlows.Each
	for port := range 10 * countedOfPod {
		w.denied("a", "tcp", fmt.Sprintf("198.51.100.1:%d", 1+port))
	}
	w.denied("other", "tcp", "198.51.100.1:443")
	if len(w.lines) != countedOfPod+1 || text(w.lines[countedOfPod]) != "denied other tcp 198.51.100.1:443 address x1 []" {
		t.Errorf("%d lines, the last %s", len(w.lines), text(w.lines[len(w.lines)-1]))
	}
	if over := w.denials.Over(); over != uint64(9*countedOfPod) {
		t.Errorf("%d are over, want %d", over, 9*countedOfPod)
	}
	w.pass(0)
	w.denied("a", "tcp", "198.51.100.9:9")
	w.pass(time.Second)
	if n := strings.Count(log.String(), "can be listed apart"); n != 1 || !strings.Contains(log.String(), fmt.Sprintf("counted=%d", 9*countedOfPod)) {
		t.Errorf("the agent's log:\n%s", log.String())
	}
	if got := w.denials.Recent(policytest.Ref("a")); len(got) != recentFlows.Each || int(got[0].Dialled.Port()) != countedOfPod {
		t.Errorf("%d are remembered, the newest to %s", len(got), got[0].Dialled)
	}
	w.pass(period)
	w.lines = nil
	w.denied("a", "tcp", "198.51.100.9:9")
	w.expect("denied a tcp 198.51.100.9:9 address x1 []")
}

// TestAllIsBounded: many noisy pods have no more than all may.
func TestAllIsBounded(t *testing.T) {
	var many []policy.Pod
	for i := range 80 {
		many = append(many, policy.Pod{
			PodRef: policytest.Ref(fmt.Sprint("p", i)), IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 2, 0, byte(i)})}, Labels: map[string]string{"mode": "enforce"},
		})
	}
	w := newWorld(t, many...)
	flood := func(to string) {
		for port := range 70 {
			for i := range many {
				p := w.packet(nflog.PrefixDenied, "a", "tcp", fmt.Sprintf("%s:%d", to, 1+port))
				p.Source = many[i].IPs[0]
				w.denials.take(p)
			}
		}
	}
	flood("198.51.100.1")
	counted := len(w.lines)
	if fair := countedFlows.All / 81; counted < 80*fair || counted > countedFlows.All {
		t.Errorf("%d lines, want %d for each pod", counted, fair)
	}
	diff.Equal(t, uint64(80*70-counted), w.denials.Over(), "over")
	w.pass(period)
	flood("198.51.100.2") // newer flows
	all := 0
	for i := range many {
		lately := w.denials.Recent(many[i].PodRef)
		if all += len(lately); !slices.IsSortedFunc(lately, func(a, b audit.Flow) int { return b.Last.Compare(a.Last) }) {
			t.Errorf("%s: not the newest first", many[i].PodRef)
		}
	}
	n, _ := w.denials.flows.recent.Len()
	if fair := recentFlows.All / 81; all < 80*fair || all > recentFlows.All || all != n {
		t.Errorf("%d are remembered, counted as %d", all, n)
	}
	w.pass(period)
	w.pass(period)
	for range 3 {
		w.denied("a", "tcp", "198.51.100.1:443")
	}
	if all = len(w.denials.flows.counted); all != 1 {
		t.Errorf("%d are counted after a quiet minute and one", all)
	}
}

// TestWaitingIsBounded: more audited packets than can come in their time are counted.
func TestWaitingIsBounded(t *testing.T) {
	w := newWorld(t)
	for port := range maxWaiting + 5 {
		w.denials.take(w.packet(nflog.PrefixAudited, "b", "tcp", fmt.Sprintf("198.51.100.1:%d", 1+port%10)))
	}
	diff.Equal(t, 5, w.denials.Over(), "over")
	w.pass(settle)
	if len(w.lines) != 10 || len(w.denials.waiting) != 0 {
		t.Errorf("%d lines, %d wait", len(w.lines), len(w.denials.waiting))
	}
}

// TestFlowsLikeTwin: for random packets each connection is in one line, in the totals and
// in the recent flows, and only a flow's first line is followed by another within a
// minute.
func TestFlowsLikeTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 7))
	for range 30 {
		w := newWorld(t)
		twin, told := map[string]uint64{}, map[string]uint64{}
		last := map[string]time.Time{}
		ended := false
		read := func() {
			for i := range w.lines {
				f := &w.lines[i]
				k := fmt.Sprintf("%s %s", f.Pod.Name, f.Dialled)
				if told[k] += f.Count; f.Count > 1 && f.Last.Before(f.Time) {
					t.Fatalf("a line's last is before its first: %+v", f)
				}
				if f.Count > 1 && w.now.Sub(last[k]) < period && !ended {
					t.Fatalf("%s: counts %v after the line before", k, w.now.Sub(last[k]))
				}
				last[k] = w.now
			}
			w.lines = nil
		}
		for range 400 {
			pod, to := []string{"a", "other"}[r.IntN(2)], fmt.Sprintf("198.51.100.%d:443", r.IntN(4))
			w.denied(pod, "tcp", to)
			twin[pod+" "+to]++
			read()
			if r.IntN(4) == 0 {
				w.pass(time.Duration(r.IntN(40)) * time.Second)
				read()
			}
		}
		ended = true
		w.denials.end()
		read()
		sum := uint64(0)
		for k, n := range twin {
			if sum += n; told[k] != n {
				t.Fatalf("%s: %d are in lines, want %d", k, told[k], n)
			}
		}
		for _, pod := range []string{"a", "other"} {
			for _, f := range w.denials.Recent(policytest.Ref(pod)) {
				if k := fmt.Sprintf("%s %s", pod, f.Dialled); f.Count != twin[k] {
					t.Fatalf("%s: %d are remembered, want %d", k, f.Count, twin[k])
				}
			}
		}
		for _, total := range w.denials.Totals() {
			sum -= total.Count
		}
		if sum != 0 {
			t.Fatalf("the totals lack %d", int64(sum))
		}
	}
}

// TestRun: packets come from the kernel's log, and counted flows are written at the end.
func TestRun(t *testing.T) {
	w := newWorld(t)
	packets := make(logged, 10)
	lines := make(chan audit.Flow, 10)
	w.denials.o.Packets = packets
	w.denials.o.Log = func(f *audit.Flow) { lines <- *f }
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.denials.Run(ctx) }()
	for range 3 {
		packets <- w.packet(nflog.PrefixDenied, "a", "tcp", "198.51.100.1:443")
	}
	late := w.packet(nflog.PrefixAudited, "b", "tcp", "198.51.100.1:443")
	packets <- late
	diff.Equal(t, "denied a tcp 198.51.100.1:443 address x1 []", text(<-lines))
	fatal.Await(t, "Run takes all packets", func() bool { return len(packets) == 0 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	close(lines)
	var rest []string
	for f := range lines {
		rest = append(rest, text(f))
	}
	want := []string{"would-deny b tcp 198.51.100.1:443 address x1 []", "denied a tcp 198.51.100.1:443 address x2 []"}
	diff.Equal(t, strings.Join(want, "\n"), strings.Join(rest, "\n"), "at the end")
}

// logged are packets that the kernel logged.
type logged chan nflog.Packet

func (l logged) Packets(ctx context.Context, each func(nflog.Packet)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-l:
			each(p)
		}
	}
}

func (logged) Lost() uint64 { return 0 }

type broken struct{ nflog.Interface }

var errBroken = errors.New("no more")

func (broken) Packets(context.Context, func(nflog.Packet)) error { return errBroken }

func TestRunReturnsTheReadersError(t *testing.T) {
	w := newWorld(t)
	w.denials.o.Packets = broken{}
	diff.Is(t, errBroken, w.denials.Run(context.Background()))
}

// TestDeniedByTheNamespace: a rule that denies in the Namespace tier is named as one of a cluster
// policy is, for what it denies and for what that of an Audit policy would deny.
func TestDeniedByTheNamespace(t *testing.T) {
	w := newWorld(t)
	encrypted := func(pod string, audit bool) *policy.Rule {
		v := w.snap.ViewOf(policytest.Ref(pod))
		rule := &policy.Rule{Action: policy.Deny, Ports: "tcp/853,udp/853", Policy: v.Policies[0], Path: "spec.dns.encrypted", Audit: audit}
		v.Rules.NamespaceDeny = append(v.Rules.NamespaceDeny, rule)
		return rule
	}
	a, b := encrypted("a", false), encrypted("b", true)
	w.opened("a", "web.example.org", "198.51.100.1", time.Hour)
	w.denied("a", "tcp", "198.51.100.1:853")
	w.told("b", "any.example.org", "198.51.100.2", 3600, "")
	w.audited("b", "udp", "198.51.100.2:853")
	w.audited("b", "udp", "198.51.100.2:443")
	if len(w.lines) != 2 || w.lines[0].Rule != a || w.lines[1].Rule != b || w.lines[1].Verdict != audit.WouldDeny || w.lines[0].Reason != audit.ReasonRule {
		t.Errorf("%d lines: %+v", len(w.lines), w.lines)
	}
	for _, total := range w.denials.Totals() {
		diff.Equal(t, total.Reason == audit.ReasonRule && total.Tier == policy.Namespace && total.Verdict != audit.WouldAllow, total.Count == 1, total)
	}
}
