package print

import (
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzSafe: the output never moves a cursor, ends a line or turns its direction, and
// harmless text is unchanged.
func FuzzSafe(f *testing.F) {
	for _, s := range []string{"www.example.org", "\x1b[2J", "a\nb", "\u202e", "\xff", "é×", "\u200b", "\ufffd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := safe(s)
		plain := true
		for _, r := range s {
			plain = plain && (r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) && r != utf8.RuneError)
		}
		if plain && got != s {
			t.Errorf("%q is shown as %q", s, got)
		}
		if !utf8.ValidString(got) || safe(got) != got {
			t.Errorf("%q is shown as %q, which is not safe", s, got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
				t.Errorf("%q is shown with %U", s, r)
			}
		}
	})
}
