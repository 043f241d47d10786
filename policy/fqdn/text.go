package fqdn

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// maxText is the length of the longest pattern, as the schema has it: that of the
// longest name in presentation form.
const maxText = 253

var errNoText = errors.New("nothing is written; write a name such as www.example.org")

// checkText returns the error in the text of a name or pattern, with the correction.
func checkText(s string) error {
	if s == "" || s == "." {
		return errNoText
	}
	for i, r := range s {
		switch {
		case r >= utf8.RuneSelf:
			return unicodeError(s)
		case strings.ContainsRune(`[](){}?|^$+\`, r):
			return fmt.Errorf("%s holds %q, and patterns are no regular expressions; write * for any characters of one label, ** as the whole first label for one or more labels, or each name",
				quote(s), s[i:i+1])
		case !isNameChar(byte(r)) && r != '.' && r != '*':
			return fmt.Errorf("%s holds %q; write a bare domain name of letters, digits, - and _, without scheme, port or path",
				quote(s), s[i:i+1])
		}
	}
	if len(s) > maxText {
		return fmt.Errorf("%s has %d characters; write at most %d", quote(s), len(s), maxText)
	}
	for i, label := range strings.Split(strings.TrimSuffix(s, "."), ".") {
		switch {
		case label == "":
			return fmt.Errorf("%s has an empty label; write one dot between labels and none in front", quote(s))
		case len(label) > maxLabel:
			return fmt.Errorf("%s has a label of %d characters; write at most %d", quote(s), len(label), maxLabel)
		case strings.Contains(label, "**") && (i > 0 || label != "**"):
			return fmt.Errorf("%s has ** elsewhere than as the whole first label; "+
				"write * for a part of one label, or **.example.org for everything below example.org", quote(s))
		}
	}
	return nil
}

func isNameChar(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// unicodeError says which A-labels to write for s, if they can be reckoned: a
// label that also holds a wildcard has none.
func unicodeError(s string) error {
	labels := strings.Split(s, ".")
	for i, label := range labels {
		if isASCII(label) {
			continue
		}
		a, err := idna.Lookup.ToASCII(label)
		if err != nil || len(a) > maxLabel || strings.Contains(label, "*") {
			return fmt.Errorf("%s is not ASCII; write the A-label (xn--…) of each label, a wildcard outside of it", quote(s))
		}
		labels[i] = a
	}
	return fmt.Errorf("%s is not ASCII; write %s", quote(s), strings.Join(labels, "."))
}

// quote returns s in quotation marks, shortened: messages end up in the status of a
// policy.
func quote(s string) string {
	if len(s) > maxText+maxLabel {
		s = strings.ToValidUTF8(s[:maxLabel], "") + "…"
	}
	return strconv.Quote(s)
}

func isASCII(s string) bool {
	for _, c := range []byte(s) {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
