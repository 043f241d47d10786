package audit

import (
	"bytes"
	"slices"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/namegate/namegate/share"
)

// keptBytes is the bound of the lines that a log keeps for Follow, in bytes: a subject alone has
// half of them, some hundred lines.
var keptBytes = share.Bound{Resource: "audit lines in memory", Least: 4 << 10, Each: 512 << 10, All: 1 << 20}

// keptSubjects bounds the subjects whose lines are kept, of those with the newest lines. A node
// has fewer pods, so that others are pods that are gone.
const keptSubjects = 512

// keptLines are the last lines of each subject.
type keptLines struct {
	of     *simplelru.LRU[subject, *linesOf]
	bytes  int // of all
	number uint64
}

// linesOf are the last lines of one subject.
type linesOf struct {
	text  []byte
	lines []keptLine
	// The lines and bytes before were kept and are no more.
	first, begin int
}

// keptLine is one line: its number in the log, when it was added, and its bytes.
type keptLine struct {
	number uint64
	at     time.Time
	bytes  int
}

func newKeptLines() keptLines {
	of, _ := simplelru.NewLRU[subject, *linesOf](keptSubjects, nil) // the only error is for a size of 0
	return keptLines{of: of}
}

// add keeps lines of a subject, whose earliest lines make room for them. The coverage learns of
// the lines that are kept no more.
func (k *keptLines) add(of subject, lines []byte, now time.Time, c *coverage) {
	l, _ := k.of.Get(of)
	if l == nil {
		if gone, oldest, _ := k.of.GetOldest(); k.of.Len() == keptSubjects {
			for oldest.held() > 0 {
				k.drop(gone, oldest, c)
			}
		}
		l = &linesOf{}
		k.of.Add(of, l)
	}
	for len(lines) > 0 {
		n := bytes.IndexByte(lines, '\n') + 1
		for l.held() > 0 && keptBytes.Room(l.held(), k.bytes) < n {
			k.drop(of, l, c)
		}
		k.number++
		l.text = append(l.text, lines[:n]...)
		l.lines = append(l.lines, keptLine{k.number, now, n})
		k.bytes += n
		lines = lines[n:]
	}
}

// held returns how many bytes are kept.
func (l *linesOf) held() int { return len(l.text) - l.begin }

// drop removes the earliest line of a subject, which has one.
func (k *keptLines) drop(of subject, l *linesOf, c *coverage) {
	old := l.lines[l.first]
	c.startAt(of.Value().Namespace, old.at)
	k.bytes -= old.bytes
	l.begin += old.bytes
	if l.first++; l.begin > len(l.text)/2 {
		l.text = l.text[:copy(l.text, l.text[l.begin:])]
		l.lines = l.lines[:copy(l.lines, l.lines[l.first:])]
		l.first, l.begin = 0, 0
	}
}

// all returns the lines of all subjects in the order of the log.
func (k *keptLines) all() []byte {
	type numbered struct {
		number uint64
		text   []byte
	}
	var in []numbered
	for _, l := range k.of.Values() {
		text := l.text[l.begin:]
		for _, line := range l.lines[l.first:] {
			in = append(in, numbered{line.number, text[:line.bytes]})
			text = text[line.bytes:]
		}
	}
	slices.SortFunc(in, func(a, b numbered) int { return int(a.number) - int(b.number) })
	out := make([]byte, 0, k.bytes)
	for _, line := range in {
		out = append(out, line.text...)
	}
	return out
}
