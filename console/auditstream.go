package console

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// streamPatience is how long somebody who follows may take no line before the
// stream ends.
const streamPatience = 30 * time.Second

// kindLost is the kind of a line that is in no log: it tells who follows how many
// were lost, as they were taken too slowly.
const kindLost = "lost"

// audit answers with the log's last lines, and with follow with those that come.
func (c *console) audit(r *request) error {
	f, err := r.filter()
	if err != nil {
		return err
	}
	// Followed first, so that no line falls between what was and what comes.
	coming := c.source.Follow()
	if coming == nil {
		return Refuse(http.StatusServiceUnavailable, "the node %s keeps no audit log: its Corefile says `audit off`; write `audit stdout` there", c.source.Node())
	}
	defer coming.Close()
	recent := c.source.Recent()
	r.w.Header().Set("Content-Type", "application/x-ndjson")
	s := &stream{request: r, filter: f, seen: map[string]bool{}}
	if err := s.send(recent, 0); err != nil || !r.URL.Query().Has("follow") {
		return nil
	}
	s.follow(coming, recent)
	return nil
}

// stream is one answer with lines, under way.
type stream struct {
	*request
	filter AuditFilter
	seen   map[string]bool // namespaces of the present batch
	out    []byte
}

// follow sends lines as they come, until the log or whoever asked ends.
func (s *stream) follow(coming Follower, recent []byte) {
	for first := true; ; first = false {
		lines, lost, err := coming.Next(s.Context())
		if err != nil {
			return
		}
		if first {
			lines = beyond(recent, lines)
		}
		if s.send(lines, lost) != nil {
			return
		}
	}
}

// beyond returns the lines that come behind the recent ones: those between the
// begin of the following and the look at the recent ones are in both.
func beyond(recent, lines []byte) []byte {
	for at := 0; at < len(recent); {
		if tail := recent[at:]; len(tail) <= len(lines) && bytes.HasPrefix(lines, tail) {
			return lines[len(tail):]
		}
		next := bytes.IndexByte(recent[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return lines
}

// send writes the lines that are asked for. Whether they may be seen is asked for
// each batch anew: rights that are taken away end the stream.
func (s *stream) send(lines []byte, lost uint64) error {
	clear(s.seen)
	if !s.allowed(s.filter.Namespace) {
		return errors.New("the right to see this was taken away")
	}
	s.out = s.filter.choose(s.out[:0], lines, s.allowed)
	if lost > 0 {
		s.out = fmt.Appendf(s.out, `{"v":1,"kind":%q,"count":%d}`+"\n", kindLost, lost)
	}
	control := http.NewResponseController(s.w)
	_ = control.SetWriteDeadline(time.Now().Add(streamPatience)) // where the connection has one
	if _, err := s.w.Write(s.out); err != nil {
		return fmt.Errorf("send lines: %w", err)
	}
	return control.Flush()
}

// allowed is sees, asked once a batch for a namespace.
func (s *stream) allowed(namespace string) bool {
	may, known := s.seen[namespace]
	if !known {
		may = s.sees(namespace)
		s.seen[namespace] = may
	}
	return may
}
