package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/namegate/namegate/console"
)

const (
	// eventsEvery is the pause between two looks for events.
	eventsEvery = time.Second
	// linesAtOnce bounds the lines of an event.
	linesAtOnce = 200
	// quietLooks is after how many looks without an event an empty line is sent, which finds out
	// whether the page is still there.
	quietLooks = 15
	// eventPatience is how long a page may read nothing before its stream ends.
	eventPatience = 30 * time.Second
	// maxStreams bounds the streams of events: one for each open page.
	maxStreams = 32
)

// events sends what changes until the page or the server ends. Each stream looks for itself what
// has changed since its last look: a slow page gets fewer events, and delays no other.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	if s.streams.Add(1) > maxStreams {
		s.streams.Add(-1)
		refuse(w, console.Refuse(http.StatusServiceUnavailable, "%d pages are open already, and no more can; close one", maxStreams))
		return
	}
	defer s.streams.Add(-1)
	w.Header().Set("Content-Type", "application/x-ndjson")
	e := &eventStream{server: s, w: w}
	_, _, e.line = s.store.since(0, 0)
	for e.look() == nil {
		select {
		case <-r.Context().Done():
			return
		case <-s.o.After(eventsEvery):
		}
	}
}

// eventStream is the stream of one page.
type eventStream struct {
	*server
	w       http.ResponseWriter
	sent    []byte // the last agents
	version uint64 // of the edges that were sent
	left    uint64
	line    uint64 // the last line that was sent
	quiet   int    // looks without an event
}

// look sends what has changed.
func (e *eventStream) look() error {
	var out bytes.Buffer
	agents, err := json.Marshal(e.feed.agents())
	if err != nil {
		return fmt.Errorf("write the agents: %w", err)
	}
	if !bytes.Equal(agents, e.sent) {
		e.sent = agents
		if err := event(&out, eventAgents, json.RawMessage(agents)); err != nil {
			return err
		}
	}
	if err := e.traffic(&out); err != nil {
		return err
	}
	if err := e.lines(&out); err != nil {
		return err
	}
	if e.quiet++; out.Len() > 0 {
		e.quiet = 0
	} else if e.quiet < quietLooks {
		return nil
	} else {
		out.WriteByte('\n')
		e.quiet = 0
	}
	c := http.NewResponseController(e.w)
	_ = c.SetWriteDeadline(time.Now().Add(eventPatience)) // where the connection has one
	if _, err := e.w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("send events: %w", err)
	}
	return c.Flush()
}

func (e *eventStream) traffic(out *bytes.Buffer) error {
	c, at := e.store.changes(e.version)
	if e.version = c.Version; !c.Full && len(c.Edges)+len(c.Gone) == 0 && c.Left == e.left {
		return nil
	}
	e.left = c.Left
	return event(out, eventTraffic, Traffic{at.UTC(), c})
}

func (e *eventStream) lines(out *bytes.Buffer) error {
	lines, left, newest := e.store.since(e.line, linesAtOnce)
	if e.line = newest; len(lines) == 0 {
		return nil
	}
	news := NewLines{Left: left}
	for _, h := range lines {
		news.Lines = append(news.Lines, h.numbered())
	}
	return event(out, eventLines, news)
}

// event writes an Event as a line.
func event(out *bytes.Buffer, name string, data any) error {
	if err := json.NewEncoder(out).Encode(Event{Event: name, Data: data}); err != nil {
		return fmt.Errorf("write the event %s: %w", name, err)
	}
	return nil
}
