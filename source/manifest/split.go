package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"
)

// eachYAML cuts at the lines that begin with one of the marks of YAML, "---" that
// begins a document and "..." that ends one, and calls do with every part that
// is not empty and its first line, from 1. The part is overwritten afterwards.
func eachYAML(text []byte, do func(line int, text []byte, toJSON func() ([]byte, error)) error) error {
	var part []byte
	first, line := 1, 0
	flush := func() error {
		if blank(part) {
			return nil
		}
		return do(first, part, func() ([]byte, error) { return toJSON(part, first) })
	}
	for row := range bytes.Lines(text) {
		line++
		rest, isMark := cutMark(row)
		if !isMark {
			part = append(part, row...)
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		first, part = line, append(append(part[:0], "   "...), rest...)
		if len(bytes.TrimSpace(rest)) == 0 {
			first, part = line+1, part[:0]
		}
	}
	return flush()
}

// cutMark returns what follows the mark on a line that begins with one.
func cutMark(row []byte) (rest []byte, isMark bool) {
	rest, isMark = bytes.CutPrefix(row, []byte("---"))
	if !isMark {
		rest, isMark = bytes.CutPrefix(row, []byte("..."))
	}
	return rest, isMark && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

// blank tells whether a part holds nothing but blanks and comments.
func blank(part []byte) bool {
	for row := range bytes.Lines(part) {
		row = bytes.Trim(row, " \t\r\n")
		if len(row) > 0 && (row[0] != '#' || bytes.ContainsAny(row, otherBreaks)) {
			return false
		}
	}
	return true
}

// otherBreaks are the characters that end a line, and so a comment, in YAML 1.1
// beside the line feed (§4.2).
const otherBreaks = "\r\u0085\u2028\u2029"

// toJSON returns the one document of a part, which begins at a line of its file.
func toJSON(part []byte, first int) ([]byte, error) {
	asJSON, err := parseWhole(part)
	if err == nil {
		return asJSON, nil
	}
	// Once more with as many lines in front as are there in the file, so that the
	// line in the parser's words is the file's. That ends the reading of the file.
	if _, again := parseWhole(append(bytes.Repeat([]byte("\n"), first-1), part...)); again != nil {
		err = again
	}
	return nil, err
}

var (
	errSecond = errors.New("another document begins within this one; write a line --- between them, and end lines with LF or CRLF")
	errNull   = errors.New("the document holds nothing but null; write apiVersion and kind, or remove it")
)

// parseWhole returns a document as JSON. The parser reads up to where the document ends for
// YAML, and ignores the text after it: a second flow mapping, a line that is indented less
// than the first, a mark after a line end that only YAML knows. A second parser makes sure
// that there is none.
func parseWhole(part []byte) ([]byte, error) {
	asJSON, err := yaml.YAMLToJSONStrict(part)
	if err != nil {
		asJSON, err = overriding(part, err)
	}
	if err != nil {
		return nil, err
	}
	dec := goyaml.NewDecoder(bytes.NewReader(part))
	if err := dec.Decode(&unread{}); err != nil {
		return nil, err
	}
	switch err := dec.Decode(&unread{}); {
	case err == nil:
		return nil, errSecond
	case !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("the document ends before its text does: %w", err)
	case bytes.Equal(bytes.TrimSpace(asJSON), []byte("null")):
		return nil, errNull
	}
	return asJSON, nil
}

// overriding reads a document that the strict parser refuses as kubectl does, where a key is
// set again only over one that << merges. refusal is the strict parser's error, which stands for
// other documents.
func overriding(part []byte, refusal error) ([]byte, error) {
	var own goyaml.MapSlice // without what is merged
	if goyaml.Unmarshal(part, &own) != nil || repeats(own) {
		return nil, refusal
	}
	return yaml.YAMLToJSON(part)
}

// repeats tells whether a mapping in a value has a key twice.
func repeats(value any) bool {
	switch v := value.(type) {
	case goyaml.MapSlice:
		keys := map[string]bool{}
		for _, item := range v {
			key := fmt.Sprint(item.Key)
			if keys[key] || repeats(item.Value) {
				return true
			}
			keys[key] = true
		}
	case []any:
		return slices.ContainsFunc(v, repeats)
	}
	return false
}

// unread is a document whose content is skipped.
type unread struct{}

// UnmarshalYAML accepts any content.
func (*unread) UnmarshalYAML(func(any) error) error { return nil }

// eachJSON calls do with one JSON value after the other, as eachYAML does. It ends with one that is broken.
func eachJSON(text []byte, do func(line int, text []byte, toJSON func() ([]byte, error)) error) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	line, counted := 1, 0
	for {
		start := int(dec.InputOffset())
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return nil
		}
		start += len(text[start:]) - len(bytes.TrimLeft(text[start:], " \t\r\n"))
		line += bytes.Count(text[counted:start], []byte("\n"))
		counted = start
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			at := min(int(syntax.Offset), len(text))
			err = fmt.Errorf("line %d: %w", 1+bytes.Count(text[:at], []byte("\n")), err)
		}
		if failed := do(line, raw, func() ([]byte, error) { return raw, err }); failed != nil || err != nil {
			return failed
		}
	}
}
