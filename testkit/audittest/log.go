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

// each is the number of lines of a log that are validated one by one. Later decisions
// that differ from an earlier one only in digits are not validated again.
const each = 2000

// Log returns the error of the first bad line of a log, and its number. A last line
// without newline is ignored, because it is being written. As many lines may be cut as
// agents were killed.
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

// Files is Log for a file and its rotated files. Without any file it is content.
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
