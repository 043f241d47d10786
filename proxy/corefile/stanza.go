package corefile

import (
	"fmt"
	"slices"
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

// option is a line that a block may have, once.
type option struct {
	name string
	read func(line stanza) error
}

// set is an option whose value read returns.
func set[T any](name string, to *T, read func(line stanza) (T, error)) option {
	return option{name, func(line stanza) (err error) {
		*to, err = read(line)
		return err
	}}
}

// bounded is an option with one value within the bounds, as read reads it.
func bounded[T any](name, example string, to *T, least, most T, read func(s stanza, arg, usage string, least, most T) (T, error)) option {
	return set(name, to, func(line stanza) (T, error) { return only(line, name+" "+example, least, most, read) })
}

// number is an option with a whole number within the bounds.
func number(name, example string, to *int, least, most int) option {
	return bounded(name, example, to, least, most, stanza.count)
}

// options reads the lines of the block. A line that is none of the options is refused in the words of
// elsewhere, where that has some; what says what the options are.
func (s stanza) options(what string, elsewhere map[string]string, all ...option) error {
	seen := map[string]stanza{}
	for _, line := range s.block {
		i := slices.IndexFunc(all, func(o option) bool { return o.name == line.option() })
		if i < 0 {
			return line.noOption(what, elsewhere, all)
		}
		if err := all[i].read(line); err != nil {
			return err
		}
		if err := line.once(seen); err != nil {
			return err
		}
	}
	return nil
}

// once notes a line among those that were seen, unless its name was.
func (s stanza) once(seen map[string]stanza) error {
	if first, again := seen[s.name]; again {
		return s.errorf("stands in line %d already, write it once", first.line)
	}
	seen[s.name] = s
	return nil
}

// noOption is the error of a line that is none of the options.
func (s stanza) noOption(what string, elsewhere map[string]string, all []option) error {
	if hint, ok := elsewhere[s.option()]; ok {
		return s.errorf("is CoreDNS's, %s", hint)
	}
	var names []string
	for _, o := range all {
		names = append(names, o.name)
	}
	return s.errorf("is not %s, write %s", what, choice(names))
}

// choice lists words, of which one is to be written.
func choice(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// word returns the only argument, which is one of several words; what says what they are.
func (s stanza) word(usage, what string, words ...string) (string, error) {
	arg, err := s.one(usage)
	if err == nil && !slices.Contains(words, arg) {
		err = s.errorf("%q is not %s, write %s", arg, what, choice(words))
	}
	return arg, err
}

// bare is true, and refuses arguments.
func (s stanza) bare() (bool, error) {
	if len(s.args) > 0 {
		return false, s.errorf("has no value, write it alone")
	}
	return true, nil
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
