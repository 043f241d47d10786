// Package fatal ends a test on an error that the test is not about.
package fatal

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
