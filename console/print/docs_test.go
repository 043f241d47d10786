package print

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestExamplesOfDocs: the examples in docs/commands.md have the actual output.
func TestExamplesOfDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/commands.md")
	fatal.If(t, err)
	for _, name := range []string{"pods.table", "grants.table", "explain-unmatched.table", "audit-example"} {
		want, err := os.ReadFile(filepath.Join("testdata", name+".golden"))
		fatal.If(t, err)
		if !strings.Contains(string(text), "\n"+string(want)) {
			t.Errorf("docs/commands.md does not show %s as it is printed:\n%s", name, want)
		}
	}
}

// TestFieldsOfDocs: docs/commands.md lists every field of the answers for programs,
// and no other.
func TestFieldsOfDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/commands.md")
	fatal.If(t, err)
	for heading, of := range map[string]reflect.Type{
		"### Fields of pods": reflect.TypeFor[console.PodRow](), "### Fields of grants": reflect.TypeFor[console.GrantRow](), "### Fields of an explanation": reflect.TypeFor[explain.Explanation](),
	} {
		_, section, found := strings.Cut(string(text), heading+"\n")
		if section, _, _ = strings.Cut(section, "\n#"); !found {
			t.Errorf("docs/commands.md has no %q", heading)
		}
		listed := map[string]bool{}
		for line := range strings.Lines(section) {
			if cell, ok := strings.CutPrefix(line, "| `"); ok {
				cell, _, _ = strings.Cut(cell, "` |")
				for _, field := range strings.Split(cell, "`, `") {
					listed[field] = true
				}
			}
		}
		wanted := map[string]bool{}
		fields(of, "", wanted)
		for f := range wanted {
			if !listed[f] {
				t.Errorf("%s does not list %s", heading, f)
			}
		}
		for f := range listed {
			if !wanted[f] {
				t.Errorf("%s lists %s, which there is not", heading, f)
			}
		}
	}
}

// fields gathers the fields of a type as they are in JSON: a.b, a[].b.
func fields(of reflect.Type, before string, into map[string]bool) {
	for i := range of.NumField() {
		f := of.Field(i)
		if !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		name = before + name
		t := f.Type
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Slice {
			name, t = name+"[]", t.Elem()
		}
		if t.Kind() == reflect.Struct && !t.Implements(reflect.TypeFor[json.Marshaler]()) {
			fields(t, name+".", into)
			continue
		}
		into[name] = true
	}
}
