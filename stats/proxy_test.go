package stats

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestProxyAsJSON(t *testing.T) {
	b, err := json.Marshal(Proxy{ShedPod: 3})
	if err != nil || !strings.Contains(string(b), `"shedPod":3`) {
		t.Errorf("%s, %v", b, err)
	}
	typ := reflect.TypeFor[Proxy]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if tag := f.Tag.Get("json"); !strings.EqualFold(tag, f.Name) {
			t.Errorf("%s is %q in JSON", f.Name, tag)
		}
	}
}
