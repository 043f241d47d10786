package proxy

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/namegate/namegate/audit"
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
	// Beside them: two of what is under way, two of the cache, types and latency.
	if s.NumField() != len(want)+6 {
		t.Errorf("Stats has %d fields, %d counters", s.NumField(), len(want))
	}
}

func TestStatsAsJSON(t *testing.T) {
	b, err := json.Marshal(Stats{ShedPod: 3})
	if err != nil || !strings.Contains(string(b), `"shedPod":3`) {
		t.Errorf("%s, %v", b, err)
	}
	typ := reflect.TypeFor[Stats]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if tag := f.Tag.Get("json"); tag != "-" && !strings.EqualFold(tag, f.Name) {
			t.Errorf("%s is %q in JSON", f.Name, tag)
		}
	}
}
