package upstream

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

// BenchmarkUpstreamProcess is the upstream of the benchmarks.
func BenchmarkUpstreamProcess(b *testing.B) { upstreamtest.RunProcess(b) }

// cpu is the processor time of the process.
func cpu(b *testing.B) time.Duration {
	var r syscall.Rusage
	fatal.If(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkResolve is one query to an upstream and its reply, by how many are under way
// at a time: processor time of this side alone.
func BenchmarkResolve(b *testing.B) {
	for _, at := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(at), func(b *testing.B) {
			z := newZone()
			u := newUpstream(upstreamtest.Process(b), z.pool)
			defer u.close()
			z.set(&corefile.Zone{MaxFails: 2, Timeout: time.Second, Deadline: 4 * time.Second}, []*upstream{u}, nil)
			q := askFor(b, "www.example.org")
			b.ReportAllocs()
			jobs := make(chan struct{}, at)
			var wg sync.WaitGroup
			began := cpu(b)
			b.ResetTimer()
			for range at {
				wg.Go(func() {
					for range jobs {
						if _, err := z.resolve(q); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for range b.N {
				jobs <- struct{}{}
			}
			close(jobs)
			wg.Wait()
			b.ReportMetric(float64((cpu(b)-began).Nanoseconds())/1000/float64(b.N), "cpu-µs/op")
		})
	}
}
