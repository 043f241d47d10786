package web

import (
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console/print"
	"github.com/namegate/namegate/console/web/traffic"
)

// maxLines is how many lines are held of those that were allowed, and as many of the others:
// denials are rare beside them, and are what a policy is suggested from.
const maxLines = 10_000

// store is what all agents' lines add up to.
type store struct {
	now func() time.Time

	mu             sync.Mutex // of what follows
	traffic        *traffic.Traffic
	allowed, other ring
	newest         uint64 // id
}

func newStore(now func() time.Time) *store {
	return &store{now: now, traffic: traffic.New(), allowed: ring{most: maxLines}, other: ring{most: maxLines}}
}

// add takes a line.
func (s *store) add(line *audit.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest++
	held := held{s.newest, line}
	if traffic.VerdictOf(line) == traffic.Allowed {
		s.allowed.add(held)
	} else {
		s.other.add(held)
	}
	s.traffic.Add(line, s.now())
}

// changes returns the edges that changed after a version, all for 0.
func (s *store) changes(version uint64) (traffic.Changes, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.traffic.Advance(now)
	return s.traffic.Since(version), now
}

// lines returns the newest lines that are asked for, newest first, and whether there are more. Lines
// are not changed once they are held.
func (s *store) lines(most int, before uint64, wants func(*audit.Line) bool) (out []held, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, j := s.allowed.last(), s.other.last(); i >= 0 || j >= 0; {
		var h held
		if j < 0 || i >= 0 && s.allowed.at(i).id > s.other.at(j).id {
			h = s.allowed.at(i)
			i--
		} else {
			h = s.other.at(j)
			j--
		}
		if before > 0 && h.id >= before || !wants(h.line) {
			continue
		}
		if len(out) == most {
			return out, true
		}
		out = append(out, h)
	}
	return out, false
}

// since returns the newest lines after an id, oldest first, and how many are left out.
func (s *store) since(id uint64, most int) (out []held, left, newest uint64) {
	s.mu.Lock()
	newest = s.newest
	s.mu.Unlock()
	out, _ = s.lines(most, newest+1, func(*audit.Line) bool { return true })
	for i := range out {
		if out[i].id <= id {
			out = out[:i]
			break
		}
	}
	slices.Reverse(out)
	return out, newest - id - uint64(len(out)), newest
}

// held is a line with its id.
type held struct {
	id   uint64
	line *audit.Line
}

func (h held) numbered() Numbered {
	return Numbered{ID: h.id, Line: *h.line, Text: print.LineText(h.line)}
}

// ring holds the newest lines.
type ring struct {
	most  int
	lines []held
	next  int // where the oldest is, once it is full
}

func (r *ring) add(h held) {
	if len(r.lines) < r.most {
		r.lines = append(r.lines, h)
		return
	}
	r.lines[r.next] = h
	r.next = (r.next + 1) % r.most
}

// last is the index of the newest line, -1 for none; at returns a line by its index, the oldest is 0.
func (r *ring) last() int { return len(r.lines) - 1 }

func (r *ring) at(i int) held { return r.lines[(r.next+i)%len(r.lines)] }
