package subscription

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// A burst of more events than the kernel keeps does not end the watch: later events still
// arrive.
func TestWatchOutlivesABurst(t *testing.T) {
	netns.Own(t)
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
	fatal.If(t, err)
	// The least that the kernel gives: some two events.
	fatal.If(t, unix.SetsockoptInt(s.GetFd(), unix.SOL_SOCKET, unix.SO_RCVBUF, 1))
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
	all := func([]syscall.NetlinkMessage) bool { return true }
	events, err := Watch(t.Context(), func() (Socket, error) { return s, nil }, all, func(err error) { t.Error(err) })
	fatal.If(t, err)
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
