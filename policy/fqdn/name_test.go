package fqdn

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

var (
	label63 = strings.Repeat("a", 63)
	// longName has 253 characters and 255 bytes on the wire, the most there may be.
	longName = strings.Repeat(label63+".", 3) + strings.Repeat("b", 61)
)

func mustName(t testing.TB, s string) Name {
	t.Helper()
	n, err := ParseName(s)
	fatal.If(t, err)
	return n
}

func TestParseName(t *testing.T) {
	for _, c := range []struct {
		text, want string // String of the name
		labels     []string
	}{
		{".", ".", nil},
		{"Example.ORG", "example.org", []string{"example", "org"}},
		{"example.org.", "example.org", []string{"example", "org"}},
		{`a\.b.test`, `a\.b.test`, []string{"a.b", "test"}},
		{`a\046b.test`, `a\.b.test`, []string{"a.b", "test"}},
		{`\097\065.test`, "aa.test", []string{"aa", "test"}},
		{`a\\b`, `a\\b`, []string{`a\b`}},
		{`a\.`, `a\.`, []string{"a."}},
		{`a\..`, `a\.`, []string{"a."}},
		{`\000\255\032`, `\000\255\032`, []string{"\x00\xff "}},
		{"é.test", `\195\169.test`, []string{"é", "test"}},
		{"*.test", "*.test", []string{"*", "test"}},
		{longName, longName, nil},
		{longName + ".", longName, nil},
	} {
		n, err := ParseName(c.text)
		if err != nil || n.String() != c.want {
			t.Errorf("%q is %q, %v; want %q", c.text, n, err, c.want)
		}
		diff.Equal(t, "in front: "+c.want, string(n.AppendTo([]byte("in front: "))), c.text, "appended")
		if got := slices.Collect(n.Labels()); c.labels != nil && !slices.Equal(got, c.labels) {
			t.Errorf("%q has the labels %q", c.text, got)
		}
		diff.Equal(t, len(slices.Collect(n.Labels())), n.NumLabels(), c.text, "labels")
	}
}

func TestParseNameRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "empty label",
		"..":                      "empty label",
		".a":                      "empty label",
		"a..b":                    "empty label",
		"a..":                     "empty label",
		"a" + label63:             "a label of 64 bytes; at most 63",
		longName + "b":            "256 bytes on the wire; at most 255",
		longName + "b.":           "256 bytes on the wire",
		`a\`:                      "broken escape",
		`a\1`:                     "broken escape",
		`a\12x.test`:              "broken escape",
		`a\256.test`:              "broken escape",
		strings.Repeat("a.", 128): "on the wire",
	} {
		if n, err := ParseName(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %q, %v; want an error with %q", text, n, err, want)
		}
	}
}

// TestEveryByteOfALabel: what each byte is written as, by the letter of RFC 1035 §5.1.
func TestEveryByteOfALabel(t *testing.T) {
	for c := range 256 {
		want := fmt.Sprintf(`\%03d`, c)
		switch {
		case strings.ContainsRune(`.\"();@$`, rune(c)):
			want = `\` + string(rune(c))
		case c > ' ' && c <= '~':
			want = string(rune(c))
		}
		n := Name([]byte{3, 'a', byte(c), 'b', 4, 't', 'e', 's', 't'})
		diff.Equal(t, "a"+want+"b.test", n.String(), "the byte", c)
	}
}

func TestAppendToTakesNoMemory(t *testing.T) {
	n, room := mustName(t, longName), make([]byte, 0, 256)
	diff.Equal(t, 0, testing.AllocsPerRun(100, func() { room = n.AppendTo(room[:0]) }), "allocations")
}

func TestSuffix(t *testing.T) {
	for _, c := range []struct {
		name, suffix, rest string
		want               bool
	}{
		{"a.b.test", "b.test", "a", true},
		{"a.b.test", "B.Test.", "a", true},
		{"a.b.test", "a.b.test", ".", true},
		{"a.b.test", ".", "a.b.test", true},
		{".", ".", ".", true},
		{"evilb.test", "b.test", "", false},
		{"test", "b.test", "", false},
		{`a\.b.test`, "b.test", "", false},
		{`a\001b.test`, "b.test", "", false}, // the byte 1 is also the length of the label b
		{"a.b.test", "b", "", false},
		{".", "test", "", false},
	} {
		n := mustName(t, c.name)
		rest, ok := n.TrimSuffix(mustName(t, c.suffix))
		if ok != c.want || n.HasSuffix(mustName(t, c.suffix)) != c.want {
			t.Errorf("%s below %s: %v", c.name, c.suffix, ok)
		}
		if ok && rest != mustName(t, c.rest) || !ok && rest != n {
			t.Errorf("%s without %s: %s", c.name, c.suffix, rest)
		}
	}
}

func TestChild(t *testing.T) {
	if n, ok := mustName(t, "cluster.local").Child("DB", "shop", "svc"); !ok || n != mustName(t, "db.shop.svc.cluster.local") {
		t.Errorf("%s, %v", n, ok)
	}
	for _, labels := range [][]string{{""}, {"a", ""}, {label63 + "a"}, {label63, label63, label63, label63}} {
		if n, ok := mustName(t, "test").Child(labels...); ok {
			t.Errorf("%q below test is %s", labels, n)
		}
	}
}

func TestLabelsStop(t *testing.T) {
	count := 0
	for range mustName(t, "a.b.c").Labels() {
		if count++; count == 2 {
			break
		}
	}
	diff.Equal(t, 2, count, "labels")
}

func FuzzParseName(f *testing.F) {
	for _, s := range []string{".", "www.example.org.", `a\.b\\.\000`, longName, "é", "a..b", `\12`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseName(s)
		if err != nil {
			diff.Equal(t, "", n, s, "the name beside the error")
			return
		}
		if len(n) > maxWire || slices.ContainsFunc([]byte(n), func(b byte) bool { return b >= 'A' && b <= 'Z' }) {
			t.Errorf("%q: %q is not canonical", s, string(n))
		}
		again, err := ParseName(n.String())
		if err != nil || again != n {
			t.Errorf("%q: %q read again is %q, %v", s, n.String(), string(again), err)
		}
		var wire strings.Builder
		for label := range n.Labels() {
			if label == "" || len(label) > maxLabel {
				t.Errorf("%q: a label of %d bytes", s, len(label))
			}
			wire.WriteByte(byte(len(label)))
			wire.WriteString(label)
		}
		diff.Equal(t, n, Name(wire.String()), s, "the labels of the name together")
	})
}
