package manifest

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestNothingVanishes: what follows a document is another one or an error.
func TestNothingVanishes(t *testing.T) {
	namespace := func(name string) string { return "{apiVersion: v1, kind: Namespace, metadata: {name: " + name + "}}" }
	a, b := namespace("a"), namespace("b")
	block := "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"
	for _, c := range []struct {
		name, text string
		objects    string   // the keys of the objects read
		err        []string // else
	}{
		{"three dots", a + "\n...\n" + b + "\n", "namespace a, namespace b", nil},
		{"three dots and a mark", a + "\n...  # done\n---\n" + b + "\n...\n", "namespace a, namespace b", nil},
		{"dots and dashes that are no marks", block + "  # ....\n" + "#\n", "namespace a", nil},
		{"lines that end with CR", strings.ReplaceAll(block+"---\n"+block, "\n", "\r"), "", []string{"document 1 (line 1)", "write a line ---"}},
		{"a mark after a lone CR", block + "# x\r---\rkind: List\n", "", []string{"document 1 (line 1)", "end lines with LF or CRLF"}},
		{"a comment that a lone CR ends", "# x\r" + a + "\n", "namespace a", nil},
		{"a comment that NEL ends", a + "\n---\n# x\u0085" + b + "\n", "namespace a, namespace b", nil},
		{"a mark after NEL", "#\n---\n" + a + "\u0085---\u0085" + b + "\n", "", []string{"document 1 (line 3)", "another document begins"}},
		{"a mark after a line separator", a + "\u2028--- " + b + "\n", "", []string{"document 1 (line 1)", "another document begins"}},
		{"two flow mappings", "---\n" + a + "\n" + b + "\n", "", []string{"document 1 (line 2)", "ends before its text", "line 2"}},
		{"less indented than the first line", "#\n---\n  apiVersion: v1\n  kind: Namespace\n  metadata: {name: a}\nspec: {}\n", "",
			[]string{"document 1 (line 3)", "ends before its text", "line 5"}},
		{"one brace too many", a + "\n---\n" + b + " }\n", "", []string{"document 2 (line 3)", "ends before its text", "line 3"}},
		{"a directive within", block + "%YAML 1.1\nspec: {}\n", "", []string{"document 1 (line 1)", "line 4"}},
		{"UTF-16", "\xff\xfe" + strings.Join(strings.Split(block+"---\n"+block, ""), "\x00") + "\x00", "", []string{"document 1 (line 1)", "another document begins"}},
		{"null", a + "\n---\n~\n", "", []string{"document 2 (line 3)", "nothing but null"}},
		{"an anchor of nothing", "&x # " + a + "\n", "", []string{"nothing but null"}},
		{"a list with a slip", "apiVersion: v1\nkind: List\nitem:\n- " + a + "\n", "", []string{"document 1 (line 1)", `unknown field "item"`}},
		{"a list in other case", "apiVersion: v1\nkind: List\nItems:\n- " + a + "\n", "", []string{`unknown field "Items"`}},
		{"a list of policies with a slip", "apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicyList\nitem: []\n", "", []string{`unknown field "item"`}},
		{"an item that is null", "apiVersion: v1\nkind: List\nitems: [null]\n", "", []string{"items[0]", "write apiVersion and kind"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := decode(t, "", "p.yaml", c.text)
			diff.MustEqual(t, c.err != nil, err != nil, len(objects), "objects, error", err)
			for _, want := range c.err {
				diff.Has(t, want, err.Error(), "the error")
			}
			var keys []string
			for _, o := range objects {
				keys = append(keys, o.key)
			}
			diff.Equal(t, c.objects, strings.Join(keys, ", "), "objects")
		})
	}
}

