package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
)

// maxLine is the longest line that Read takes, without its newline.
const maxLine = 1 << 20

// Read calls each with each line of a log; an error of each ends the reading and is
// returned. A line that is not of version 1 and of a known kind goes to bad with its
// number, from 1, and its error: broken or cut JSON, a missing field, a line beyond 1
// MiB. Such a line is skipped, except for lines that begin in it; bad may be nil. Empty
// lines count and are skipped, and so is text before a line's brace, as container logs
// have it. The reader's own error is returned as it is.
func Read(r io.Reader, each func(Line) error, bad func(number int, err error)) error {
	in := bufio.NewReaderSize(r, 64<<10)
	if bad == nil {
		bad = func(int, error) {}
	}
	var room []byte
	for number := 1; ; number++ {
		text, err := readLine(in, room[:0])
		room = text
		if err != nil && !errors.Is(err, errTooLong) && (!errors.Is(err, io.EOF) || len(text) == 0) {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		switch {
		case errors.Is(err, errTooLong):
			bad(number, err)
			continue
		case len(bytes.TrimSpace(text)) == 0:
			continue
		}
		if err := readLines(text, each, func(err error) { bad(number, err) }); err != nil {
			return err
		}
	}
}

// readLines reads the line or, if it is none, the lines that begin in it.
func readLines(text []byte, each func(Line) error, bad func(error)) error {
	line, err := ParseLine(text)
	if err == nil {
		return each(line)
	}
	pieces := parts(text)
	if len(pieces) == 1 {
		bad(err)
		return nil
	}
	for _, piece := range pieces {
		if line, err = ParseLine(piece); err != nil {
			bad(err)
		} else if err = each(line); err != nil {
			return err
		}
	}
	return nil
}

// begin is how each line begins, of any version. No string in JSON looks so.
var begin = []byte(`{"v":`)

// parts splits a line at the beginnings of the log's lines: a cut line has no newline,
// and the line after it is complete. Text before the first beginning stays with the first
// part.
func parts(text []byte) (out [][]byte) {
	at := bytes.Index(text, begin)
	for at >= 0 {
		next := bytes.Index(text[at+1:], begin)
		if next < 0 {
			break
		}
		out = append(out, text[:at+1+next])
		text, at = text[at+1+next:], 0
	}
	return append(out, text)
}

var errTooLong = errors.New("the line is longer than 1 MiB")

// readLine appends the next line without its newline. Of a line that is too long only the
// error is returned.
func readLine(in *bufio.Reader, b []byte) ([]byte, error) {
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if long = long || len(b)+len(part) > maxLine+1; long {
			b = b[:0]
		} else {
			b = append(b, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case long && (err == nil || errors.Is(err, io.EOF)):
			return b, errTooLong
		default:
			return bytes.TrimSuffix(b, []byte{'\n'}), err
		}
	}
}

// ParseLine reads one line, as Read does.
func ParseLine(text []byte) (Line, error) {
	var l Line
	if at := bytes.Index(text, begin); at > 0 && text[0] != '{' {
		text = text[at:]
	}
	if err := json.Unmarshal(text, &l); err != nil {
		// Another version's fields may well be of other types.
		var head struct{ V int }
		if json.Unmarshal(text, &head) == nil && head.V > Version {
			return l, unknownVersion(head.V)
		}
		return l, fmt.Errorf("it is no line of the audit log: %w", err)
	}
	return l, l.check()
}

// Gap is the error for a line of KindLost, which marks missing lines.
type Gap struct{ Count uint64 }

// Error says how many.
func (g *Gap) Error() string {
	return fmt.Sprintf("%d lines are missing here: they came faster than they were taken", g.Count)
}

func unknownVersion(v int) error {
	return fmt.Errorf("its version is %d, and this program knows %d; read it with a newer one", v, Version)
}

// check returns the required field that a line lacks.
func (l *Line) check() error {
	switch {
	case l.V > Version:
		return unknownVersion(l.V)
	case l.V != Version:
		return errors.New("it is no line of the audit log: it has no version")
	case l.Kind == KindLost:
		return &Gap{l.Count}
	case l.Kind == KindDNS && (l.Question == nil || !slices.Contains(verdictWords[Allowed:], l.Verdict)):
		return errors.New("it is no whole decision: the question or the verdict is missing")
	case l.Kind == KindFlow && !l.isFlow():
		return errors.New("it is no whole flow: the destination or the verdict is missing")
	case l.Kind != KindDNS && l.Kind != KindFlow:
		return fmt.Errorf("its kind %q is unknown to this program; read it with a newer one", l.Kind)
	case l.Time.IsZero() || l.Host == nil && (l.Pod.Namespace == "" || l.Pod.Name == ""):
		return errors.New("it is no whole line: the time, or the pod or host, is missing")
	}
	return nil
}

func (l *Line) isFlow() bool {
	if l.Destination == nil || !slices.Contains(flowWords[:], l.Verdict) {
		return false
	}
	_, err := netip.ParseAddr(l.Destination.Address)
	return err == nil
}
