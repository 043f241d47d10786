package upstreamtest

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/proxy/wire"
)

// processVariable names the variable that makes the test binary a resolver.
const processVariable = "NAMEGATE_TEST_UPSTREAM"

// Process runs a resolver in a process of its own, so that its work is not in the
// figures of the benchmark. The package of the benchmark has a BenchmarkUpstreamProcess
// that calls RunProcess.
func Process(b *testing.B) netip.AddrPort {
	c := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkUpstreamProcess$")
	c.Env = append(os.Environ(), processVariable+"=1")
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

// RunProcess is the resolver of Process: it answers each query with one address until
// its input ends. Elsewhere it skips the benchmark.
func RunProcess(b *testing.B) {
	if os.Getenv(processVariable) == "" {
		b.Skip("it is the upstream of a benchmark")
	}
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
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
