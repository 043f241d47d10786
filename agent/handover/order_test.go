package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// stepsFake notes each step and when it was.
type stepsFake struct {
	began   time.Time
	lines   []string
	leaving bool
	// takenAfter is when the next agent intercepts queries; never if it is 0.
	takenAfter time.Duration
	failing    error // of TakenOver, before
}

func (f *stepsFake) note(step string) {
	f.lines = append(f.lines, fmt.Sprintf("%v %s", time.Since(f.began), step))
}

func (f *stepsFake) TakenOver(context.Context) (bool, error) {
	if f.takenAfter == 0 || time.Since(f.began) < f.takenAfter {
		return false, f.failing
	}
	f.note("taken over")
	return true, nil
}

func (f *stepsFake) StopHeartbeat() { f.note("stop heartbeat") }

func (f *stepsFake) Disable(context.Context) error {
	f.note("disable")
	return errors.New("disabled")
}

// TestTheOrderOfAHandOver: the node is released before the next agent can intercept,
// interception is renewed until queries come to the next agent, and ends at once where
// they do not.
func TestTheOrderOfAHandOver(t *testing.T) {
	for name, c := range map[string]struct {
		steps stepsFake
		next  bool
		want  []string
	}{
		"nobody stands by":    {stepsFake{takenAfter: time.Second}, false, []string{"0s stop heartbeat", "0s disable"}},
		"the agent leaves":    {stepsFake{leaving: true, takenAfter: time.Second}, true, []string{"0s stop heartbeat", "0s disable"}},
		"another stands by":   {stepsFake{takenAfter: time.Second}, true, []string{"0s release", "1s taken over", "1.2s stop heartbeat"}},
		"the kernel is busy":  {stepsFake{takenAfter: time.Second, failing: errors.New("busy")}, true, []string{"0s release", "1s taken over", "1.2s stop heartbeat"}},
		"the other never has": {stepsFake{}, true, []string{"0s release", "20s stop heartbeat", "20s disable"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lock := Lock{socket: filepath.Join(t.TempDir(), "agent.sock")}
				if c.next {
					leave, err := lock.claimNext()
					fatal.If(t, err)
					defer leave()
				}
				f := c.steps
				f.began = time.Now()
				taken, err := lock.Finish(t.Context(), func() { f.note("release") }, Steps{func() bool { return f.leaving }, f.TakenOver, f.StopHeartbeat, f.Disable}, slog.New(slog.DiscardHandler))
				diff.Equal(t, slices.Contains(c.want, "1s taken over"), taken, "taken")
				if !slices.Equal(f.lines, c.want) {
					t.Errorf("%s\nwant:\n%s", strings.Join(f.lines, "\n"), strings.Join(c.want, "\n"))
				}
				diff.Equal(t, slices.Contains(c.want, "0s disable") || slices.Contains(c.want, "20s disable"), err != nil, "error", err)
			})
		})
	}
}
