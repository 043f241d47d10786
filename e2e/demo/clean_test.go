package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestOwner(t *testing.T) {
	for name, want := range map[string]int{
		"ng4711-1-node":             4711,
		"ng4711-12-neighbour":       4711,
		"ng4711-6-drop-all":         4711,
		"namegate-demo-4711-123456": 4711,
		"namegate-demo-":            0,
		"namegate-scenarios-4711":   0,
		"ng-1-node":                 0,
		"ng4711-node":               0,
		"xng4711-1-node":            0,
		"cni-4711-1-node":           0,
	} {
		if got := owner(name); got != want {
			t.Errorf("%s is of process %d, want %d", name, got, want)
		}
	}
}

// TestRemoveOf leaves what a killed demo leaves: a namespace with a process, and
// a folder. What a living process has stays.
func TestRemoveOf(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making a network namespace needs root")
	}
	t.Setenv("TMPDIR", t.TempDir())
	own := os.Getpid()
	dead := 1<<22 + own // more than any process has: the id of one that has ended may be used again
	for _, pid := range []int{dead, own} {
		namespace := fmt.Sprintf("ng%d-999-node", pid)
		if out, err := exec.Command("ip", "netns", "add", namespace).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", namespace).Run() })
		fatal.If(t, os.Mkdir(filepath.Join(os.TempDir(), fmt.Sprintf("%s%d-1", dirPrefix, pid)), 0o700))
	}
	left := exec.Command("ip", "netns", "exec", fmt.Sprintf("ng%d-999-node", dead), "sleep", "600")
	fatal.If(t, left.Start())
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()

	for len(processes(fmt.Sprintf("ng%d-999-node", dead))) == 0 {
		select {
		case err := <-ended:
			t.Fatalf("the process ended by itself: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}

	if pids := gone(); !slices.Contains(pids, dead) || slices.Contains(pids, own) {
		t.Errorf("gone: %v, want %d and not %d", pids, dead, own)
	}
	fatal.If(t, removeOf(dead))
	if err := <-ended; err == nil {
		t.Error("the process in the namespace was not killed")
	}
	for pid, want := range map[int]bool{dead: false, own: true} {
		_, err := os.Stat(fmt.Sprintf("/run/netns/ng%d-999-node", pid))
		_, dirErr := os.Stat(filepath.Join(os.TempDir(), fmt.Sprintf("%s%d-1", dirPrefix, pid)))
		if (err == nil) != want || (dirErr == nil) != want {
			t.Errorf("process %d: namespace %v, folder %v, want them there: %v", pid, err, dirErr, want)
		}
	}
}
