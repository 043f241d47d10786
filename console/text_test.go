package console

import (
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestSafe(t *testing.T) {
	for text, want := range map[string]string{
		"www.example.org": "www.example.org", "": "", "Bücher ×": "Bücher ×", "a\nb\tc": `a\nb\tc`, "\u202egnp.exe": `\u202egnp.exe`,
		"\u009b31m": `\u009b31m`, "x\xffy": `x\ufffdy`, "a\u00a0b": `a\u00a0b`,
	} {
		if got := Safe(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

// FuzzSafe: the output never moves a cursor, ends a line or turns its direction, and
// harmless text is unchanged.
func FuzzSafe(f *testing.F) {
	for _, s := range []string{"www.example.org", "\x1b[2J", "a\nb", "\u202e", "\xff", "é×", "\u200b", "\ufffd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Safe(s)
		plain := true
		for _, r := range s {
			plain = plain && (r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) && r != utf8.RuneError)
		}
		if plain && got != s {
			t.Errorf("%q is shown as %q", s, got)
		}
		if !utf8.ValidString(got) || Safe(got) != got {
			t.Errorf("%q is shown as %q, which is not safe", s, got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
				t.Errorf("%q is shown with %U", s, r)
			}
		}
	})
}
