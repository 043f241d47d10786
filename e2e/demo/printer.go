package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// printer writes the tour for people and counts the checks.
type printer struct {
	out    io.Writer
	colour bool
	steps  int
	passed int
	failed int
}

// newPrinter colours if out is a terminal and NO_COLOR is not set
// (no-color.org).
func newPrinter(out io.Writer) *printer {
	return &printer{out: out, colour: os.Getenv("NO_COLOR") == "" && terminal(out)}
}

func terminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Colours of ECMA-48, as terminals show them.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

func (p *printer) paint(colour, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// scene introduces the hosts.
func (p *printer) scene(s *stage, took time.Duration) {
	fmt.Fprintln(p.out, p.paint(bold, "Namegate: a tour on the real kernel"))
	fmt.Fprintf(p.out, "\n  %-10s %-21s %-21s %s\n", "node", s.Node.Name, "", "the agent, with examples/")
	for _, h := range []struct{ name, what string }{
		{client, "selected by allow-web and allow-feed"},
		{neighbour, "selected by allow-web"},
		{visitor, "selected by no policy"},
	} {
		pod := s.Pod(h.name)
		fmt.Fprintf(p.out, "  %-10s %-21s %-21s %s\n", h.name, pod.Name, fmt.Sprintf("%s  %s", pod.Addr4, pod.Addr6), h.what)
	}
	fmt.Fprintf(p.out, "  %-10s %-21s %-21s %s\n", "world", s.World.Name, "", "a resolver and web servers")
	fmt.Fprintf(p.out, "\n  allow-web:  *.example.org on tcp/80     allow-feed:  feed*.example.com on tcp/80, for the TTL and 1 s\n")
	fmt.Fprintf(p.out, "  %s\n", p.paint(dim, "set up in "+brief(took)+"; each host is a network namespace, this machine's own is not touched"))
}

// step begins a chapter.
func (p *printer) step(title string) {
	p.steps++
	fmt.Fprintf(p.out, "\n%s\n", p.paint(bold, fmt.Sprintf("%d. %s", p.steps, title)))
}

// check prints what was done, what was expected and what happened, and returns
// whether it held.
func (p *printer) check(who, do, expected, happened string, good bool) bool {
	sign := p.paint(green, "✓")
	if p.passed++; !good {
		p.passed--
		p.failed++
		sign = p.paint(red, "✗")
	}
	fmt.Fprintf(p.out, "   %s\n", p.paint(bold, fmt.Sprintf("%-9s $ %s", who, do)))
	fmt.Fprintf(p.out, "     expected  %s\n   %s happened  %s\n", expected, sign, happened)
	return good
}

// note prints a line of its own.
func (p *printer) note(line string) { fmt.Fprintf(p.out, "     %s\n", p.paint(dim, line)) }

// summary ends the tour.
func (p *printer) summary(took time.Duration) {
	line := fmt.Sprintf("all %d as promised", p.passed)
	colour := green
	if p.failed > 0 {
		colour, line = red, fmt.Sprintf("%d of %d NOT as promised (✗)", p.failed, p.passed+p.failed)
	}
	fmt.Fprintf(p.out, "\n%s, in %s\n", p.paint(colour, line), brief(took))
}
