package grants

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy/fqdn"
)

// The comment of a grant holds what the next agent needs to recover a grant: its reasons,
// the latest deadline first, as
//
//	DEADLINE NAME BY,BY ; DEADLINE NAME BY
//
// with the deadline in whole seconds of monotonic time. The order is by these, so that the
// next agent renders the same comment. Where the reasons do not all fit, the matches are
// left out first, then the reasons that end soonest.

// separator cannot occur inside a reason: names have no space. An escaped semicolon may
// end a name, hence the space before it.
const separator = " ; "

// appendComment appends the comment of a grant.
func appendComment(b []byte, reasons []reason) []byte {
	begin := len(b)
	if len(reasons) > 1 {
		reasons = slices.SortedFunc(slices.Values(reasons), func(a, b reason) int {
			return cmp.Or(cmp.Compare(b.until.seconds(), a.until.seconds()), cmp.Compare(a.name, b.name))
		})
	}
	for withBy := true; ; withBy = false {
		b = b[:begin]
		end := begin
		for i := range reasons {
			if i > 0 {
				b = append(b, separator...)
			}
			if b = reasons[i].append(b, withBy); len(b)-begin > dataplane.CommentMax {
				break
			}
			end = len(b)
		}
		if end == len(b) || !withBy {
			return b[:end]
		}
	}
}

// sinceWord begins the word of a reason that says, in whole seconds of monotonic time, when the
// last answer held the address, where only its use keeps it open since. It stands before the
// matches, none of which is such a word.
const sinceWord = "since="

// append renders one reason.
func (r *reason) append(b []byte, withBy bool) []byte {
	return r.appendName(append(strconv.AppendInt(b, r.until.seconds(), 10), ' '), withBy)
}

// appendName renders one reason without its deadline.
func (r *reason) appendName(b []byte, withBy bool) []byte {
	b = r.name.AppendTo(b)
	if r.held != 0 {
		b = strconv.AppendInt(append(append(b, ' '), sinceWord...), r.held.seconds(), 10)
	}
	if withBy && r.by != (matches{}) {
		b = append(append(b, ' '), r.by.String()...)
	}
	return b
}

// parseComment reads a comment. Reasons that it cannot read are left out.
func parseComment(s string) []reason {
	var out []reason
	for text := range strings.SplitSeq(s, separator) {
		deadline, rest, _ := strings.Cut(text, " ")
		seconds, err := strconv.ParseInt(deadline, 10, 64)
		if err != nil {
			continue
		}
		if r, ok := parseReason(rest); ok {
			r.until = parseSeconds(seconds)
			out = append(out, r)
		}
	}
	return out
}

// parseReason reads a reason without its deadline.
func parseReason(text string) (r reason, ok bool) {
	name, rest, _ := strings.Cut(text, " ")
	n, err := fqdn.ParseName(name)
	if err != nil || name == "" {
		return reason{}, false
	}
	r.name = n
	if word, by, _ := strings.Cut(rest, " "); strings.HasPrefix(word, sinceWord) {
		seconds, err := strconv.ParseInt(word[len(sinceWord):], 10, 64)
		if err != nil {
			return reason{}, false
		}
		r.held, rest = parseSeconds(seconds), by
	}
	if rest != "" {
		r.by = matchesOf([]string{rest})
	}
	return r, true
}

// The comment of a grant of a rule, or with Config.InPlace of any grant, has no deadlines, so
// that a later deadline leaves it as it is, and the kernel moves the deadline in place:
//
//	NAME BY,BY ; NAME BY ; ...
//
// It is ordered by name. The next agent takes the timeout of the grant for the deadline of
// each name, so that a name may last as long as the last one of its address. The last word
// says that names are left out.
const leftOut = "..."

// unreadable is the name, which no name is, that stands for names that no comment says. In a
// set of a lasting rule it keeps a grant until its end.
const unreadable = fqdn.Name("?")

// namesMax bounds a comment of names: the name of the pod stands before it.
const namesMax = dataplane.CommentMax - dataplane.PodIDLen - 1

// appendNames appends the comment of a grant without deadlines, which begins with the pod's ID in a set of
// a rule: subjects share that with others.
func (s *set) appendNames(b []byte, reasons []reason) []byte {
	b = append(b, s.prefix...)
	begin := len(b)
	if len(reasons) > 1 {
		reasons = slices.SortedFunc(slices.Values(reasons), func(a, b reason) int { return cmp.Compare(a.name, b.name) })
	}
	for _, withBy := range []bool{true, false} {
		b = b[:begin]
		fits, whole := true, true
		for i := range reasons {
			if reasons[i].name == unreadable {
				whole = false
				continue
			}
			end := len(b)
			if end > begin {
				b = append(b, separator...)
			}
			if b = reasons[i].appendName(b, withBy); len(b)-begin > namesMax-len(separator+leftOut) {
				b, fits, whole = b[:end], false, false
				break
			}
		}
		if fits || !withBy {
			if !whole && len(b) > begin {
				b = append(b, separator...)
			}
			if !whole {
				b = append(b, leftOut...)
			}
			break
		}
	}
	return b
}

// parseNames reads a comment of names. whole tells whether it has all names.
func parseNames(s string) (out []reason, whole bool) {
	whole = true
	for text := range strings.SplitSeq(s, separator) {
		r, ok := parseReason(text)
		if !ok {
			whole = false
			continue
		}
		out = append(out, r)
	}
	return out, whole
}
