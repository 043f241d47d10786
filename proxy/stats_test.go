package proxy

import (
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/stats"
)

// TestEveryCounterIsTold: no counter is left out of Stats or told under another name.
func TestEveryCounterIsTold(t *testing.T) {
	var c counters
	v := reflect.ValueOf(&c).Elem()
	want := map[string]uint64{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		v.Field(i).Addr().Interface().(*atomic.Uint64).Store(uint64(i + 1))
		want[f.Name] = uint64(i + 1)
	}
	for verdict, field := range map[audit.Verdict]string{audit.Allowed: "Allowed", audit.Unmatched: "Unmatched", audit.Refused: "Refused", audit.Blocked: "Blocked", audit.Failed: "Failed"} {
		c.verdicts[verdict][typeA].Store(100 + uint64(verdict))
		c.verdicts[verdict][typeOther].Store(1000)
		want[field] = 1100 + uint64(verdict)
	}
	s := reflect.ValueOf(c.snapshot())
	for field, n := range want {
		f := s.FieldByName(field)
		if !f.IsValid() || f.Uint() != n {
			t.Errorf("%s: %v, want %d", field, f, n)
		}
	}
	// Beside them: two of what is under way, two of the cache and all of the upstreams.
	if n := reflect.TypeFor[stats.Proxy]().NumField(); n != len(want)+4+reflect.TypeFor[upstream.Stats]().NumField() {
		t.Errorf("Stats has %d fields, %d counters", n, len(want))
	}
}
