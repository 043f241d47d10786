package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestInterrupted: Ctrl-C ends the reading commands, also without input.
func TestInterrupted(t *testing.T) {
	for _, args := range [][]string{{"suggest", "-"}, {"check", "-"}} {
		typed, keyboard := io.Pipe()
		ctx, interrupt := context.WithCancel(context.Background())
		cmd := New("v1")
		var out, errs bytes.Buffer
		cmd.SetArgs(args)
		cmd.SetIn(typed)
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		code := make(chan int)
		go func() { code <- Execute(ctx, cmd, &errs) }()
		if _, err := io.WriteString(keyboard, "\n"); err != nil { // taken: it reads
			t.Fatal(err)
		}
		interrupt()
		select {
		case got := <-code:
			if got != 1 || !strings.Contains(errs.String(), "interrupted") {
				t.Errorf("%v ends with %d: %s", args, got, errs.String())
			}
		case <-time.After(time.Minute):
			t.Fatalf("%v goes on", args)
		}
		keyboard.Close()
	}
}

// TestInterruptible: the content and the error are the reader's.
func TestInterruptible(t *testing.T) {
	text := strings.Repeat("a line\n", 20000)
	got, err := io.ReadAll(interruptible(context.Background(), strings.NewReader(text)))
	if err != nil || string(got) != text {
		t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
	}
	untouched := strings.NewReader(text)
	interruptible(context.Background(), untouched)
	runtime.Gosched()
	if untouched.Len() != len(text) {
		t.Error("it is read before anybody asks")
	}
	broken := errors.New("the disk is gone")
	if _, err := io.ReadAll(interruptible(context.Background(), io.MultiReader(strings.NewReader("a"), failing{broken}))); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
