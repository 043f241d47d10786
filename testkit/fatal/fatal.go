// Package fatal ends a test on an error that the test is not about, or on a condition that
// does not come to hold.
package fatal

import (
	"fmt"
	"strings"
	"time"
)

// T is the part of a test that is needed to end it.
type T interface {
	Helper()
	Fatal(args ...any)
}

// If ends the test if err is an error. The words at say where.
func If(t T, err error, at ...any) {
	t.Helper()
	if err != nil && len(at) > 0 {
		err = fmt.Errorf("%s: %w", Words(at), err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Words are the words that say where a test failed: bytes are text.
func Words(at []any) string {
	var b strings.Builder
	for i, word := range at {
		if text, ok := word.([]byte); ok {
			word = fmt.Sprintf("%q", text)
		}
		fmt.Fprint(&b, " "[:min(i, 1)], word)
	}
	return b.String()
}

// Await waits up to a minute for a condition and ends the test if it does not hold by then.
func Await(t T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still waiting after a minute: " + what)
		}
	}
}
