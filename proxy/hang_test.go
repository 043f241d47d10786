package proxy

import (
	"context"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
)

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

// TestFailedAnswerHasNoAddress: an upstream's error for an allowed name reaches the pod
// without the addresses in it, which are not granted.
func TestFailedAnswerHasNoAddress(t *testing.T) {
	for _, rcode := range []string{"SERVFAIL", "REFUSED", "NOTIMP", "FORMERR", "NXDOMAIN", "YXDOMAIN"} {
		l := newLab(t, map[string][]string{"www.example.org A": {rcode, "www.example.org. 60 IN A " + forged, "+ns.test. 60 IN A " + forged}})
		r := l.ask("10.1.0.2", "www.example.org", dns.TypeA)
		if dns.RcodeToString[r.Rcode] != rcode || strings.Contains(r.String(), forged) || len(l.granter.Grants()) != 0 {
			t.Errorf("%s: %v, granted %v", rcode, r, l.granted())
		}
	}
}
