package fqdn

import (
	"errors"
	"fmt"
	"iter"
	"strings"
)

// Bounds of RFC 1035 §2.3.4. The 255 octets of a name on the wire include the
// root's zero byte, which Name leaves out.
const (
	maxLabel = 63
	maxWire  = 254
)

// Name is a domain name in canonical wire form: length-prefixed labels, ASCII
// letters in lower case, without the root's zero byte. "" is the root.
//
// Names are comparable, and two names are the same DNS name exactly if they are
// the same string. A label may hold any byte, also a dot.
type Name string

// ParseName reads presentation form: labels joined by dots, the trailing dot
// optional, with the escapes of RFC 1035 §5.1 (\. for a dot inside a label, \DDD
// for the byte of that decimal number). "." is the root.
// It is an error if a label is empty or over 63 bytes, the name over 255 bytes on
// the wire, or an escape broken.
func ParseName(s string) (Name, error) {
	if s == "." {
		return "", nil
	}
	var room [maxWire]byte
	wire := room[:1]
	start := 0 // of the length byte of the label that is being read
	closeLabel := func() error {
		n := len(wire) - start - 1
		if n == 0 {
			return fmt.Errorf("name %q: an empty label", s)
		}
		if n > maxLabel {
			return fmt.Errorf("name %q: a label of %d bytes; at most %d are allowed", s, n, maxLabel)
		}
		wire[start] = byte(n)
		return nil
	}
	for i := 0; i < len(s); {
		if s[i] == '.' {
			if err := closeLabel(); err != nil {
				return "", err
			}
			if i++; i == len(s) {
				return finish(s, wire)
			}
			start = len(wire)
			wire = append(wire, 0)
			continue
		}
		b, n, err := unescape(s[i:])
		if err != nil {
			return "", fmt.Errorf("name %q: %w", s, err)
		}
		wire = append(wire, lower(b))
		i += n
	}
	if err := closeLabel(); err != nil {
		return "", err
	}
	return finish(s, wire)
}

func finish(s string, wire []byte) (Name, error) {
	if len(wire) > maxWire {
		return "", fmt.Errorf("name %q: %d bytes on the wire; at most %d are allowed", s, len(wire)+1, maxWire+1)
	}
	return Name(wire), nil
}

var errEscape = errors.New(`a broken escape; write \. or \\ or \DDD with a decimal number up to 255`)

// unescape returns the byte that s, which is not empty, begins with, and how
// many bytes of s spell it.
func unescape(s string) (b byte, n int, err error) {
	if s[0] != '\\' {
		return s[0], 1, nil
	}
	if len(s) < 2 {
		return 0, 0, errEscape
	}
	if s[1] < '0' || s[1] > '9' {
		return s[1], 2, nil
	}
	if len(s) < 4 {
		return 0, 0, errEscape
	}
	v := 0
	for _, c := range []byte(s[1:4]) {
		if c < '0' || c > '9' {
			return 0, 0, errEscape
		}
		v = v*10 + int(c-'0')
	}
	if v > 255 {
		return 0, 0, errEscape
	}
	return byte(v), 4, nil
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// String returns the presentation form: lower case, special characters escaped, no
// trailing dot. The root is ".".
func (n Name) String() string {
	var room [maxWire]byte
	return string(n.AppendTo(room[:0]))
}

// AppendTo appends the presentation form that String returns.
func (n Name) AppendTo(b []byte) []byte {
	if n == "" {
		return append(b, '.')
	}
	at := len(b)
	b = append(b, n[1:]...)
	left := n[0] // of the label
	for i, c := range b[at:] {
		switch {
		case left == 0:
			b[at+i], left = '.', c
		case isNameChar(c):
			left--
		default:
			return n.appendEscaped(b[:at])
		}
	}
	return b
}

// appendEscaped is AppendTo for names with bytes that RFC 1035 §5.1 escapes.
func (n Name) appendEscaped(b []byte) []byte {
	first := true
	for label := range n.Labels() {
		if !first {
			b = append(b, '.')
		}
		first = false
		for _, c := range []byte(label) {
			switch {
			case strings.IndexByte(`.\"();@$`, c) >= 0:
				b = append(b, '\\', c)
			case c <= ' ' || c > '~':
				b = append(b, '\\', '0'+c/100, '0'+c/10%10, '0'+c%10)
			default:
				b = append(b, c)
			}
		}
	}
	return b
}

// Labels yields the labels from left to right, unescaped.
func (n Name) Labels() iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest := string(n); rest != ""; {
			end := 1 + int(rest[0])
			if end > len(rest) || !yield(rest[1:end]) {
				return
			}
			rest = rest[end:]
		}
	}
}

// NumLabels returns the number of labels; the root has none.
func (n Name) NumLabels() int {
	count := 0
	for i := 0; i < len(n); i += 1 + int(n[i]) {
		count++
	}
	return count
}

// HasSuffix tells whether n is suffix or a name below it, label by label. Every
// name has the root as a suffix.
func (n Name) HasSuffix(suffix Name) bool {
	_, ok := n.TrimSuffix(suffix)
	return ok
}

// TrimSuffix returns the labels left of suffix, and whether n is suffix or below it. If
// it is not, it returns n and false.
func (n Name) TrimSuffix(suffix Name) (Name, bool) {
	cut := len(n) - len(suffix)
	if cut < 0 || n[cut:] != suffix {
		return n, false
	}
	i := 0
	for i < cut {
		i += 1 + int(n[i])
	}
	if i != cut {
		return n, false // the bytes agree, but from the middle of a label
	}
	return n[:cut], true
}

// Child returns the name of labels, from left to right and in any case, followed by n,
// and whether there can be one.
func (n Name) Child(labels ...string) (Name, bool) {
	wire := make([]byte, 0, maxWire)
	for _, label := range labels {
		if label == "" || len(label) > maxLabel {
			return "", false
		}
		wire = append(append(wire, byte(len(label))), strings.ToLower(label)...)
	}
	wire = append(wire, n...)
	return Name(wire), len(wire) <= maxWire
}
