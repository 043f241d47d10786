package client

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// TestEndlessLine: an endless line takes bounded memory, and is
// reported.
func TestEndlessLine(t *testing.T) {
	long := strings.Repeat("x", 200<<10) + "\n" // beyond the reader's buffer, and a line
	endless := &endlessBody{}
	var got []string
	err := linesOf(io.MultiReader(strings.NewReader("a\n"+long), endless), func(line []byte) { got = append(got, string(line)) })
	if len(got) != 2 || got[0] != "a\n" || got[1] != long {
		t.Errorf("%d lines", len(got))
	}
	if !errors.Is(err, errLongLine) || endless.read > 2*maxLine {
		t.Errorf("%v after %d bytes", err, endless.read)
	}
}

// endlessBody is a line without an end.
type endlessBody struct{ read int }

func (e *endlessBody) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'y'
	}
	e.read += len(p)
	if e.read > 16*maxLine {
		return 0, io.EOF
	}
	return len(p), nil
}
