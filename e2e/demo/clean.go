package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/namegate/namegate/e2e/lab"
)

// dirPrefix begins the name of the agent's folder; the demo's process id follows.
const dirPrefix = "namegate-demo-"

// labName is how package lab names namespaces: the process id of the program
// that made them, a serial number, the host.
var labName = regexp.MustCompile(`^ng([0-9]+)-[0-9]+-[a-z0-9-]+$`)

// owner returns the process id in the name of a lab's namespace or of an
// agent's folder, 0 for any other name.
func owner(name string) int {
	number := ""
	if m := labName.FindStringSubmatch(name); m != nil {
		number = m[1]
	} else if rest, ok := strings.CutPrefix(name, dirPrefix); ok {
		number, _, _ = strings.Cut(rest, "-")
	}
	pid, err := strconv.Atoi(number)
	if err != nil {
		return 0
	}
	return pid
}

// clean removes what demos and tests left that are gone.
func clean(out io.Writer) error {
	pids := gone()
	var errs []error
	for _, pid := range pids {
		fmt.Fprintf(out, "removing what process %d left\n", pid)
		errs = append(errs, removeOf(pid))
	}
	if len(pids) == 0 {
		fmt.Fprintln(out, "nothing is left of earlier demos or tests")
	}
	return errors.Join(errs...)
}

// gone returns the process ids, sorted, that something is left of and that no
// process has.
func gone() []int {
	var pids []int
	for _, at := range []string{"/run/netns", netnsEtc, os.TempDir()} {
		for _, name := range names(at) {
			if pid := owner(name); pid != 0 && !alive(pid) {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Name()
	}
	return out
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// removeOf removes the namespaces of one demo, with the processes in them, and
// its files.
func removeOf(pid int) error {
	var errs []error
	for _, n := range names("/run/netns") {
		if owner(n) == pid && labName.MatchString(n) {
			errs = append(errs, removeNamespace(n, pid))
		}
	}
	for _, at := range []string{netnsEtc, os.TempDir()} {
		for _, n := range names(at) {
			if owner(n) == pid {
				errs = append(errs, os.RemoveAll(filepath.Join(at, n)))
			}
		}
	}
	_ = os.Remove(netnsEtc) // if it is empty
	return errors.Join(errs...)
}

// killLimit is how long a killed process may take to be gone.
const killLimit = lab.Limit

func removeNamespace(name string, self int) error {
	for until := time.Now().Add(killLimit); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		left := 0
		for _, pid := range processes(name) {
			if pid != self {
				left++
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if left == 0 {
			break
		}
	}
	_ = os.Remove(lab.XtablesLock(name)) // there if a program took it
	out, err := exec.Command("ip", "netns", "del", name).CombinedOutput()
	if _, gone := os.Stat(filepath.Join("/run/netns", name)); err != nil && !errors.Is(gone, fs.ErrNotExist) {
		return fmt.Errorf("remove namespace %s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// processes returns those whose main thread is in a namespace.
func processes(name string) []int {
	out, err := exec.Command("ip", "netns", "pids", name).Output()
	if err != nil {
		return nil
	}
	var pids []int
	for _, word := range strings.Fields(string(out)) {
		if pid, err := strconv.Atoi(word); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
