package webtest

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/consoletest"
)

// state is what the agent knows.
func (n *Node) state() *serve.State {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := (&consoletest.World{Name: n.name, Input: n.input, Snap: n.snap, Status: n.status, Open: n.grants}).State()
	s.Log = nodeLog{n}
	return s
}

// nodeLog is the serve.Log of a node.
type nodeLog struct{ node *Node }

func (nodeLog) Complete(string) (time.Duration, bool) { return 0, false }

func (l nodeLog) Follow() (recent []byte, coming serve.Follower) {
	l.node.mu.Lock()
	defer l.node.mu.Unlock()
	f := &follower{node: l.node, wake: make(chan struct{}, 1)}
	l.node.followers[f] = true
	l.node.streams++
	return bytes.Clone(l.node.recent), f
}

// follower yields lines as they are logged.
type follower struct {
	node *Node
	wake chan struct{}
	// Under the lock of node:
	lines  []byte
	lost   uint64
	ended  bool
	closed bool
}

// add takes lines; the caller holds the lock.
func (f *follower) add(lines []byte, lost uint64) {
	f.lines, f.lost = append(f.lines, lines...), f.lost+lost
	f.rouse()
}

func (f *follower) end() {
	f.ended = true
	f.rouse()
}

func (f *follower) rouse() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Next waits for lines.
func (f *follower) Next(ctx context.Context) (lines []byte, lost uint64, err error) {
	for {
		f.node.mu.Lock()
		lines, lost, f.lines, f.lost = f.lines, f.lost, nil, 0
		ended := f.ended
		f.node.mu.Unlock()
		switch {
		case len(lines) > 0 || lost > 0:
			return lines, lost, nil
		case ended:
			return nil, 0, io.EOF
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// Close ends the following.
func (f *follower) Close() {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	if delete(f.node.followers, f); !f.closed {
		f.closed = true
		f.node.streams--
	}
	f.end()
}
