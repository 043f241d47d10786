package audit

import (
	"bytes"
	"cmp"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// appendList writes a comma, the key and a list, whose items item appends; nothing for an empty list. The list ends
// before an item, but the first, where b is longer than most.
func appendList[T any](b []byte, key string, items []T, most int, item func([]byte, *T) []byte) []byte {
	if len(items) == 0 {
		return b
	}
	b = append(appendKey(b, key), '[')
	for i := range items {
		if i > 0 {
			if len(b) > most {
				break
			}
			b = append(b, ',')
		}
		b = item(b, &items[i])
	}
	return append(b, ']')
}

// appendField writes a comma, the key and a string of any bytes.
func appendField(b []byte, key, value string) []byte {
	b = appendKey(b, key)
	return appendString(b, value)
}

// appendWord writes a comma, the key and a string of letters, digits and dashes.
func appendWord(b []byte, key, value string) []byte {
	b = appendKey(b, key)
	b = append(b, '"')
	b = append(b, value...)
	return append(b, '"')
}

func appendKey(b []byte, key string) []byte {
	b = append(b, ',', '"')
	b = append(b, key...)
	return append(b, '"', ':')
}

// appendRule writes the rule that decided: its tier, policy, and its name
// or else its path; nothing for nil.
func appendRule(b []byte, r *policy.Rule) []byte {
	if r == nil {
		return b
	}
	b = appendWord(b, "tier", r.Tier.String())
	b = appendField(b, "policy", r.Policy)
	return appendField(b, "rule", cmp.Or(r.Name, r.Path))
}

const hex = "0123456789abcdef"

// appendString writes a JSON string; bytes that are not UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for s != "" {
		n := 0
		for n < len(s) && plain[s[n]] {
			n++
		}
		if b, s = append(b, s[:n]...), s[n:]; s == "" {
			break
		}
		switch c := s[0]; {
		case c == '"' || c == '\\':
			b, s = append(b, '\\', c), s[1:]
		case c < utf8.RuneSelf:
			b, s = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15]), s[1:]
		default:
			r, n := utf8.DecodeRuneInString(s)
			b, s = utf8.AppendRune(b, r), s[n:]
		}
	}
	return append(b, '"')
}

// plain are the bytes that a JSON string has unescaped.
var plain = func() (is [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		is[c] = c != '"' && c != '\\'
	}
	return is
}()

// appendTime appends the moment in UTC with six digits of the second, so that lines sort. The standard
// library is quick for other layouts alone.
func appendTime(b []byte, t time.Time) []byte {
	second := (t.Unix()%secondsOfDay + secondsOfDay) % secondsOfDay
	d := lastDay.Load()
	if begin := t.Unix() - second; d == nil || d.begin != begin {
		d = &day{begin, t.UTC().Format("2006-01-02T")}
		lastDay.Store(d)
	}
	b = append(append(b, d.text...), "00:00:00.000000Z"...)
	of := b[len(b)-len("00:00:00.000000Z"):]
	addDigits(of[:2], second/3600)
	addDigits(of[3:5], second/60%60)
	addDigits(of[6:8], second%60)
	addDigits(of[9:15], int64(t.Nanosecond()/1000))
	return b
}

const secondsOfDay = 24 * 60 * 60

// day is a day as lines have it, which begins at a time of Unix.
type day struct {
	begin int64
	text  string
}

// lastDay is that of the last time: the next one's is mostly the same.
var lastDay atomic.Pointer[day]

// addDigits writes a number into as many zeros.
func addDigits(zeros []byte, n int64) {
	for i := len(zeros) - 1; n > 0; i-- {
		zeros[i] += byte(n % 10)
		n /= 10
	}
}

// appendName writes a name's presentation form as a JSON string. That form is printable
// ASCII, and escapes a quotation mark by a backslash.
func appendName(b []byte, n fqdn.Name) []byte {
	b = append(b, '"')
	at := len(b)
	b = n.AppendTo(b)
	if bytes.IndexByte(b[at:], '\\') < 0 {
		return append(b, '"')
	}
	return appendString(b[:at-1], n.String())
}
