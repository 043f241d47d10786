package grants

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy/fqdn"
)

// The comment of a grant has what the next agent needs to recover it:
//
//	NAME until=SECONDS BY,BY ; NAME until=SECONDS BY ; ...
//
// Where the kernel moves the deadline of a grant whose comment stays as it is, it has no deadlines, and
// the next agent takes the timeout of the grant for the deadline of each name, so that a name may last as
// long as the last one of its address. Names are in the order of their ends, the last one first, or without
// deadlines in that of their names. Where they do not all fit, the matches are left out first. The last
// word says that names are left out. Without deadlines the comment begins with the time that the kernel keeps the grant
// after its deadline, unless that is by usualHold: the next agent may have another hold.
const leftOut = "..."

// separator cannot occur inside a reason: names have no space. An escaped semicolon may
// end a name, hence the space before it.
const separator = " ; "

// unreadable is the name, which no name is, that stands for names that no comment says. In a
// set of a lasting rule it keeps a grant until its end.
const unreadable = fqdn.Name("?")

// keptWord begins the word that says how long, in seconds, the kernel keeps a grant after its deadline. No name begins
// with it: a name has "=" escaped.
const keptWord = "kept="

// usualHold is the outage hold of grants whose comment has neither deadlines nor that word.
const usualHold = 10 * time.Minute

// namesMax bounds the names of a comment: the ID of the pod and how long it is kept may stand before them.
const namesMax = dataplane.CommentMax - dataplane.PodIDLen - len(" kept=86401 ")

// appendComment appends the comment of a grant, which begins with the pod's ID in a set of a rule: subjects
// share that with others.
func (s *set) appendComment(b []byte, reasons []reason) []byte {
	b = append(append(b, s.prefix...), s.kept...)
	begin := len(b)
	if len(reasons) > 1 {
		reasons = slices.SortedFunc(slices.Values(reasons), func(a, b reason) int {
			if later := cmp.Compare(b.until.seconds(), a.until.seconds()); later != 0 && s.deadlines {
				return later
			}
			return cmp.Compare(a.name, b.name)
		})
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
			if b = reasons[i].append(b, withBy, s.deadlines); len(b)-begin > namesMax-len(separator+leftOut) {
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

// parse reads the comment of a grant, and appends its reasons. whole tells whether it has all names; own is false for a grant of
// another pod. kept is how long the kernel keeps the grant after its deadline, where the comment has none.
func (s *set) parse(out []reason, comment string) (all []reason, kept time.Duration, whole, own bool) {
	if s.prefix != "" {
		pod, names, found := strings.Cut(comment, " ")
		if !found || len(pod) != dataplane.PodIDLen {
			return out, 0, false, true
		}
		if comment = names; pod+" " != s.prefix {
			return out, 0, false, false
		}
	}
	kept = keeps(s.key.Rule, usualHold)
	if text, found := strings.CutPrefix(comment, keptWord); found {
		text, names, _ := strings.Cut(text, " ")
		if n, err := strconv.ParseUint(text, 10, 32); err == nil {
			kept, comment = time.Duration(n)*time.Second, names
		}
	}
	whole = true
	for text := range strings.SplitSeq(comment, separator) {
		if r, ok := parseReason(text); ok {
			out = append(out, r)
		} else {
			whole = false
		}
	}
	return out, kept, whole, true
}

// untilWord begins the word of a reason that says its deadline, in whole seconds of monotonic time.
// sinceWord begins the one that says when the last answer held the address, where only its use keeps it
// open since. They stand before the matches, none of which is such a word.
const untilWord, sinceWord = "until=", "since="

// append renders one reason.
func (r *reason) append(b []byte, withBy, withUntil bool) []byte {
	b = r.name.AppendTo(b)
	if withUntil {
		b = strconv.AppendInt(append(append(b, ' '), untilWord...), r.until.seconds(), 10)
	}
	if r.held != 0 {
		b = strconv.AppendUint(append(append(b, ' '), sinceWord...), uint64(r.held), 10)
	}
	if withBy && r.by != (matches{}) {
		b = append(append(b, ' '), r.by.String()...)
	}
	return b
}

// parseReason reads a reason. A deadline that it does not say is 0.
func parseReason(text string) (r reason, ok bool) {
	name, rest, _ := strings.Cut(text, " ")
	n, err := fqdn.ParseName(name)
	if err != nil || name == "" {
		return reason{}, false
	}
	r.name = n
	var held monotonic
	for _, word := range [...]struct {
		prefix string
		time   *monotonic
	}{{untilWord, &r.until}, {sinceWord, &held}} {
		first, others, _ := strings.Cut(rest, " ")
		text, is := strings.CutPrefix(first, word.prefix)
		if !is {
			continue
		}
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return reason{}, false
		}
		*word.time, rest = parseSeconds(seconds), others
	}
	r.held = uint32(max(held.seconds(), 0))
	if rest != "" {
		r.by = matchesOf([]string{rest})
	}
	return r, true
}
