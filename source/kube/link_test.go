package kube

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestLink: the log tells of the first failure and of the end of the last.
func TestLink(t *testing.T) {
	var log bytes.Buffer
	now := at(0)
	l := newLink(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
	for i, step := range []struct {
		do    func()
		since int // 0: well
		last  string
		logs  string
	}{
		{func() { l.well("pods") }, 0, "", ""},
		{func() { l.failed("pods", errors.New("refused")) }, 2, "pods: refused", "level=WARN"},
		{func() { l.failed("pods", errors.New("timeout")) }, 2, "pods: timeout", ""},
		{func() { l.failed("nodes", errors.New("refused")) }, 2, "nodes: refused", ""},
		{func() { l.well("pods") }, 2, "nodes: refused", ""},
		{func() { l.well("services") }, 2, "nodes: refused", ""},
		{func() { l.well("nodes") }, 0, "", "answers again\" after=5s"},
		{func() { l.well("nodes") }, 0, "", ""},
		{func() { l.failed("slices", errors.New("forbidden")) }, 9, "slices: forbidden", "level=WARN"},
		{func() { l.begin("pods"); l.end("pods") }, 9, "slices: forbidden", ""},
		{func() { l.begin("slices"); l.begin("slices") }, 9, "slices: forbidden", ""},
		{func() { l.end("slices") }, 9, "slices: forbidden", ""}, // another of its name runs
		{func() { l.end("slices") }, 0, "", "did not answer are cancelled"},
	} {
		now = at(i + 1)
		log.Reset()
		step.do()
		h := l.health()
		if h.LastError != step.last || step.since == 0 != h.Disconnected.IsZero() || step.since > 0 && !h.Disconnected.Equal(at(step.since)) {
			t.Errorf("step %d: %+v", i, h)
		}
		if got := log.String(); step.logs == "" != (got == "") || !strings.Contains(got, step.logs) {
			t.Errorf("step %d: logged %q", i, got)
		}
	}
}
