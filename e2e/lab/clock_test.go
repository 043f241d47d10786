package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestMain lets the test's own binary be a process that tells the time.
func TestMain(m *testing.M) {
	if os.Getenv("LAB_TELLS_TIME") == "" {
		os.Exit(m.Run())
	}
	began := time.Now()
	for {
		var word string
		if _, err := fmt.Scanln(&word); err != nil {
			os.Exit(0)
		}
		now := time.Now()
		fmt.Println(now.Unix(), now.Sub(began).Milliseconds())
	}
}

// A process has its own time, and its durations stay those of the machine.
func TestAgentsClock(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LAB_TELLS_TIME=1")
	in, err := cmd.StdinPipe()
	fatal.If(t, err)
	out, err := cmd.StdoutPipe()
	fatal.If(t, err)
	began := time.Now()
	fatal.If(t, cmd.Start())
	defer cmd.Wait()
	defer in.Close()
	asks := func() (unix, passed int64) {
		if _, err := fmt.Fprintln(in, "now"); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscan(out, &unix, &passed); err != nil {
			t.Fatal(err)
		}
		return unix, passed
	}
	asks()
	a := &Agent{cmd: cmd}
	clock, err := a.Clock()
	if errors.Is(err, ErrNoClock) || errors.Is(err, os.ErrPermission) {
		t.Skip(err)
	}
	fatal.If(t, err)
	defer clock.Close()
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour, 0} {
		fatal.If(t, clock.Step(ahead))
		least := time.Now().Add(ahead).Unix()
		unix, passed := asks()
		if most := time.Now().Add(ahead).Unix(); unix < least || unix > most {
			t.Errorf("%v ahead the process tells %d, not %d", ahead, unix, least)
		}
		if passed < 0 || passed > time.Since(began).Milliseconds()+1 {
			t.Errorf("%v ahead %d ms have passed for it, %v here", ahead, passed, time.Since(began))
		}
	}
}

// The routine ends with the place that Step writes to, in line for one write.
func TestTheRoutinesEnd(t *testing.T) {
	if len(realtime) != 32 || strings.Trim(string(realtime[22:]), "\x00") != "" || realtime[21] != 0xc3 {
		t.Errorf("% x", realtime)
	}
}
