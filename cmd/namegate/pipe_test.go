package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestClosedPipe: the agent's standard output and error lose their reader, and it
// continues. The test runs itself as the agent.
func TestClosedPipe(t *testing.T) {
	if os.Getenv("NAMEGATE_TEST_PIPE") != "" {
		outliveReaders()
		for range 10 {
			fmt.Fprintln(os.Stdout, "a line")
			fmt.Fprintln(os.Stderr, "a line")
		}
		os.Exit(7)
	}
	r, w, err := os.Pipe()
	fatal.If(t, err)
	r.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestClosedPipe$")
	cmd.Env = append(os.Environ(), "NAMEGATE_TEST_PIPE=1")
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Run()
	w.Close()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("it ended with %v, want status 7 after its last line", err)
	}
}