func TestListTwiceInJSON(t *testing.T) {
	const item = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`
	objects, err := decode(t, "", "p.json", `{"apiVersion":"v1","kind":"List","items":[`+item+`],"items":[]}`)
	diff.Fails(t, `duplicate field "items"`, err, len(objects), "objects, error")
}

// TestBrokenTailKeepsTheFile: the last good content stays where a document would
// have vanished.
func TestBrokenTailKeepsTheFile(t *testing.T) {
	dir := t.TempDir()
	f := scanned(t, dir)
	write(t, dir, "p.yaml", other("one")+"---\n"+other("two"))
	f.scan(t.Context(), at(0))
	write(t, dir, "p.yaml", other("one")+"\u0085---\u0085"+other("three"))
	f.scan(t.Context(), at(1))
	s := f.state()
	if policyNames(s) != "shop/one shop/two" || len(s.FileErrors) != 1 || s.FileErrors[0].File != filepath.Join(dir, "p.yaml") {
		t.Errorf("policies %q, errors %v", policyNames(s), s.FileErrors)
	}
}

// manyDocuments is a file of n policies, the marks of nothing between them.
func manyDocuments(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(other(fmt.Sprintf("p%d", i)) + "---\n# nothing\n---\n")
	}
	return b.String()
}

// TestLineFarDown: the parser's lines are the file's.
func TestLineFarDown(t *testing.T) {
	good := manyDocuments(50)
	at := 1 + strings.Count(good, "\n")
	_, err := decode(t, "", "p.yaml", good+"kind: Pod\nkind: Pod\n")
	for _, want := range []string{fmt.Sprintf("document 51 (line %d)", at), fmt.Sprintf("line %d: key \"kind\"", at+1)} {
		diff.Fails(t, want, err)
	}
}

// documents returns the number of a file's documents.
func documents(t *testing.T, text []byte) (n int) {
	fatal.If(t, eachYAML(text, func(_ int, _ []byte, toJSON func() ([]byte, error)) error {
		n++
		_, err := toJSON()
		return err
	}))
	return n
}

// TestSplitIsLinear: the cost of a document does not depend on its position in the file,
// and a mark without content costs next to nothing. Allocated bytes show it without a
// clock.
func TestSplitIsLinear(t *testing.T) {
	bytesOf := func(text string) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		documents(t, []byte(text))
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	few, many := bytesOf(manyDocuments(40)), bytesOf(manyDocuments(400))
	if many > 15*few {
		t.Errorf("ten times the documents take %.0f times the memory", many/few)
	}
	if blanks := bytesOf(strings.Repeat("---\n# x\n", 20000)); blanks > few {
		t.Errorf("20,000 documents of nothing take %.0f bytes, 40 policies %.0f", blanks, few)
	}
}

// endingContext ends after it was asked some times.
type endingContext struct {
	context.Context
	left int
}

func (c *endingContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestScanEndsWithItsContext, at any point, and leaves unread files as they were.
func TestScanEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "p.yaml", other("one")+"---\n"+other("two"))
	write(t, dir, "q.json", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`)
	f := scanned(t, dir)
	f.scan(t.Context(), at(0))
	write(t, dir, "p.yaml", manyDocuments(20))
	write(t, dir, "q.json", strings.Repeat(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`, 2))
	for asked := range 20 {
		f.scan(&endingContext{t.Context(), asked}, at(1))
		s := f.state()
		if policyNames(s) != "shop/one shop/two" || len(s.FileErrors) > 0 || len(s.Input.Pods) > 0 {
			t.Fatalf("ended after %d: policies %q, errors %v", asked, policyNames(s), s.FileErrors)
		}
	}
	if !f.scan(t.Context(), at(2)) || len(f.state().Input.Policies) != 20 {
		t.Error("what an ended scan left is not read by the next")
	}
}

// TestRunEndsWithoutAState: a source whose context has ended hands on nothing.
func TestRunEndsWithoutAState(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "p.yaml", other("one"))
	s, err := New(dir, "", slog.New(slog.DiscardHandler))
	fatal.If(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx, func(s State) { t.Errorf("a state of %d policies", len(s.Input.Policies)) }); err != nil {
		t.Error(err)
	}
}
