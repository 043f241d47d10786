package stats

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestProxyAsJSON(t *testing.T) {
	b, err := json.Marshal(Proxy{Counters: Counters[uint64]{ShedPod: 3}})
	if err != nil || !strings.Contains(string(b), `"shedPod":3`) {
		t.Errorf("%s, %v", b, err)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Proxy]()) {
		if tag := f.Tag.Get("json"); !f.Anonymous && !strings.EqualFold(tag, f.Name) {
			t.Errorf("%s is %q in JSON", f.Name, tag)
		}
	}
}
