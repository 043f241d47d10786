package docs

import (
	"os"
	"strings"
	"testing"
)

// TestDomainFrontingIsSaid: servernames.md says what serverName does not stop in the words of the test that shows it.
func TestDomainFrontingIsSaid(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(strings.ReplaceAll(string(text), "\n//", " ")), " ")
	}
	_, said, found := strings.Cut(read("servernames.md"), "**Domain fronting.** ")
	if said, _, _ = strings.Cut(said, " - **"); !found {
		t.Fatal("servernames.md does not name domain fronting")
	}
	_, shown, found := strings.Cut(read("../e2e/scenarios/servername_test.go"), "TestDomainFronting shows what serverName does not stop: ")
	if !found || !strings.EqualFold(shown[:min(len(said), len(shown))], said) {
		t.Errorf("servernames.md says %q, the test %.300q", said, shown)
	}
}
