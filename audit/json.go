package audit

import (
	"bytes"
	"cmp"
	"unicode/utf8"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// listByte opens a list before its first element and parts the others.
func listByte(i int) byte {
	if i == 0 {
		return '['
	}
	return ','
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
	if allPlain(s) {
		b = append(b, s...)
		return append(b, '"')
	}
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case isPlain(c):
			b = append(b, c)
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < utf8.RuneSelf:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
			continue
		}
		i++
	}
	return append(b, '"')
}

// isPlain tells whether a JSON string has a byte unescaped.
func isPlain(c byte) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' }

// allPlain is isPlain for all bytes of a string, eight at a time. The last eight overlap
// the ones before.
func allPlain(s string) bool {
	if len(s) < 8 {
		for i := range len(s) {
			if !isPlain(s[i]) {
				return false
			}
		}
		return true
	}
	for i := 0; i < len(s)-8; i += 8 {
		if !plainWord(wordAt(s, i)) {
			return false
		}
	}
	return plainWord(wordAt(s, len(s)-8))
}

// wordAt returns eight bytes, of which the compiler makes one load.
func wordAt(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// plainWord is isPlain for eight bytes. A byte below n has its top bit set in w - n·ones
// but not in w; a borrow only affects bytes above such a byte.
func plainWord(w uint64) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, back := w^'"'*ones, w^'\\'*ones // zero where the byte is one
	odd := w | (w - ' '*ones) | (w + ones) | (quote - ones) | (back - ones)
	return odd&tops == 0
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
