package check

import (
	"strings"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// covers tells whether a matches every name that b matches. It knows the usual cases, and
// returns false for others.
func covers(a, b fqdn.Pattern) bool {
	x, y := a.String(), b.String()
	switch {
	case x == y || x == "*" || x == "**":
		return true
	case y == "*" || y == "**":
		return false
	}
	if name, exact := b.Exact(); exact {
		return a.Matches(name)
	}
	if below, deep := strings.CutPrefix(x, "**."); deep && !strings.Contains(below, "*") {
		return strings.HasSuffix(y, "."+below)
	}
	if below, one := strings.CutPrefix(x, "*."); one && !strings.Contains(below, "*") {
		label, above, _ := strings.Cut(y, ".")
		return above == below && label != "**"
	}
	return false
}

// coversPorts tells whether every port of b is one of a.
func coversPorts(a, b policy.PortSet) bool {
	return policy.NewPortSet(append(a.Ranges(), b.Ranges()...)...) == a
}

// fixed returns the part of a pattern right of its last wildcard, without the dot before
// it, and whether the wildcard is whole labels: "example.org" of "**.example.org" and
// "*.example.org"; not of "*x.example.org".
func fixed(text string) (string, bool) {
	at := strings.LastIndexByte(text, '*')
	if at < 0 || !strings.HasPrefix(text[at+1:], ".") {
		return "", false
	}
	for label := range strings.SplitSeq(text[:at+1], ".") {
		if strings.Trim(label, "*") != "" {
			return "", false
		}
	}
	return text[at+2:], true
}
