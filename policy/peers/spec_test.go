package peers

import (
	"slices"
	"strings"
	"testing"
)

// TestLongKeys differ where the texts do, however late.
func TestLongKeys(t *testing.T) {
	long := strings.Repeat("a", maxKey)
	if bounded(long) != long {
		t.Error("a text of the bound's length is cut")
	}
	texts := []string{bounded(long + "a"), bounded(long + "b"), bounded(long + "aa"), bounded(bounded(long + "a"))}
	if texts[3] != texts[0] {
		t.Error("a key is no key")
	}
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
		if plain(name) != want {
			t.Errorf("%q is %s", name, plain(name))
		}
	}
}
