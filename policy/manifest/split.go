package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// document is one document of a file.
type document struct {
	number int // from 1
	line   int // its first line, from 1
	json   []byte
}

// String says where the document is.
func (d document) String() string { return fmt.Sprintf("document %d (line %d)", d.number, d.line) }

// split returns the documents of a file that hold anything.
func split(file string, text []byte) ([]document, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if strings.EqualFold(filepath.Ext(file), ".json") {
		return splitJSON(text)
	}
	return splitYAML(text)
}

// splitYAML cuts at the lines that begin with "---". Each part is padded with as
// many empty lines as were before it, so that the parser's line numbers hold.
func splitYAML(text []byte) ([]document, error) {
	var docs []document
	var part []byte
	first, line := 1, 0
	flush := func() error {
		asJSON, err := yaml.YAMLToJSONStrict(append(bytes.Repeat([]byte("\n"), first-1), part...))
		d := document{number: len(docs) + 1, line: first, json: asJSON}
		if err != nil {
			return fmt.Errorf("%v: %w", d, err)
		}
		if !bytes.Equal(bytes.TrimSpace(asJSON), []byte("null")) {
			docs = append(docs, d)
		}
		return nil
	}
	for row := range bytes.Lines(text) {
		line++
		rest, isMark := bytes.CutPrefix(row, []byte("---"))
		if !isMark || len(bytes.TrimLeft(rest, " \t\r\n")) == len(rest) && len(rest) > 0 {
			part = append(part, row...)
			continue
		}
		if err := flush(); err != nil {
			return nil, err
		}
		first, part = line, append([]byte("   "), rest...)
		if len(bytes.TrimSpace(rest)) == 0 {
			first, part = line+1, nil
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return docs, nil
}

// splitJSON reads one JSON value after the other.
func splitJSON(text []byte) ([]document, error) {
	var docs []document
	dec := json.NewDecoder(bytes.NewReader(text))
	for {
		start := int(dec.InputOffset())
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		start += len(text[start:]) - len(bytes.TrimLeft(text[start:], " \t\r\n"))
		d := document{number: len(docs) + 1, line: 1 + bytes.Count(text[:start], []byte("\n"))}
		if err != nil {
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) {
				at := min(int(syntax.Offset), len(text))
				err = fmt.Errorf("line %d: %w", 1+bytes.Count(text[:at], []byte("\n")), err)
			}
			return nil, fmt.Errorf("%v: %w", d, err)
		}
		d.json = raw
		docs = append(docs, d)
	}
}
