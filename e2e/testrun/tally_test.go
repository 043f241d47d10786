package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const output = `go test ./...
  indented
=== RUN   TestOne
    one_test.go:3: of one
=== RUN   TestOne/a
=== PAUSE TestOne/a
=== CONT  TestOne/a
    one_test.go:4: of a
=== NAME  TestOne
    one_test.go:5: of one again
--- PASS: TestOne (2.50s)
    --- PASS: TestOne/a (1.00s)
        --- PASS: TestOne/a/deep (9.00s)
=== RUN   TestTwo
    two_test.go:6: of two
--- FAIL: TestTwo (3.00s)
=== RUN   TestThree
    three_test.go:1: without root
--- SKIP: TestThree (0.00s)
ok  	example.org/one	5.6s
FAIL	example.org/two	0.1s
`

func TestCount(t *testing.T) {
	v := newTally("test")
	v.took = 61e9
	var printed strings.Builder
	w := v.reader(&printed)
	for _, part := range strings.SplitAfter(output, "o") {
		if _, err := w.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	want := "go test ./...\n  indented\n--- PASS: TestOne (2.50s)\n--- FAIL: TestTwo (3.00s)\n--- SKIP: TestThree (0.00s)\nok  \texample.org/one\t5.6s\nFAIL\texample.org/two\t0.1s\n"
	if d := cmp.Diff(want, printed.String()); d != "" {
		t.Errorf("printed (-want +got):\n%s", d)
	}
	if !v.fails(nil) {
		t.Error("a failed test is no failure")
	}
	printed.Reset()
	report(&printed, []*tally{v})
	want = `the longest tests:
     3.0 s  make test: TestTwo
     2.5 s  make test: TestOne
     1.0 s  make test: TestOne/a
     0.0 s  make test: TestThree
| ` + "`make test`" + ` | 1 | 3 | 61 |
failed: TestTwo
    two_test.go:6: of two
3 passed, 1 failed, 1 skipped
`
	if d := cmp.Diff(want, printed.String()); d != "" {
		t.Errorf("reported (-want +got):\n%s", d)
	}
}

func TestFailuresBesideTests(t *testing.T) {
	for line, fails := range map[string]bool{
		"panic: runtime error": true, "FAIL\texample.org/one [build failed]": true, "make: *** [Makefile:1: test] Error 1": true,
		"ok  \texample.org/one\t1s": false, "    panic: in a log": false,
	} {
		v := newTally("test")
		v.line(line)
		if v.fails(nil) != fails {
			t.Errorf("%q: fails is %v", line, !fails)
		}
	}
	if !newTally("demo").fails(errors.New("exit status 1")) {
		t.Error("a verb that exits with an error has not failed")
	}
}

func TestFiguresAreReplaced(t *testing.T) {
	const before = "# A\n\n| target | packages | tests | seconds |\n|---|---|---|---|\n| `make test` | 1 | 2 | 3 |\n| `make test-long` | 4 | 5 | 6 |\n\n| `make test` | purpose |\n"
	v := &tally{verb: "test", packages: 7, passed: 8, took: 9e9}
	got, err := replace(before, v)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(before, "| 1 | 2 | 3 |", "| 7 | 8 | 9 |", 1); got != want {
		t.Errorf("the document is\n%s", got)
	}
	if _, err := replace(before, &tally{verb: "e2e"}); err == nil || !strings.Contains(err.Error(), "make e2e") {
		t.Errorf("a verb without a row: %v", err)
	}
}
