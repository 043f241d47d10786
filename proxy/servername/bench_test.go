package servername

import (
	"io"
	"testing"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/fatal"
)

// BenchmarkFirstByte is a connection with a checked hello, until the server's first byte.
func BenchmarkFirstByte(b *testing.B) {
	l := newLab(b, corefile.DefaultRelayLimits)
	sent, got := helloFor("good.test"), make([]byte, len(answer))
	for b.Loop() {
		c := l.dial()
		fatal.If(b, write(c, sent))
		s := <-l.taken
		fatal.If(b, write(s, answer))
		_, err := io.ReadFull(c, got)
		fatal.If(b, err)
		reset(c)
		_ = s.Close()
	}
}

// BenchmarkHello reads the name of a hello.
func BenchmarkHello(b *testing.B) {
	sent := helloFor("good.test")
	b.ReportAllocs()
	for b.Loop() {
		h := hello{raw: sent}
		_, err := h.read(nil)
		fatal.If(b, err)
	}
}

// BenchmarkTransfer is a GiB from the client to the server.
func BenchmarkTransfer(b *testing.B) {
	l := newLab(b, corefile.DefaultRelayLimits)
	block := make([]byte, 1<<20)
	for b.Loop() {
		c, s := l.answered()
		go func() {
			for range 1 << 10 {
				if write(c, block) != nil {
					return
				}
			}
			_ = c.CloseWrite()
		}()
		n, err := io.Copy(io.Discard, s)
		fatal.If(b, err)
		b.SetBytes(n)
		reset(c)
	}
}
