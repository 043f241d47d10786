package proxy

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
)

// upstreamProcess names the variable that makes the test binary an upstream, so
// that its work is not in the figures.
const upstreamProcess = "NAMEGATE_TEST_UPSTREAM"

// BenchmarkUpstreamProcess is that upstream: it answers each query with one address
// until its input ends.
func BenchmarkUpstreamProcess(t *testing.B) {
	if os.Getenv(upstreamProcess) == "" {
		t.Skip("it is the upstream of a benchmark")
	}
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	if err != nil {
		t.Fatal(err)
	}
	wide(pc)
	fmt.Printf("at %s\n", pc.LocalAddr())
	go func() {
		var end [1]byte
		_, _ = os.Stdin.Read(end[:])
		_ = pc.Close()
	}()
	buf := make([]byte, 4096)
	for {
		n, from, err := pc.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		end := wire.QuestionEnd(buf[:n])
		buf[2], buf[3], buf[7], buf[11] = buf[2]|0x80, 0x80, 1, 0
		out := append(buf[:end], 0xc0, wire.HeaderBytes, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1)
		_, _ = pc.WriteToUDPAddrPort(out, from)
	}
}

func benchUpstream(b *testing.B) netip.AddrPort {
	c := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkUpstreamProcess$")
	c.Env = append(os.Environ(), upstreamProcess+"=1")
	in, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, at, ok := strings.Cut(lines.Text(), "at "); ok {
			return netip.MustParseAddrPort(at)
		}
	}
	b.Fatal("the upstream does not say where it is")
	return netip.AddrPort{}
}

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
	u := newUpstream(benchUpstream(b), &counters{})
	defer u.close()
	f := new(forward)
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
			u := newUpstream(benchUpstream(b), &counters{})
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

// wide makes room for the queries of a burst.
func wide(c *net.UDPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	})
}
