package limit

import (
	"fmt"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestZones: each zone of a pod has the queries of a minute, and they come back one by one.
func TestZones(t *testing.T) {
	var z Zones
	pod, other := policytest.Ref("web"), policytest.Ref("db")
	taken := func(pod policy.PodRef, zone string, perMinute int, now time.Duration) (n int) {
		for z.Take(pod, policy.ZoneRate{Zone: policytest.Name(zone), PerMinute: perMinute}, now) {
			n++
		}
		return n
	}
	for i, test := range []struct {
		pod       policy.PodRef
		zone      string
		perMinute int
		now       time.Duration
		want      int
	}{
		{pod, "one.test", 6, 0, 6}, {pod, "one.test", 6, 9 * time.Second, 0}, {pod, "one.test", 6, 10 * time.Second, 1}, {pod, "two.test", 6, 10 * time.Second, 6},
		{other, "one.test", 6, 10 * time.Second, 6}, {pod, "one.test", 6, time.Hour, 6}, {pod, "slow.test", 1, 0, 1}, {pod, "slow.test", 1, 59 * time.Second, 0}, {pod, "slow.test", 1, time.Minute, 1},
	} {
		diff.Equal(t, test.want, taken(test.pod, test.zone, test.perMinute, test.now), "step", i)
	}
	z.Sweep(func(p policy.PodRef) bool { return p == other })
	if len(z.pods) != 1 || taken(pod, "one.test", 6, time.Hour) != 6 {
		t.Error("a pod that is gone has buckets")
	}
}

// TestRatesOfOneZone: each rate limits the queries for all names of the zone, in any order.
func TestRatesOfOneZone(t *testing.T) {
	type step struct {
		perMinute int
		at        time.Duration
		want      int // taken until there is none
	}
	for _, steps := range [][]step{
		{{60, 0, 60}, {30, 0, 0}, {30, 2 * time.Second, 1}, {60, 2 * time.Second, 1}, {60, time.Minute, 58}, {30, time.Minute, 0}},
		{{30, 0, 30}, {60, 0, 30}, {30, 2 * time.Second, 1}, {60, 2 * time.Second, 1}},
		{{30, 0, 30}, {60, 0, 30}, {10, 0, 0}, {10, time.Hour, 10}, {60, time.Hour, 50}},
		{{600_000, 0, 600_000}, {599_999, 0, 0}},
	} {
		var z Zones
		for i, s := range steps {
			n := 0
			for z.Take(policytest.Ref("web"), policy.ZoneRate{Zone: policytest.Name("one.test"), PerMinute: s.perMinute}, s.at) {
				n++
			}
			diff.Equal(t, s.want, n, steps, "step", i)
		}
	}
}

// TestZonesAreBounded: zones without end have the tokens of maxZones zones and one more, until
// theirs are back.
func TestZonesAreBounded(t *testing.T) {
	var z Zones
	pod := policytest.Ref("web")
	for round, now := range []time.Duration{time.Hour, 2 * time.Hour} {
		n := 0
		for i := range 10 * maxZones {
			for range 5 {
				if z.Take(pod, policy.ZoneRate{Zone: policytest.Name(fmt.Sprintf("z%d-%d.test", round, i)), PerMinute: 3}, now) {
					n++
				}
			}
		}
		if want := 3 * (maxZones + 1); n != want || len(z.pods[pod]) > maxZones+1 {
			t.Errorf("round %d: %d tokens of %d zones, want %d", round, n, len(z.pods[pod]), want)
		}
	}
}
