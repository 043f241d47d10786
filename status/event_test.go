package status

import (
	"testing"
	"unicode/utf8"
)

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text, want string
		n          int
	}{{"short", "short", 5}, {"longer", "lo…", 5}, {"üüüü", "ü…", 6}, {"", "", 3}} {
		got := clip(c.text, c.n)
		if got != c.want || !utf8.ValidString(got) || len(got) > max(c.n, len(c.text)) {
			t.Errorf("clip(%q, %d) = %q, want %q", c.text, c.n, got, c.want)
		}
	}
}
