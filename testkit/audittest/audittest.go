// Package audittest tells tests whether lines are of the audit log's schema.
package audittest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/namegate/namegate/docs"
)

// Schema judges lines by docs/audit.schema.json.
type Schema struct{ compiled *jsonschema.Schema }

// Published is the schema in docs. Lines with unknown fields are valid, because new
// fields may be added.
func Published() (*Schema, error) { return compile(nil) }

// Strict is the schema by which no line may have a field that is not in it.
func Strict() (*Schema, error) { return compile(strict) }

// place is the schema's own URL, so that no reference resolves to another document.
const place = "audit.schema.json"

func compile(change func(any)) (*Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(docs.AuditSchema))
	if err != nil {
		return nil, fmt.Errorf("read docs/audit.schema.json: %w", err)
	}
	if change != nil {
		change(doc)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(place, doc); err != nil {
		return nil, fmt.Errorf("docs/audit.schema.json: %w", err)
	}
	s, err := c.Compile(place)
	if err != nil {
		return nil, fmt.Errorf("docs/audit.schema.json: %w", err)
	}
	return &Schema{s}, nil
}

// strict forbids further fields in each object that lists its own.
func strict(doc any) {
	switch doc := doc.(type) {
	case map[string]any:
		if doc["type"] == "object" && doc["properties"] != nil {
			doc["additionalProperties"] = false
		}
		for _, in := range doc {
			strict(in)
		}
	case []any:
		for _, in := range doc {
			strict(in)
		}
	}
}

// Line returns the error of a line, with its text.
func (s *Schema) Line(text []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		err = s.compiled.Validate(v)
	}
	if err != nil {
		return fmt.Errorf("%s\nis no line of the audit log: %w", bytes.TrimSuffix(text, []byte{'\n'}), err)
	}
	return nil
}
