package audit

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

// cpu is the processor time of the process, in user and in kernel mode.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	fatal.If(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// spin is the work of a query beside its line: so many rounds of nothing.
func spin(rounds int) (x uint64) {
	for range rounds {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// roundsOf returns the rounds that spin for d.
func roundsOf(d time.Duration) int {
	const probe = 20_000_000
	from := time.Now()
	sum := spin(probe)
	took := time.Since(from)
	if sum == 0 { // never: so that the loop is not left out
		return 0
	}
	return int(int64(probe) * int64(d) / int64(took))
}

// shifts is how often work with and without a log take turns, since the
// processor's speed changes on the way.
const shifts = 20

// benchBusy measures the total cost of a record at 100,000 records a second: the callers
// work between two records, and the time of the same work without a log is subtracted.
func benchBusy(b *testing.B, l *Log, r Record, callers int) {
	rounds := roundsOf(time.Duration(callers) * 10 * time.Microsecond)
	load := func(count int, write bool) time.Duration {
		from := cpu(b)
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				for i := c; i < count; i += callers {
					if spin(rounds) == 0 {
						return
					}
					if write {
						l.Write(r)
					}
				}
			})
		}
		wg.Wait()
		return cpu(b) - from
	}
	b.ReportAllocs()
	b.ResetTimer()
	var used time.Duration
	for range shifts {
		used += load(b.N/shifts, true)
		used -= load(b.N/shifts, false)
	}
	from := cpu(b)
	_ = l.Close(context.Background())
	used += cpu(b) - from
	b.StopTimer()
	b.ReportMetric(float64(used)/float64(b.N/shifts*shifts), "cpu-ns/record")
	b.ReportMetric(float64(l.Dropped())/float64(b.N), "dropped/record")
	b.ReportMetric(0, "ns/op")
}

func openBench(b *testing.B) *Log {
	l, err := Open(Options{Node: "node-1", Path: filepath.Join(b.TempDir(), "audit.log"), Size: 100 << 20, Keep: 1})
	fatal.If(b, err)
	return l
}

func openNull(b *testing.B) *Log {
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	fatal.If(b, err)
	b.Cleanup(func() { _ = f.Close() })
	return To(f, Options{Node: "node-1"})
}

func benchKinds(b *testing.B, open func(*testing.B) *Log) {
	for _, callers := range []int{1, 2} {
		b.Run(fmt.Sprintf("whole/callers=%d", callers), func(b *testing.B) { benchBusy(b, open(b), cached(b), callers) })
		b.Run(fmt.Sprintf("prepared/callers=%d", callers), func(b *testing.B) { benchBusy(b, open(b), prepared(b), callers) })
	}
}

// BenchmarkWriteFile is the log on a file that rotates; TMPDIR says on which disk.
func BenchmarkWriteFile(b *testing.B) { benchKinds(b, openBench) }

// BenchmarkWriteNull is the log where write(2) costs nothing but the call.
func BenchmarkWriteNull(b *testing.B) { benchKinds(b, openNull) }

// BenchmarkWriteCaller is the caller's side alone, with one caller and with as
// many as there are processors, as fast as they can.
func BenchmarkWriteCaller(b *testing.B) {
	b.Run("alone", func(b *testing.B) {
		l, r := To(io.Discard, Options{}), prepared(b)
		b.ReportAllocs()
		for b.Loop() {
			l.Write(r)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		l, r := To(io.Discard, Options{}), prepared(b)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				l.Write(r)
			}
		})
	})
}

func BenchmarkAppendLine(b *testing.B) {
	run := func(name string, r Record) {
		b.Run(name, func(b *testing.B) {
			node, line := nodeField("node-1"), []byte(nil)
			b.ReportAllocs()
			for b.Loop() {
				line = appendLine(line[:0], node, &r)
			}
			b.ReportMetric(float64(len(line)), "bytes/line")
		})
	}
	run("example", example(b))
	run("cached", cached(b))
	run("prepared", prepared(b))
}

// cached is the record of a cache hit: one address, one match.
func cached(b *testing.B) Record {
	r := example(b)
	r.Answers, r.Chain = r.Answers[:1], nil
	r.Latency = 12 * time.Microsecond
	return r
}

func prepared(b *testing.B) Record {
	r := cached(b)
	r.Prepared = Prepare(&r)
	return r
}
