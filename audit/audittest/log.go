package audittest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// each is how many lines of a log are judged one by one. Of the decisions behind
// them, those that differ from one before in their digits alone are as good as that.
const each = 2000

// Log returns what is wrong with the first bad line of a log, and its number. A last
// line without its newline is not looked at: it is being written. So many lines as
// agents were killed may be cut.
func (s *Schema) Log(r io.Reader, killed int) error {
	in := bufio.NewReaderSize(r, 1<<20)
	shapes := map[string]bool{}
	for number := 1; ; number++ {
		text, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read line %d of the audit log: %w", number, err)
		}
		if killed > 0 && isCut(text) {
			killed--
			continue
		}
		if number > each && !bytes.Contains(text, []byte(`"kind":"flow"`)) {
			shape := shapeOf(text)
			if shapes[shape] {
				continue
			}
			shapes[shape] = true
		}
		if err := s.Line(text); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
}

// isCut tells whether a line begins as one of the log and does not end.
func isCut(text []byte) bool {
	return bytes.HasPrefix(text, []byte(`{"v":`)) && !json.Valid(text)
}

// shapeOf is the line with each number in it as one 0.
func shapeOf(text []byte) string {
	shape := make([]byte, 0, len(text))
	for i, c := range text {
		switch {
		case c < '0' || c > '9':
			shape = append(shape, c)
		case i == 0 || text[i-1] < '0' || text[i-1] > '9':
			shape = append(shape, '0')
		}
	}
	return string(shape)
}

// Files is Log of a file and of those that it was rotated to. Without any it is
// content.
func (s *Schema) Files(path string, killed int) error {
	rotated, err := filepath.Glob(path + ".[0-9]*")
	if err != nil {
		return err
	}
	for _, p := range append(rotated, path) {
		if err := s.file(p, killed); err != nil && !isMissing(err) {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

func (s *Schema) file(path string, killed int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.Log(f, killed)
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
