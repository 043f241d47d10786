package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestChecksAreCounted(t *testing.T) {
	var out bytes.Buffer
	p := newPrinter(&out)
	p.step("A step")
	if !p.check("client", "dig a.test", "an address", "192.0.2.1", true) {
		t.Error("a check that holds is reported as broken")
	}
	if p.check("client", "curl http://a.test/", "a page", "nothing", false) {
		t.Error("a broken check is reported as one that holds")
	}
	p.summary(time.Second)
	if p.passed != 1 || p.failed != 1 {
		t.Errorf("%d passed, %d failed, want one each", p.passed, p.failed)
	}
	want := `
1. A step
   client    $ dig a.test
     expected  an address
   ✓ happened  192.0.2.1
   client    $ curl http://a.test/
     expected  a page
   ✗ happened  nothing

1 of 2 NOT as promised (✗), in 1.0 s
`
	if got := out.String(); got != want {
		t.Errorf("printed:\n%s\nwant:\n%s", got, want)
	}
}

func TestColour(t *testing.T) {
	p := newPrinter(&bytes.Buffer{})
	if got := p.paint(red, "x"); got != "x" {
		t.Errorf("no terminal, and coloured: %q", got)
	}
	p.colour = true
	if got := p.paint(red, "x"); !strings.HasPrefix(got, "\x1b[31m") || !strings.HasSuffix(got, "\x1b[0m") {
		t.Errorf("coloured: %q", got)
	}
}
