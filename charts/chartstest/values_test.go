package chartstest

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3" // reads comments

	"github.com/namegate/namegate/testkit/fatal"
)

var update = flag.Bool("update", false, "write the table of values in docs/install.md anew")

// valueRow is a row of the table of values.
type valueRow struct {
	names        []string // equal values of one block with one comment
	def, comment string
}

// directives is the block whose values docs/corefile.md describes: its row leads to values.yaml.
const directives = "corefile"

// valueRows lists the values of a block: a value has the comment before it, or belongs to the one before
// it. `enabled` has the comment of its block.
func valueRows(t *testing.T, block *yaml.Node, path, blockComment string) (out []valueRow) {
	t.Helper()
	for i := 0; i < len(block.Content); i += 2 {
		key, value := block.Content[i], block.Content[i+1]
		name, comment := path+key.Value, cell(key.HeadComment)
		if name == directives {
			out = append(out, valueRow{[]string{name}, "", comment})
			continue
		}
		if value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 {
			out = append(out, valueRows(t, value, name+".", comment)...)
			continue
		}
		if key.Value == "enabled" && comment == "" {
			comment = blockComment
		}
		text, err := yaml.Marshal(value)
		fatal.If(t, err)
		def := strings.TrimSpace(string(text))
		if last := len(out) - 1; comment != "" {
			out = append(out, valueRow{[]string{name}, def, comment})
		} else if last >= 0 && out[last].def == def {
			out[last].names = append(out[last].names, name)
		} else {
			t.Errorf("%s has no comment", name)
		}
	}
	return out
}

// cell is the text of a comment without its end, as a cell begins.
func cell(comment string) string {
	text := strings.TrimSuffix(strings.Join(strings.Fields(strings.ReplaceAll(comment, "#  ", "")), " "), ".")
	text = strings.ReplaceAll(strings.TrimPrefix(text, "# "), " # ", " ")
	if second := []rune(text + "  ")[1]; unicode.IsLower(second) || second == ' ' {
		text = strings.ToLower(text[:min(1, len(text))]) + text[min(1, len(text)):]
	}
	return text
}

// document.md and document.md#heading in a comment are links of the table.
var commentLink = regexp.MustCompile(`docs/([a-z]+\.md)(#[a-z-]+)?`)

func (r valueRow) String() string {
	meaning := commentLink.ReplaceAllStringFunc(r.comment, func(link string) string {
		m := commentLink.FindStringSubmatch(link)
		if m[1] == "install.md" {
			return fmt.Sprintf("[below](%s)", m[2])
		}
		return fmt.Sprintf("[%s](%s%s)", m[1], m[1], m[2])
	})
	def := "`" + r.def + "`"
	if r.def == "" {
		def = "[values.yaml](../charts/namegate/values.yaml)"
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", strings.Join(r.names, "`, `"), def, meaning)
}

const tableHead = "| value | default | meaning |\n|---|---|---|\n"

// TestDocumentedValues: the table of the document has each value with its default and its comment. With
// -update it writes the table.
func TestDocumentedValues(t *testing.T) {
	text, err := os.ReadFile(chartPath + "/values.yaml")
	fatal.If(t, err)
	var values yaml.Node
	fatal.If(t, yaml.Unmarshal(text, &values))
	var want strings.Builder
	for _, r := range valueRows(t, values.Content[0], "", "") {
		want.WriteString(r.String())
	}
	text, err = os.ReadFile(document)
	fatal.If(t, err)
	before, rest, found := strings.Cut(string(text), tableHead)
	table, after, ended := strings.Cut(rest, "\n\n")
	if !found || !ended {
		t.Fatalf("%s has no table of values", document)
	}
	if *update {
		fatal.If(t, os.WriteFile(document, []byte(before+tableHead+want.String()+"\n"+after), 0o644))
	} else if d := cmp.Diff(want.String(), table+"\n"); d != "" {
		t.Errorf("the table of %s is not that of values.yaml; run: make generate (-values.yaml +documented)\n%s", document, d)
	}
}
