package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// forTheKernel skips without root, and makes the demo's folders this test's.
func forTheKernel(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Cleanup(func() {
		for _, at := range []string{"/run/netns", netnsEtc, os.TempDir()} {
			for _, n := range names(at) {
				if owner(n) == os.Getpid() {
					t.Errorf("%s is left", filepath.Join(at, n))
				}
			}
		}
	})
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "namegate")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/namegate").CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	return binary
}

// cue keeps what is printed and cancels when a text was.
type cue struct {
	bytes.Buffer
	at     string
	cancel context.CancelFunc
}

func (c *cue) Write(p []byte) (int, error) {
	defer func() {
		if strings.Contains(c.String(), c.at) {
			c.cancel()
		}
	}()
	return c.Buffer.Write(p)
}

func TestWholeTour(t *testing.T) {
	binary := build(t)
	for _, dataplane := range []string{"iptables", "nftables"} {
		t.Run(dataplane, func(t *testing.T) {
			forTheKernel(t)
			t.Setenv("DATAPLANE", dataplane)
			ctx, cancel := context.WithCancel(t.Context())
			out := &cue{at: "Ctrl-C takes everything down", cancel: cancel}
			good, err := show(ctx, options{agent: binary, examples: "../../examples", keep: true}, out)
			if err != nil || !good {
				t.Fatalf("good %v, %v:\n%s", good, err, out)
			}
			for _, want := range []string{"rejected after", "the world saw 0 packets", "after the kill", "client dig +short www.example.org", "\n  http://127.0.0.1:"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not in:\n%s", want, out)
				}
			}
			if without := strings.Contains(out.String(), "dataplane nftables: iptables does not work on this node"); without != (dataplane == "nftables") {
				t.Errorf("a node without iptables: %v:\n%s", without, out)
			}
		})
	}
}
