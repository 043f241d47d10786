package upstream

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/upstream/upstreamtest"
)

// BenchmarkUpstreamProcess is the upstream of the benchmarks.
func BenchmarkUpstreamProcess(b *testing.B) { upstreamtest.RunProcess(b) }

// cpu is what the process has used of the processors.
func cpu(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkResolve is BenchmarkExchange with the choice of the upstream.
func BenchmarkResolve(b *testing.B) {
	u := newUpstream(upstreamtest.Process(b), new(Pool))
	defer u.close()
	f := newZone()
	f.set(&corefile.Zone{MaxFails: 2, Timeout: time.Second, Deadline: 4 * time.Second}, []*upstream{u}, nil)
	a := askFor(b, "www.example.org")
	b.SetParallelism(32)
	b.ReportAllocs()
	began := cpu(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := f.resolve(a); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64((cpu(b)-began).Nanoseconds())/1000/float64(b.N), "cpu-µs/op")
}

// BenchmarkExchange is one query to an upstream and its reply, by how many are
// under way at a time: processor time of this side alone.
func BenchmarkExchange(b *testing.B) {
	for _, at := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(at), func(b *testing.B) {
			u := newUpstream(upstreamtest.Process(b), new(Pool))
			defer u.close()
			a := askFor(b, "www.example.org")
			b.ReportAllocs()
			jobs := make(chan struct{}, at)
			var wg sync.WaitGroup
			var lost atomic.Int64
			began := cpu(b)
			b.ResetTimer()
			for range at {
				wg.Go(func() {
					for range jobs {
						now := time.Now()
						if _, err := u.exchange(a, attempt{udp: now.Add(time.Second), tcp: now.Add(2 * time.Second), maxFails: 2}); err != nil {
							lost.Add(1)
						}
					}
				})
			}
			for range b.N {
				jobs <- struct{}{}
			}
			close(jobs)
			wg.Wait()
			b.ReportMetric(float64(lost.Load()), "lost")
			b.ReportMetric(float64((cpu(b)-began).Nanoseconds())/1000/float64(b.N), "cpu-µs/op")
		})
	}
}
