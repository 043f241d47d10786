// Testrun runs verbs of the Makefile one after another, as CI does, and counts their tests.
//
//	testrun [-document FILE] VERB…
//
// It passes the output of go test on, without the lines of passed tests. A verb that fails is the
// last. At the end it prints the seconds of each verb, the longest tests and the logs of failed
// tests. With -document it writes the figures of the verbs into the table of a document.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

func main() {
	document := flag.String("document", "", "a `file` whose table of verbs gets the figures of this run")
	flag.Parse()
	verbs := flag.Args()
	if len(verbs) == 0 {
		fmt.Fprintln(os.Stderr, "usage: testrun [-document FILE] VERB…")
		os.Exit(2)
	}
	failed, err := run(verbs, *document)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

// run runs the verbs and prints their figures.
func run(verbs []string, document string) (failed bool, err error) {
	var all []*tally
	for _, verb := range verbs {
		t := newTally(verb)
		all = append(all, t)
		begin := time.Now()
		err := runMake(verb, t.reader(os.Stdout))
		t.took = time.Since(begin)
		fmt.Printf("make %s: %d packages, %d tests, %d failed, %d s\n", verb, t.packages, t.passed, len(t.failed), int(t.took.Seconds()))
		if t.fails(err) {
			failed = true
			break
		}
	}
	report(os.Stdout, all)
	if document != "" && !failed {
		err = write(document, all)
	}
	return failed, err
}

// runMake runs a verb with the names of all tests in its output.
func runMake(verb string, output io.Writer) error {
	cmd := exec.Command("make", verb, "TESTFLAGS=-v")
	cmd.Stdout, cmd.Stderr = output, output
	return cmd.Run()
}
