package process

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

// stat is a line of /proc/PID/stat from its third field on; utime and stime are the
// 14th and 15th.
const stat = " S 1 2 2 0 -1 4194560 100 200 3 4 150 250 7 8 20 0 12 0 300 1000 500"

func TestStat(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want time.Duration
		good bool
	}{
		"plain":             {"2 (namegate)" + stat + "\n", 4 * time.Second, true},
		"blanks in a name":  {"2 (tmux: server)" + stat, 4 * time.Second, true},
		"a bracket":         {"2 (a) S 9 (b)" + stat, 4 * time.Second, true},
		"a closing bracket": {"2 ())" + stat, 4 * time.Second, true},
		"no name":           {"2 namegate" + stat, 0, false},
		"short":             {"2 (namegate) S 1 2 2 0 -1 4194560 100 200 3 4 150", 0, false},
		"no number":         {"2 (namegate) S 1 2 2 0 -1 4194560 100 200 3 4 x 250 7 8", 0, false},
		"below zero":        {"2 (namegate) S 1 2 2 0 -1 4194560 100 200 3 4 -1 250 7 8", 0, false},
		"empty":             {"", 0, false},
	} {
		got, children, err := parseStat([]byte(c.text))
		if got != c.want || (err == nil) != c.good || c.good && children != 150*time.Millisecond {
			t.Errorf("%s: %v, %v, %v, want %v", name, got, children, err, c.want)
		}
	}
}

func TestBusyLine(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want time.Duration
		good bool
	}{
		// user 100 nice 20 system 30 irq 4 softirq 5 steal 6; idle, iowait and the
		// guest's 50 and 60, which user and nice contain, do not count.
		"all fields": {"cpu  100 20 30 9999 888 4 5 6 50 60\ncpu0 1 2 3 4 5 6 7 8 9 10\n", 1650 * time.Millisecond, true},
		"no guests":  {"cpu  100 20 30 9999 888 4 5 6", 1650 * time.Millisecond, true},
		"short":      {"cpu  100 20 30 9999\n", 0, false},
		"other line": {"intr 1 2 3 4 5 6 7 8 9\n", 0, false},
		"no number":  {"cpu  100 20 x 9999 888 4 5 6", 0, false},
	} {
		got, err := parseBusy(c.text)
		if got != c.want || (err == nil) != c.good {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
}

func TestRSSLine(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want int64
		good bool
	}{
		"there":     {"Name:\tx\nVmHWM:\t  90000 kB\nVmRSS:\t   34484 kB\nRssAnon:\t 5 kB\n", 34484 << 10, true},
		"kernel's":  {"Name:\tkthreadd\nState:\tS\n", 0, false},
		"no number": {"VmRSS:\tmuch kB\n", 0, false},
	} {
		got, err := parseRSS(c.text)
		if got != c.want || (err == nil) != c.good {
			t.Errorf("%s: %d, %v, want %d", name, got, err, c.want)
		}
	}
}

func TestOwn(t *testing.T) {
	self := os.Getpid()
	before, err := CPU(self)
	fatal.If(t, err)
	busyBefore, err := Busy()
	fatal.If(t, err)
	after := before
	for until := time.Now().Add(time.Minute); after-before < 5*tick; {
		if time.Now().After(until) {
			t.Fatalf("ten seconds of work took %v", after-before)
		}
		for range 1_000_000 { // work
		}
		if after, err = CPU(self); err != nil {
			t.Fatal(err)
		}
	}
	busyAfter, err := Busy()
	if err != nil || busyAfter-busyBefore < 3*tick {
		t.Errorf("all took %v, %v, while this process took %v", busyAfter-busyBefore, err, after-before)
	}
	if rss, err := RSS(self); err != nil || rss < 1<<20 {
		t.Errorf("this process is %d bytes large, %v", rss, err)
	}
}

func TestGone(t *testing.T) {
	cmd := exec.Command("true")
	fatal.If(t, cmd.Run())
	pid := cmd.ProcessState.Pid()
	if _, err := CPU(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the time of a process that is gone: %v", err)
	}
	if _, err := RSS(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the memory of a process that is gone: %v", err)
	}
}

func TestListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	fatal.If(t, err)
	defer l.Close()
	if pid, err := Listener(path); err != nil || pid != os.Getpid() {
		t.Errorf("%d, %v, want this process, %d", pid, err, os.Getpid())
	}
	if _, err := Listener(path + ".none"); err == nil {
		t.Error("nobody serves where there is no socket")
	}
}
