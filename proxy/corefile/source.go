package corefile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/coredns/caddy/caddyfile"
)

// The bounds of one Corefile with its imports, each import counted each time.
const (
	maxDepth = 10
	maxFiles = 256
	maxBytes = 1 << 20
)

// Source is a Corefile and everything that it imports, as parsed when it was read.
type Source struct {
	path         string
	blocks       []caddyfile.ServerBlock
	files, bytes int // read, imports included
	err          error
}

// Read reads the configuration file and its imports. Config reports the errors, for
// example a file that imports itself.
func Read(path string) *Source {
	text, err := readBounded(path)
	if err != nil {
		return &Source{path: path, err: fmt.Errorf("read the configuration: %w; write a Corefile there, or name another with --config", err)}
	}
	return sourceOf(path, text)
}

// sourceOf parses text. Bounds come first: the parser would read a file that imports
// itself 100,000 times, for more than a minute.
func sourceOf(path, text string) *Source {
	s := &Source{path: path}
	if s.err = cmp.Or(s.bound(path, text, nil), keyless(path, text)); s.err != nil {
		return s
	}
	if s.blocks, s.err = caddyfile.Parse(path, strings.NewReader(text), nil); s.err != nil {
		s.err = fmt.Errorf("parse the configuration: %w", s.err)
	}
	return s
}

// Config returns the configuration. The error names every bad directive, a line each:
// "file:line: directive: reason, write … instead".
func (s *Source) Config() (*Config, error) {
	if s.err != nil {
		return nil, s.err
	}
	return parse(s.path, s.blocks)
}

// Same tells whether both have the same tokens or the same error, so that nothing is to
// be applied.
func (s *Source) Same(other *Source) bool {
	return reflect.DeepEqual(s.blocks, other.blocks) && fmt.Sprint(s.err) == fmt.Sprint(other.err)
}

// bound counts a file and its imports, and refuses too many; via are the files that
// led to it.
func (s *Source) bound(path, text string, via []string) error {
	s.files++
	s.bytes += len(text)
	via = append(via, absolute(path))
	switch {
	case s.files > maxFiles:
		return fmt.Errorf("%s: import: the configuration has more than %d files, write fewer imports", s.path, maxFiles)
	case s.bytes > maxBytes:
		return fmt.Errorf("%s: import: the configuration has more than %d KiB, write less", s.path, maxBytes>>10)
	case len(via) > maxDepth:
		return fmt.Errorf("%s: import: is more than %d files deep, write fewer imports in imports", path, maxDepth)
	}
	d := caddyfile.NewDispenser(path, strings.NewReader(text))
	snippets := map[string]bool{}
	for d.Next() {
		word := d.Val()
		if name, ok := strings.CutPrefix(word, "("); ok {
			snippets[strings.TrimSuffix(name, ")")] = true
		}
		if expand(word) != "import" || !d.NextArg() || snippets[expand(d.Val())] {
			continue
		}
		if err := s.boundImport(path, d.Line(), expand(d.Val()), via); err != nil {
			return err
		}
	}
	return nil
}

// boundImport counts the files of a pattern. The parser reports a pattern without a
// file.
func (s *Source) boundImport(from string, line int, pattern string, via []string) error {
	if pattern == "" || strings.Count(pattern, "*") > 1 || strings.Count(pattern, "?") > 1 {
		return nil
	}
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(filepath.Dir(absolute(from)), pattern)
	}
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil
	}
	for _, path := range paths {
		if slices.Contains(via, absolute(path)) {
			return fmt.Errorf("%s:%d: import: %s imports itself in the end, write a pattern that leaves it out", from, line, path)
		}
		text, err := readBounded(path)
		if err != nil {
			return fmt.Errorf("%s:%d: import: %w; write a file that can be read", from, line, err)
		}
		if err := s.bound(path, text, via); err != nil {
			return err
		}
	}
	return nil
}

var errNoFile = errors.New("is not a regular file")

// readBounded reads a regular file, up to a little more than the limit.
func readBounded(path string) (string, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s %w", path, errNoFile)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	return string(text), err
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// expand replaces {$NAME} and {%NAME%} as the parser does.
func expand(word string) string {
	for _, marks := range [][2]string{{"{%", "%}"}, {"{$", "}"}} {
		for {
			before, rest, ok := strings.Cut(word, marks[0])
			if !ok {
				break
			}
			name, after, ok := strings.Cut(rest, marks[1])
			if !ok || name == "" {
				break
			}
			word = before + os.Getenv(name) + after
		}
	}
	return word
}
