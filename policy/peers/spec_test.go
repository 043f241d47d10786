package peers

import (
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
)

// TestLongKeys differ where the texts do, however late.
func TestLongKeys(t *testing.T) {
	long := strings.Repeat("a", maxKey)
	diff.Equal(t, long, bounded(long), "a text of the bound's length")
	texts := []string{bounded(long + "a"), bounded(long + "b"), bounded(long + "aa"), bounded(bounded(long + "a"))}
	diff.Equal(t, texts[0], texts[3], "the text of a key")
	slices.Sort(texts)
	if texts = slices.Compact(texts); len(texts) != 3 {
		t.Errorf("%q", texts)
	}
	for _, text := range texts {
		if len(text) > maxKey || !strings.Contains(text, "... sha256:") {
			t.Errorf("%q", text)
		}
	}
	for name, want := range map[string]string{"shop": "shop", "a.b-1": "a.b-1", "": "x''", "ns team=a": "x'6e73207465616d3d61'", "Shop": "x'53686f70'"} {
		diff.Equal(t, want, plain(name), name)
	}
}
