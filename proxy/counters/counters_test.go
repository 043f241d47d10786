package counters

import (
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/stats"
	"github.com/namegate/namegate/testkit/diff"
)

// TestEveryCounterIsReported: no counter is left out of Stats or told under another name.
func TestEveryCounterIsReported(t *testing.T) {
	var c Counters
	var up upstream.Counters
	v := reflect.ValueOf(&c.Counters).Elem()
	want := map[string]uint64{}
	for i := range v.NumField() {
		v.Field(i).Addr().Interface().(*atomic.Uint64).Store(uint64(i + 1))
		want[v.Type().Field(i).Name] = uint64(i + 1)
	}
	for field, n := range map[string]*atomic.Uint64{"UpstreamQueries": &up.Queries, "UpstreamTCP": &up.TCP, "UpstreamFailures": &up.Failures, "WrongReplies": &up.WrongReplies, "ShedZone": &up.Shed} {
		want[field] = 200 + uint64(len(want))
		n.Store(want[field])
	}
	for verdict, field := range map[audit.Verdict]string{audit.Allowed: "Allowed", audit.Unmatched: "Unmatched", audit.Refused: "Refused", audit.Blocked: "Blocked", audit.Failed: "Failed", audit.NameDenied: "Denied", audit.Renewed: "Renewed"} {
		c.Verdicts[verdict][0].Store(100 + uint64(verdict))
		c.Verdicts[verdict][other].Store(1000)
		want[field] = 1100 + uint64(verdict)
	}
	s := reflect.ValueOf(c.Snapshot(&up))
	for field, n := range want {
		f := s.FieldByName(field)
		if !f.IsValid() || f.Uint() != n {
			t.Errorf("%s: %v, want %d", field, f, n)
		}
	}
	// Beside them: two of queries in flight and two of the cache.
	fields := reflect.TypeFor[stats.Proxy]().NumField() - 1 + reflect.TypeFor[stats.Counters[uint64]]().NumField()
	diff.Equal(t, len(want)+4, fields, "fields of Stats")
}
