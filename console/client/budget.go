package client

import (
	"fmt"
	"io"
	"sync/atomic"
)

const (
	// maxAnswer bounds the answer of an agent: a full node's grants are some 25 MiB.
	maxAnswer = 64 << 20
	// maxAnswers bounds the answers of all agents to one question.
	maxAnswers = 256 << 20
)

// tooLarge says that an answer has more bytes than the caller takes.
type tooLarge struct{ what string }

// Error returns the bound, and how to ask for less.
func (e *tooLarge) Error() string {
	return e.what + ", the limit; ask for one namespace (-n), one pod or one node (--node) instead"
}

// budget bounds the answers to one question, of each agent and of all that are kept.
type budget struct {
	each, all int64
	passing   bool // answers are not kept, and all is about those at a time
	spent     atomic.Int64
}

func newBudget() *budget { return &budget{each: maxAnswer, all: maxAnswers} }

type bounded struct {
	io.Reader
	of   *budget
	read int64
}

// Read reads a part of the answer. An answer that is refused counts no more, so that the others are refused for it
// no more.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	counted, read := b.read, b.read+int64(n)
	for {
		spent := b.of.spent.Load()
		all := spent - counted + read
		if b.read = read; read > b.of.each || all > b.of.all {
			b.read = 0
		}
		if !b.of.spent.CompareAndSwap(spent, spent-counted+b.read) {
			continue
		}
		switch {
		case read > b.of.each:
			return 0, &tooLarge{fmt.Sprintf("the agent's answer has more than %d MiB", b.of.each>>20)}
		case all > b.of.all:
			return 0, &tooLarge{fmt.Sprintf("the agents' answers have more than %d MiB together", b.of.all>>20)}
		}
		return n, err
	}
}

// end is after the answer was taken.
func (b *bounded) end() {
	if b.of.passing {
		b.of.spent.Add(-b.read)
	}
}
