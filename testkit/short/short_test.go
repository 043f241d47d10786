package short

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestMain leaves TestLong, which fails, and TestLongNightly out, and nothing else.
func TestMain(m *testing.M) {
	names := []string{"TestLong"}
	if extra := os.Getenv("SHORT_EXTRA"); extra != "" {
		names = append(names, extra)
	}
	os.Exit(Main(m, Lists{Long: names, Nightly: []string{"TestLongNightly"}}))
}

// TestLong fails where the parent test runs it.
func TestLong(t *testing.T) {
	if os.Getenv("SHORT_CHILD") != "" {
		t.Error("TestLong runs")
	}
}

func TestLongNightly(t *testing.T) {}

func TestLongOther(t *testing.T) {}

// TestLongRounds shows its rounds to the parent test.
func TestLongRounds(*testing.T) { fmt.Println("rounds:", Rounds(1, 2, 3)) }

func TestRounds(t *testing.T) {
	for _, c := range []struct {
		env         string
		flags       []string
		want, raced int
	}{
		{"NIGHTLY=", nil, 2, 1}, {"NIGHTLY=1", nil, 3, 2}, {"NIGHTLY=0", nil, 2, 1},
		{"NIGHTLY=", []string{"-test.short"}, 1, 1}, {"NIGHTLY=1", []string{"-test.short"}, 1, 1},
	} {
		want := c.want
		if raced {
			want = c.raced
		}
		out, err := child(t, c.env, append(c.flags, "-test.skip=^TestLong$")...)
		if err != nil || !strings.Contains(out, fmt.Sprintf("rounds: %d\n", want)) {
			t.Errorf("%s, %q: %v, want %d, %s", c.env, c.flags, err, want, out)
		}
	}
}

// child runs this package's tests of two names with flags.
func child(t *testing.T, env string, flags ...string) (string, error) {
	t.Helper()
	c := exec.Command(os.Args[0], append(flags, "-test.v", "-test.run=^TestLong")...)
	c.Env = append(os.Environ(), "SHORT_CHILD=1", env)
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestShortRuns(t *testing.T) {
	for _, c := range []struct {
		flags []string
		ran   []string
		ok    bool
	}{
		{nil, []string{"TestLong", "TestLongNightly", "TestLongOther", "TestLongRounds"}, false},
		{[]string{"-left-out"}, []string{"TestLong"}, false},
		{[]string{"-test.short"}, []string{"TestLongOther", "TestLongRounds"}, true},
		{[]string{"-test.short", "-test.skip=Other"}, []string{"TestLongRounds"}, true},
	} {
		out, err := child(t, "SHORT_EXTRA=", c.flags...)
		var ran []string
		for line := range strings.Lines(out) {
			if name, found := strings.CutPrefix(strings.TrimSpace(line), "=== RUN   "); found {
				ran = append(ran, name)
			}
		}
		if !slices.Equal(ran, c.ran) || (err == nil) != c.ok {
			t.Errorf("%q: ran %q (%v)\n%s", c.flags, ran, err, out)
		}
	}
	if out, err := child(t, "SHORT_EXTRA=TestGone", "-test.short"); err == nil || !strings.Contains(out, "TestGone") {
		t.Errorf("a name of no test: %v, %s", err, out)
	}
}
