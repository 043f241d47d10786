package proxy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
)

// hanging makes the granter hang whatever becomes of its context.
func (l *lab) hanging() (free func()) {
	gate := make(chan struct{})
	l.granter.Err = func(context.Context, []policy.Grant) error { <-gate; return errors.New("too late") }
	setup := *l.s.setup.Load()
	config := *setup.config
	config.GrantTimeout = 20 * time.Millisecond
	setup.config = &config
	l.s.setup.Store(&setup)
	return func() { close(gate) }
}

// TestHangingGranterEndsInServfail: the pod is told that it failed although the
// granter does not come back, and such calls do not pile up.
func TestHangingGranterEndsInServfail(t *testing.T) {
	l := newLab(t, labTable)
	defer l.hanging()()
	l.s.granting = make(chan struct{}, 3)
	for i := range 5 {
		if r := l.ask("10.1.0.2", "www.example.org", dns.TypeA); r.Rcode != dns.RcodeServerFailure {
			t.Errorf("query %d: %v", i, r)
		}
		want := "deadline exceeded"
		if i >= 3 {
			want = "too many grants wait"
		}
		if err := l.log.last(t).Error; !strings.Contains(err, want) {
			t.Errorf("query %d: %s", i, err)
		}
	}
	if n := len(l.s.granting); n != 3 {
		t.Errorf("%d calls wait", n)
	}
	if n := l.s.Stats().GrantFailures; n != 5 {
		t.Errorf("%d failures", n)
	}
}

func TestGranterThatPanicsEndsInServfail(t *testing.T) {
	l := newLab(t, labTable)
	l.granter.Err = func(context.Context, []policy.Grant) error { panic("a fault for the test") }
	if r := l.ask("10.1.0.2", "www.example.org", dns.TypeA); r.Rcode != dns.RcodeServerFailure {
		t.Errorf("%v", r)
	}
	if s := l.s.Stats(); s.Panics != 1 || s.GrantFailures != 1 || len(l.s.granting) != 0 {
		t.Errorf("stats %+v, %d calls wait", s, len(l.s.granting))
	}
}

// TestWarmSurvivesAFault: a fault in one question ends that question alone.
func TestWarmSurvivesAFault(t *testing.T) {
	l := newLab(t, nil)
	l.use(l.s.setup.Load().config, faulty{})
	strict := l.s.snapshot.Load().ViewOf(labPods[2].PodRef)
	err := l.s.Warm(context.Background(), []*policy.View{strict})
	if err == nil || !strings.Contains(err.Error(), "www.example.org for pod shop/strict: a fault") || l.s.Stats().Panics != 2 {
		t.Errorf("error %v, stats %+v", err, l.s.Stats())
	}
}

// TestFailureTellsNoAddress: an upstream's error for an allowed name reaches the
// pod without the addresses that came with it, which nobody granted.
func TestFailureTellsNoAddress(t *testing.T) {
	for _, rcode := range []string{"SERVFAIL", "REFUSED", "NOTIMP", "FORMERR", "NXDOMAIN", "YXDOMAIN"} {
		l := newLab(t, map[string][]string{"www.example.org A": {rcode, "www.example.org. 60 IN A " + forged, "+ns.test. 60 IN A " + forged}})
		r := l.ask("10.1.0.2", "www.example.org", dns.TypeA)
		if dns.RcodeToString[r.Rcode] != rcode || strings.Contains(r.String(), forged) || len(l.granter.Grants()) != 0 {
			t.Errorf("%s: %v, granted %v", rcode, r, l.granted())
		}
	}
}
