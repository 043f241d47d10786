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

// appendRule writes the rule of a cluster policy that decided: its tier, policy, and its name
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

// appendTime appends the moment in UTC with six digits of the second, so that lines sort. The standard library is quick
// for the layout of RFC 3339 alone.
func appendTime(b []byte, t time.Time) []byte {
	b = t.UTC().AppendFormat(b, time.RFC3339)
	b[len(b)-1] = '.' // in place of the Z
	return appendMicros(b, t)
}

// second is a second as lines have it.
type second struct {
	unix int64
	text string // up to the point
}

// thisSecond is that of the last line: the next one's is mostly the same.
var thisSecond atomic.Pointer[second]

// appendNow is appendTime for the time of a line.
func appendNow(b []byte, t time.Time) []byte {
	s := thisSecond.Load()
	if unix := t.Unix(); s == nil || s.unix != unix {
		s = &second{unix, t.UTC().Format("2006-01-02T15:04:05.")}
		thisSecond.Store(s)
	}
	return appendMicros(append(b, s.text...), t)
}

func appendMicros(b []byte, t time.Time) []byte {
	b = append(b, "000000Z"...)
	micros := uint32(t.Nanosecond() / 1000)
	for at := len(b) - 2; micros > 0; at-- {
		b[at] += byte(micros % 10)
		micros /= 10
	}
	return b
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
