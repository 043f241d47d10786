package corefile

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/namegate/namegate/audit"
)

// maxSample is the greatest N of which one decision is logged.
const maxSample = 1_000_000

func readAudit(c *Config, s stanza) error {
	arg, err := s.one("audit stdout")
	if err != nil {
		return err
	}
	switch {
	case arg == "off":
		c.Audit.Off = true
		if len(s.block) > 0 {
			return s.errorf("is off and has no options, remove the block")
		}
		return nil
	case arg == "stdout":
	case !filepath.IsAbs(arg):
		return s.errorf("%q is neither stdout, off nor a file's full path, write for example \"audit /var/log/namegate/audit.log\"", arg)
	default:
		c.Audit.Path = arg
	}
	ofFile := func(o option) option {
		if c.Audit.Path != "" {
			return o
		}
		return option{o.name, func(line stanza) error {
			return line.errorf("is of a file, and this log is the standard output; remove the line")
		}}
	}
	return s.options("an option of audit", nil,
		ofFile(bounded("size", "100MiB", &c.Audit.Size, 64<<10, 1<<40, stanza.size)),
		ofFile(number("keep", "5", &c.Audit.Keep, 0, 1000)),
		set("verdict", &c.AuditFilter.Verdicts, func(l stanza) ([]string, error) {
			return l.words(isVerdict, "is not a verdict, write of "+strings.Join(audit.Verdicts(), ", "))
		}),
		set("namespace", &c.AuditFilter.Namespaces, func(l stanza) ([]string, error) {
			return l.words(isLabel, "is not a namespace, write names such as shop")
		}),
		number("sample", "10", &c.AuditFilter.Sample, 1, maxSample))
}

func isVerdict(word string) bool { return slices.Contains(audit.Verdicts(), word) }

// words returns the arguments, at least one. Each must be ok and appear only once; not is
// the message for an invalid argument.
func (s stanza) words(ok func(string) bool, not string) ([]string, error) {
	if len(s.args) == 0 {
		return nil, s.errorf("has no value, write at least one")
	}
	for i, arg := range s.args {
		if !ok(arg) {
			return nil, s.errorf("%q %s", arg, not)
		}
		if slices.Contains(s.args[:i], arg) {
			return nil, s.errorf("%s is there twice, write it once", arg)
		}
	}
	return s.args, nil
}
