package layout_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestHeartbeatRenews: each heartbeat moves the deadline, and on kernels that can do so the
// element stays: a deletion would wait for an RCU grace period.
func TestHeartbeatRenews(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tables := inKernel(t)
	fatal.If(t, tables.Setup(ctx))
	expires := regexp.MustCompile(`53 (?:timeout \S+ )?expires (\S+)`)
	left := func() time.Duration {
		t.Helper()
		out, err := exec.Command("nft", "list", "set", "inet", "namegate", "alive").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		found := expires.FindSubmatch(out)
		if found == nil {
			return 0
		}
		d, err := time.ParseDuration(string(found[1]))
		fatal.If(t, err)
		return d
	}
	for n := range 4 {
		fatal.If(t, tables.Heartbeat(ctx))
		// The last time the element has ended.
		fatal.Await(t, "the end of the element", func() bool { return left() <= layout.HeartbeatTimeout/2 && (n < 3 || left() == 0) })
		before := left()
		changes, stop := monitor(t)
		fatal.If(t, tables.Heartbeat(ctx))
		if now := left(); now <= before {
			t.Errorf("heartbeat %d: %v left, %v before it", n, now, before)
		}
		stop()
		if said := changes(); updatesInPlace(t) && strings.Contains(said, "delete") {
			t.Errorf("heartbeat %d deletes:\n%s", n, said)
		}
	}
}

// updatesInPlace tells whether the kernel is Linux 6.12 or later.
func updatesInPlace(t *testing.T) bool {
	t.Helper()
	var u unix.Utsname
	fatal.If(t, unix.Uname(&u))
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major > 6 || major == 6 && minor >= 12
}

// monitor follows changes of nft tables until stop; changes returns their text then. The
// table "marker" is added and followed at both ends, so that nothing between is missed.
func monitor(t *testing.T) (changes func() string, stop func()) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "changes"))
	fatal.If(t, err)
	t.Cleanup(func() { out.Close() })
	cmd := exec.Command("nft", "monitor")
	cmd.Stdout = out
	fatal.If(t, cmd.Start())
	text := func() string {
		b, err := os.ReadFile(out.Name())
		fatal.If(t, err)
		return string(b)
	}
	began := 0
	mark := func() {
		t.Helper()
		fatal.Await(t, "a line of nft monitor", func() bool {
			piped(t, "add table ip marker; delete table ip marker") // again: the monitor may not listen yet
			time.Sleep(10 * time.Millisecond)
			return strings.Contains(text()[began:], "delete table ip marker")
		})
	}
	mark()
	began = len(text())
	return func() string { return strings.ReplaceAll(text()[began:], "delete table ip marker", "") }, func() {
		mark()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}
