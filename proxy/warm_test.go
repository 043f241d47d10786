package proxy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
)

func TestWarmGrantsTheExactNames(t *testing.T) {
	l := newLab(t, labTable)
	snap := l.s.snapshot.Load()
	if err := l.s.Warm(context.Background(), snap.Views[:0]); err != nil || len(l.up.asked) != 0 {
		t.Errorf("nothing to do: %v, asked %v", err, l.up.asked)
	}
	if err := l.s.Warm(context.Background(), snap.Views); err != nil {
		t.Fatal(err)
	}
	got := l.granted()
	slices.Sort(got)
	equal(t, "grants", got, []string{
		"both one.test [192.0.2.10] tcp/80 +1m45s",
		"both one.test [192.0.2.10] udp/53 +1m45s",
		"quiet www.example.org [192.0.2.1 192.0.2.2] any +3m0s",
		"quiet www.example.org [2001:db8:9::1] any +2m0s",
		"strict www.example.org [192.0.2.1 192.0.2.2] any +3m0s",
		"strict www.example.org [2001:db8:9::1] any +2m0s",
		"web app.ingress.test [10.96.7.1] tcp/443 +2m0s",
		"web db.shop.svc.cluster.local [10.96.0.9] tcp/443 +1m30s",
		"web www.example.org [192.0.2.1 192.0.2.2] tcp/443 +3m0s",
		"web www.example.org [2001:db8:9::1] tcp/443 +2m0s",
	})
	if len(l.log.recs) != 0 || l.s.Stats().Queries != 0 {
		t.Errorf("logged %v, stats %+v", l.log.recs, l.s.Stats())
	}
}

func TestWarmGoesByTheGuardAndSaysWhatFailed(t *testing.T) {
	l := newLab(t, map[string][]string{
		"www.example.org A":    {"www.example.org. 60 IN A 169.254.169.254"},
		"www.example.org AAAA": {"error"},
	})
	strict := l.s.snapshot.Load().ViewOf(labPods[2].PodRef)
	err := l.s.Warm(context.Background(), []*policy.View{strict})
	if err == nil || !strings.Contains(err.Error(), "www.example.org for pod shop/strict") {
		t.Errorf("error %v", err)
	}
	if len(l.granter.Grants()) != 0 {
		t.Errorf("grants %v", l.granter.Grants())
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for range 50 { // the places may be taken before the end is seen
		if err = l.s.Warm(over, []*policy.View{strict}); errors.Is(err, context.Canceled) {
			return
		}
	}
	t.Errorf("after the end: %v", err)
}
