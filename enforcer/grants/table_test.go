package grants

import (
	"context"
	"runtime"
	"testing"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/testkit/fatal"
)

// BenchmarkGrantTable is the memory of 100,000 grants of 250 pods.
func BenchmarkGrantTable(b *testing.B) {
	for b.Loop() {
		w, all := crowd(b, 250)
		w.table.cfg.Kernel = nowhere{w.sets}
		const grants = 100_000
		before := heapInUse()
		for _, g := range w.fresh(all, grants) {
			fatal.If(b, w.table.Grant(context.Background(), g))
		}
		b.ReportMetric(float64(heapInUse()-before)/grants, "heap-B/grant")
		runtime.KeepAlive(w)
	}
}

// nowhere acknowledges what is added and forgets it.
type nowhere struct{ dataplane.GrantWriter }

func (nowhere) ApplyGrants([]dataplane.GrantOp) {}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
