package link

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A burst of more events than the kernel keeps ends nothing: when it is over there is
// quiet, and what comes later is told.
func TestWatchOutlivesABurst(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("this test asks the kernel: run it as root")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, watched...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// The least that the kernel gives: some two events.
	if err := unix.SetsockoptInt(s.GetFd(), unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	batch := func(lines string) {
		t.Helper()
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(lines)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	var burst strings.Builder
	for i := range 50 {
		fmt.Fprintf(&burst, "link add here%d type veth peer name there%d\n", i, i)
	}
	batch(burst.String()) // before anybody reads
	events := tokens(s)
	quiet := 0
	for tokens := 0; quiet == 0; tokens++ {
		select {
		case <-events:
		case <-time.After(200 * time.Millisecond):
			quiet++
		}
		if tokens > 1000 {
			t.Fatal("events are told without end after a burst")
		}
	}
	batch("link del here0\n")
	select {
	case <-events:
	case <-time.After(time.Minute):
		t.Error("after a burst nothing is told any more")
	}
}
