package webtest

import (
	"bytes"
	"slices"
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
	f := consoletest.NewTape()
	l.node.followers = append(l.node.followers, f)
	return bytes.Clone(l.node.recent), f
}

// following returns those who follow the log still; the caller holds the lock.
func (n *Node) following() []*consoletest.Tape {
	n.followers = slices.DeleteFunc(n.followers, func(f *consoletest.Tape) bool {
		select {
		case <-f.Over:
			return true
		default:
			return false
		}
	})
	return n.followers
}

// play plays a batch to all who follow; the caller holds the lock.
func (n *Node) play(b consoletest.Batch) {
	for _, f := range n.following() {
		f.Batches <- b
	}
}
