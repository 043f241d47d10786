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

// append renders one reason.
func (r *reason) append(b []byte, withBy bool) []byte {
	b = append(strconv.AppendInt(b, r.until.seconds(), 10), ' ')
	b = r.name.AppendTo(b)
	if withBy && r.by != (matches{}) {
		b = append(append(b, ' '), r.by.String()...)
	}
	return b
}

// parseComment reads a comment of this agent or of an earlier one. epoch is the time of
// monotonic time 0. Reasons that it cannot read are left out.
func parseComment(s string, epoch time.Time) []reason {
	var out []reason
	for text := range strings.SplitSeq(s, separator) {
		deadline, rest, _ := strings.Cut(text, " ")
		name, by, _ := strings.Cut(rest, " ")
		seconds, err := strconv.ParseInt(deadline, 10, 64)
		if err != nil || name == "" {
			continue
		}
		n, err := fqdn.ParseName(name)
		if err != nil {
			continue
		}
		r := reason{name: n, until: parseSeconds(seconds, epoch)}
		if by != "" {
			r.by = matchesOf([]string{by})
		}
		out = append(out, r)
	}
	return out
}
