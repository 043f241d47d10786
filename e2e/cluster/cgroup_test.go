package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// The pods' group weighs as much as many threads in either version of control groups;
// a hierarchy about something else is left as it is.
func TestWeigh(t *testing.T) {
	for _, c := range []struct{ file, want string }{{"cpu.shares", "20480"}, {"cpu.weight", "2000"}, {"memory.limit_in_bytes", "1"}} {
		path := filepath.Join(t.TempDir(), c.file)
		fatal.If(t, os.WriteFile(path, []byte("1"), 0o644))
		fatal.If(t, weigh(filepath.Dir(path)))
		if got, err := os.ReadFile(path); string(got) != c.want || err != nil {
			t.Errorf("%s is %q (%v), want %s", c.file, got, err, c.want)
		}
	}
}
