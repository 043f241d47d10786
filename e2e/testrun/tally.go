package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// longest is how many tests report prints, the longest first.
const longest = 20

// keptLines and keptBytes bound the log of a test that is kept in case it fails.
const keptLines, keptBytes = 400, 500

// tally counts the tests of a verb in the output of go test -v. A test and each of its subtests count.
type tally struct {
	verb            string
	took            time.Duration
	packages        int
	passed, skipped int
	failed          []failure
	broken          bool // something beside a test failed
	tests           []timed
	at              string              // the test whose log lines follow
	logs            map[string][]string // of tests that have not passed
}

// timed is a test without a parent, and its time.
type timed struct {
	verb, name string
	seconds    float64
}

// failure is a failed test.
type failure struct {
	name string
	log  []string
}

func newTally(verb string) *tally { return &tally{verb: verb, logs: map[string][]string{}} }

var (
	begun  = regexp.MustCompile(`^=== (RUN|CONT|NAME|PAUSE) +(\S+)`)
	ended  = regexp.MustCompile(`^( *)--- (PASS|SKIP|FAIL): (\S+) \(([0-9.]+)s\)`)
	tested = regexp.MustCompile(`^ok  ?\t`)
	broken = regexp.MustCompile(`^(panic: |fatal error: |make: \*\*\* |FAIL\t.*\[(build|setup) failed\])`)
)

// line counts a line and returns whether it is to be printed.
func (t *tally) line(text string) bool {
	if m := begun.FindStringSubmatch(text); m != nil {
		t.at = m[2]
		return false
	}
	if m := ended.FindStringSubmatch(text); m != nil {
		return t.end(m[1] == "", m[2], m[3], m[4])
	}
	switch {
	case tested.MatchString(text):
		t.packages++
	case broken.MatchString(text):
		t.broken = true
	case t.at != "" && strings.HasPrefix(text, " "):
		if len(t.logs[t.at]) < keptLines {
			t.logs[t.at] = append(t.logs[t.at], text[:min(len(text), keptBytes)])
		}
		return false
	}
	return true
}

// end counts the end of a test and returns whether its line is to be printed.
func (t *tally) end(top bool, result, name, seconds string) bool {
	if s, err := strconv.ParseFloat(seconds, 64); err == nil && (top || strings.Count(name, "/") == 1) {
		t.tests = append(t.tests, timed{t.verb, name, s})
	}
	switch result {
	case "PASS":
		t.passed++
		delete(t.logs, name)
		return top
	case "SKIP":
		t.skipped++
		delete(t.logs, name)
	case "FAIL":
		t.failed = append(t.failed, failure{name, t.logs[name]})
		delete(t.logs, name) // another run of the test may pass
	}
	return true
}

// fails tells whether the verb failed; err is what make returned.
func (t *tally) fails(err error) bool { return err != nil || t.broken || len(t.failed) > 0 }

// reader returns a writer whose lines are counted, and passed on to out.
func (t *tally) reader(out io.Writer) io.Writer { return &lines{tally: t, out: out} }

// lines cuts what is written into lines.
type lines struct {
	tally *tally
	out   io.Writer
	rest  []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(b), nil
		}
		if l.tally.line(string(line)) {
			if _, err := fmt.Fprintf(l.out, "%s\n", line); err != nil {
				return 0, err
			}
		}
		l.rest = rest
	}
}

// report prints the figures of the verbs, the longest tests, and what failed tests logged. Its last
// line has the number of all tests.
func report(out io.Writer, all []*tally) {
	var tests []timed
	passed, failed, skipped := 0, 0, 0
	for _, t := range all {
		tests = append(tests, t.tests...)
		passed, failed, skipped = passed+t.passed, failed+len(t.failed), skipped+t.skipped
	}
	slices.SortStableFunc(tests, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	fmt.Fprintln(out, "the longest tests:")
	for _, t := range tests[:min(len(tests), longest)] {
		fmt.Fprintf(out, "%8.1f s  make %s: %s\n", t.seconds, t.verb, t.name)
	}
	fmt.Fprint(out, table(all))
	for _, t := range all {
		for _, f := range t.failed {
			fmt.Fprintf(out, "failed: %s\n%s\n", f.name, strings.Join(f.log, "\n"))
		}
		if t.broken && len(t.failed) == 0 {
			failed++
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
}

// table returns a row for each verb.
func table(all []*tally) string {
	var b strings.Builder
	for _, t := range all {
		fmt.Fprintf(&b, "| `make %s` | %d | %d | %d |\n", t.verb, t.packages, t.passed, int(t.took.Seconds()))
	}
	return b.String()
}
