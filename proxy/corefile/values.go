package corefile

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// maxTTL is the longest TTL that DNS can say (RFC 2181 §8: 31 bits of seconds).
const maxTTL = math.MaxInt32 * time.Second

// only returns the only argument, as read reads it within the bounds.
func only[T any](s stanza, usage string, least, most T, read func(s stanza, arg, usage string, least, most T) (T, error)) (value T, err error) {
	arg, err := s.one(usage)
	if err != nil {
		return value, err
	}
	return read(s, arg, usage, least, most)
}

// each reads the arguments, of which there is at least one; none is the error of no argument.
func each[T any](s stanza, args []string, none string, read func(arg string) (T, error)) (values []T, err error) {
	if len(args) == 0 {
		return nil, s.errorf("%s", none)
	}
	for _, arg := range args {
		v, err := read(arg)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// span reads an argument as a duration within the bounds.
func (s stanza) span(arg, usage string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(arg)
	if err != nil {
		return 0, s.errorf("%q is not a duration, write for example %q", arg, usage)
	}
	if d < least || d > most {
		return 0, s.errorf("%s is out of bounds, write %s to %s", short(d), short(least), short(most))
	}
	return d, nil
}

// seconds reads an argument as whole seconds, which is how DNS
// counts TTLs: a duration, or a bare number as CoreDNS writes it.
func (s stanza) seconds(arg, usage string, least, most time.Duration) (time.Duration, error) {
	if n, err := strconv.ParseUint(arg, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		d := time.Duration(min(n, 1<<32)) * time.Second // more than any bound, less than overflows
		if d < least || d > most {
			return 0, s.errorf("%s is out of bounds, write %s to %s", arg, short(least), short(most))
		}
		return d, nil
	}
	d, err := s.span(arg, usage, least, most)
	if err == nil && d%time.Second != 0 {
		return 0, s.errorf("%s is not a number of whole seconds, as TTLs are, write for example %q", short(d), usage)
	}
	return d, err
}

// short writes a duration without its zero minutes and seconds.
func short(d time.Duration) string {
	text := d.String()
	for _, unit := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, unit) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// count reads an argument as a whole number within the bounds.
func (s stanza) count(arg, usage string, least, most int) (int, error) {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return 0, s.errorf("%q is not a whole number, write for example %q", arg, usage)
	}
	if n < least || n > most {
		return 0, s.errorf("%d is out of bounds, write %d to %d", n, least, most)
	}
	return n, nil
}

// size reads an argument as bytes within the bounds: a number with k, M
// or G (powers of 1024; Ki, MiB and the like are the same).
func (s stanza) size(arg, usage string, least, most int64) (int64, error) {
	digits := strings.TrimRight(arg, "kKMGiB")
	unit := strings.TrimSuffix(strings.TrimSuffix(arg[len(digits):], "B"), "i")
	shift, ok := map[string]int{"": 0, "k": 10, "K": 10, "M": 20, "G": 30}[unit]
	ok = ok && (!strings.HasSuffix(arg, "B") || strings.HasSuffix(arg, "iB")) // MB is a power of 1000
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || !ok {
		return 0, s.errorf("%q is not a size, write for example %q", arg, usage)
	}
	if n <<= shift; n < least || n > most {
		return 0, s.errorf("%q is out of bounds, write %s to %s", arg, inBytes(least), inBytes(most))
	}
	return n, nil
}

// inBytes writes a size in the largest unit that needs no fraction.
func inBytes(n int64) string {
	units := []string{"", "KiB", "MiB", "GiB"}
	at := 0
	for n != 0 && n%1024 == 0 && at < len(units)-1 {
		n, at = n/1024, at+1
	}
	return strconv.FormatInt(n, 10) + units[at]
}
