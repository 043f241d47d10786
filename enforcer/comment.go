package enforcer

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/ipset"
	"github.com/namegate/namegate/policy"
)

// The comment of a set entry is what the next agent needs to take a grant over:
// its reasons, the one that ends last first, as
//
//	DEADLINE NAME BY,BY ; DEADLINE NAME BY
//
// with the deadline in Unix seconds. Where they do not all fit, what the
// policies are called goes first, then the reasons that end soonest.

// separator cannot stand inside a reason: names hold no space, and of what they
// escape a semicolon may be the last, hence the space before it.
const separator = " ; "

func comment(reasons []reason) string {
	sorted := slices.SortedFunc(slices.Values(reasons), func(a, b reason) int {
		if c := b.until.Compare(a.until); c != 0 {
			return c
		}
		return cmp.Compare(a.name, b.name)
	})
	for _, withBy := range []bool{true, false} {
		texts := make([]string, len(sorted))
		for i, r := range sorted {
			texts[i] = r.text(withBy)
		}
		if s := strings.Join(texts, separator); len(s) <= ipset.CommentLengthMax {
			return s
		}
	}
	s := ""
	for _, r := range sorted {
		next := r.text(false)
		if s != "" {
			next = s + separator + next
		}
		if len(next) > ipset.CommentLengthMax {
			break
		}
		s = next
	}
	return s
}

// text renders one reason. A name that would break the form, which a policy
// cannot hold, is left out: the entry then counts as nobody's.
func (r reason) text(withBy bool) string {
	s := strconv.FormatInt(ceilSecond(r.until), 10) + " " + r.name.String()
	if withBy && len(r.by) > 0 {
		s += " " + strings.Join(r.by, ",")
	}
	return s
}

func ceilSecond(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }

// parseComment reads what comment wrote. Reasons that it cannot read are left out.
func parseComment(s string) []reason {
	var out []reason
	for text := range strings.SplitSeq(s, separator) {
		deadline, rest, _ := strings.Cut(text, " ")
		name, by, _ := strings.Cut(rest, " ")
		seconds, err := strconv.ParseInt(deadline, 10, 64)
		if err != nil || name == "" {
			continue
		}
		n, err := policy.ParseName(name)
		if err != nil {
			continue
		}
		r := reason{name: n, until: time.Unix(seconds, 0)}
		if by != "" {
			r.by = strings.Split(by, ",")
		}
		out = append(out, r)
	}
	return out
}
