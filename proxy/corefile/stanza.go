package corefile

import (
	"fmt"
	"strings"

	"github.com/coredns/caddy/caddyfile"
)

// stanza is one directive as written: its name, its arguments, and the lines
// of its block.
type stanza struct {
	file  string
	line  int
	name  string
	args  []string
	block []stanza
}

// errorf returns an error that starts with the place and the directive.
func (s stanza) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s: %w", s.file, s.line, s.name, fmt.Errorf(format, args...))
}

// stanzas turns the tokens of a directive, which may appear more than once, into stanzas.
func stanzas(file string, tokens []caddyfile.Token) ([]stanza, error) {
	d := caddyfile.NewDispenserTokens(file, tokens)
	var all []stanza
	for d.Next() {
		s := stanza{file: d.File(), line: d.Line(), name: d.Val(), args: d.RemainingArgs()}
		for d.NextBlock() {
			in := stanza{file: d.File(), line: d.Line(), name: s.name + ": " + d.Val(), args: d.RemainingArgs()}
			if d.NextArg() { // a brace: RemainingArgs took all else
				return nil, in.errorf("has no block of its own, write it on one line")
			}
			s.block = append(s.block, in)
		}
		all = append(all, s)
	}
	return all, nil
}

// option is the name of a line inside a block, without its directive's.
func (s stanza) option() string {
	return s.name[strings.LastIndex(s.name, ": ")+2:]
}

// each reads the lines of the block, each an option that may appear once.
func (s stanza) each(read func(line stanza) error) error {
	lines := map[string]int{}
	for _, line := range s.block {
		if err := read(line); err != nil {
			return err
		}
		if first, again := lines[line.name]; again {
			return line.errorf("stands in line %d already, write it once", first)
		}
		lines[line.name] = line.line
	}
	return nil
}

// flat refuses a block where the directive has none.
func (s stanza) flat() error {
	if len(s.block) > 0 {
		return s.errorf("has no block, write it on one line")
	}
	return nil
}

// one returns the only argument.
func (s stanza) one(usage string) (string, error) {
	if len(s.args) != 1 {
		return "", s.errorf("has %d values instead of one, write %q", len(s.args), usage)
	}
	return s.args[0], nil
}

// keyless finds a block without a zone, which the parser would skip silently.
func keyless(file, text string) error {
	d := caddyfile.NewDispenser(file, strings.NewReader(text))
	depth, fresh := 0, true
	for d.Next() {
		switch d.Val() {
		case "{":
			if depth == 0 && fresh {
				return fmt.Errorf("%s:%d: {: the block has no zone, write \". {\" for the options of the whole agent", file, d.Line())
			}
			depth++
		case "}":
			depth--
		}
		fresh = depth <= 0 && d.Val() == "}"
	}
	return nil
}
