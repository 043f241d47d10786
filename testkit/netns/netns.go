// Package netns runs code in other network namespaces: tests that ask the kernel get one of
// their own, and the hosts of e2e/lab and e2e/cluster are entered by it.
package netns

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/testkit/fatal"
)

// Own moves the test's thread into a new network namespace. The thread is never given back
// and ends with the test, so nothing else runs in the namespace.
func Own(t fatal.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test asks the kernel: run it as root")
	}
	runtime.LockOSThread()
	fatal.If(t, unix.Unshare(unix.CLONE_NEWNET))
}

// Parallel lets go test run three tests that call t.Parallel for each processor, as a TestMain
// does before the tests: those with a network namespace of their own wait most of their time.
// The flag -parallel goes before.
func Parallel() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))); err != nil {
		panic(err) // not a test
	}
}

// Do runs f with its thread in the network namespace of a host. Sockets that f opens and
// processes that it starts stay there.
func Do(host string, namespace *os.File, f func() error) error {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer own.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the network namespace of %s: %w", host, err)
	}
	result := f()
	if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
		// The thread is of no more use: it stays locked and ends with the goroutine.
		return fmt.Errorf("leave the network namespace of %s: %w", host, err)
	}
	runtime.UnlockOSThread()
	return result
}

// Sysctl sets kernel parameters of the thread's network namespace, written as name=value.
func Sysctl(settings ...string) error {
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
		if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
			return fmt.Errorf("set %s: %w", s, err)
		}
	}
	return nil
}
