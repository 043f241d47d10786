// Package fatal ends a test on an error that the test is not about, or on a condition that
// does not come to hold.
package fatal

import "time"

// T is the part of a test that is needed to end it.
type T interface {
	Helper()
	Fatal(args ...any)
}

// If ends the test if err is an error.
func If(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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
