package serve

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/policy/api/nnp"
)

// streamPatience is how long a follower may read no line before the stream ends.
const streamPatience = 30 * time.Second

// audit answers with the log's last lines, and with follow with new lines. With cluster or
// nodes a policy is to be made of them, which is for callers who may read those of the kind.
func (r *request) audit() error {
	f, err := r.filter()
	if err != nil {
		return err
	}
	for query, id := range map[string]string{"cluster": "", "nodes": nnp.ID("")} {
		if !r.URL.Query().Has(query) {
			continue
		}
		if err := r.mayRead(id); err != nil {
			return err
		}
	}
	follow := r.URL.Query().Has("follow")
	if follow {
		release, err := r.handler.follower(r.viewer)
		if err != nil {
			return err
		}
		defer release()
	}
	if r.Log == nil {
		return console.Refuse(http.StatusServiceUnavailable, "the node %s keeps no audit log: its Corefile says `audit off`; write `audit stdout` there", r.Node)
	}
	r.State = &State{Node: r.Node, Log: r.Log} // a stream that lasts keeps no snapshot
	recent, coming := r.Log.Follow()
	defer coming.Close()
	r.w.Header().Set("Content-Type", "application/x-ndjson")
	if d, known := r.Log.Complete(f.Namespace); known {
		r.w.Header().Set(console.CompleteHeader, strconv.FormatInt(int64(d/time.Second), 10))
	}
	s := &stream{request: r, filter: f}
	if s.send(recent, 0) == nil && follow {
		s.filter.Since = time.Time{} // the caller has none of the coming lines, whatever their times
		s.follow(coming)
	}
	return nil
}

// stream is one answer with lines, under way.
type stream struct {
	*request
	filter console.AuditFilter
}

// follow sends new lines until the log or the caller ends.
func (s *stream) follow(coming Follower) {
	for {
		lines, lost, err := coming.Next(s.Context())
		if err != nil || s.send(lines, lost) != nil {
			return
		}
	}
}

// send writes the selected lines. The caller's rights are checked for each batch again:
// revoked rights end the stream.
func (s *stream) send(lines []byte, lost uint64) error {
	clear(s.seen)
	if !s.sees(s.filter.Namespace) {
		return errors.New("the right to see this was taken away")
	}
	for len(lines) > 0 {
		piece := firstLines(lines, pieceBytes)
		if err := s.write(choose(&s.filter, nil, piece, s.sees, s.seesCluster)); err != nil {
			return err
		}
		lines = lines[len(piece):]
	}
	var gap []byte
	if lost > 0 {
		gap = fmt.Appendf(nil, `{"v":1,"kind":%q,"count":%d}`+"\n", audit.KindLost, lost)
	}
	if err := s.write(gap); err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}

// pieceBytes is the part of an answer that is in memory twice.
const pieceBytes = 64 << 10

// firstLines returns whole lines of no more than most bytes, but one at least.
func firstLines(lines []byte, most int) []byte {
	if len(lines) <= most {
		return lines
	}
	at := bytes.LastIndexByte(lines[:most], '\n')
	if at < 0 {
		if at = bytes.IndexByte(lines, '\n'); at < 0 {
			return lines
		}
	}
	return lines[:at+1]
}

func (s *stream) write(text []byte) error {
	_ = http.NewResponseController(s.w).SetWriteDeadline(time.Now().Add(streamPatience)) // where the connection has one
	if _, err := s.w.Write(text); err != nil {
		return fmt.Errorf("send lines: %w", err)
	}
	return nil
}
