package main

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
	said chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.said <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

// TestMetricsPortIsTaken: the agent goes on, and says why there are none.
func TestMetricsPortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	log := &lines{said: make(chan struct{}, 1)}
	a := &agent{log: slog.New(slog.NewTextHandler(log, nil))}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { a.keepMetrics(ctx, taken.Addr().String()); close(ended) }()
	<-log.said
	select {
	case <-ended:
		t.Error("it ended")
	default:
	}
	cancel()
	<-ended
	log.mu.Lock()
	defer log.mu.Unlock()
	if got := log.text.String(); !strings.Contains(got, "--metrics-addr") || !strings.Contains(got, "in use") {
		t.Errorf("the log does not say what to do: %s", got)
	}
}
