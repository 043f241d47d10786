package enforcer

import (
	"reflect"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/flows"
)

// TestTheSameStateIsRenderedEqual: the tables are not written again for an equal state, and
// tell by its order too.
func TestTheSameStateIsRenderedEqual(t *testing.T) {
	t.Parallel()
	eachPlane(t, func(t *testing.T, plane string) {
		w, next := busyOn(t, plane)
		w.e.flows.Recheck(flows.PolicyChanged, addrs("10.1.0.5 10.1.0.6 10.1.0.7 10.1.0.9 2001:db8:1::5"))
		if err := w.e.flows.Record(); err != nil {
			t.Fatal(err)
		}
		w.clock.Pass(time.Second)
		subjects := w.e.planOf(next)
		first := w.e.tablesState(subjects)
		for range 20 {
			if again := w.e.tablesState(w.e.planOf(next)); !reflect.DeepEqual(again, first) {
				t.Fatalf("rendered again:\n%+v\nthe first time:\n%+v", again, first)
			}
		}
	})
}
