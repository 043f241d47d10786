package socket

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/testkit/fatal"
)

// saying answers with a text.
func saying(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

// TestTheNextServerKeepsThePath: a server replaces another at the path, whose end takes
// nothing away, and root alone can open it.
func TestTheNextServerKeepsThePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "agent.sock")
	answers := func(want string) {
		t.Helper()
		resp, err := client.Local{Socket: path}.Ask(t.Context(), "/", nil)
		fatal.If(t, err)
		if got, err := io.ReadAll(resp.Body); err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	first, err := Serve(path, saying("first"))
	fatal.If(t, err)
	answers("first")
	next, err := Serve(path, saying("next"))
	fatal.If(t, err)
	answers("next")
	first.Close()
	answers("next")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	next.Close()
	if _, err := (client.Local{Socket: path}).Ask(t.Context(), "/", nil); err == nil || !strings.Contains(err.Error(), "no agent at socket "+path) {
		t.Errorf("after the end: %v", err)
	}
}
