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
	pods, nodes, services, slices := &listWatch{name: "pods"}, &listWatch{name: "nodes"}, &listWatch{name: "services"}, &listWatch{name: "slices"}
	l := newLink(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
	for i, step := range []struct {
		do    func()
		since int // 0: well
		last  string
		logs  string
	}{
		{func() { l.note(pods, nil) }, 0, "", ""},
		{func() { l.note(pods, errors.New("refused")) }, 2, "pods: refused", "level=WARN"},
		{func() { l.note(pods, errors.New("timeout")) }, 2, "pods: timeout", ""},
		{func() { l.note(nodes, errors.New("refused")) }, 2, "nodes: refused", ""},
		{func() { l.note(pods, nil) }, 2, "nodes: refused", ""},
		{func() { l.note(services, nil) }, 2, "nodes: refused", ""},
		{func() { l.note(nodes, nil) }, 0, "", "fails any more\" after=5s"},
		{func() { l.note(nodes, nil) }, 0, "", ""},
		{func() { l.note(slices, errors.New("forbidden")) }, 9, "slices: forbidden", "level=WARN"},
		{func() { l.end(pods) }, 9, "slices: forbidden", ""},
		{func() { l.end(&listWatch{name: "slices"}) }, 9, "slices: forbidden", ""}, // another of its name
		{func() { l.end(slices) }, 0, "", "fails any more"},
		{func() { l.note(slices, errors.New("forbidden")) }, 0, "", ""}, // it has ended
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
