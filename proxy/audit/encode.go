package audit

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/miekg/dns"
)

// Version is the number of the schema, the field "v" of each line. It changes
// when a field goes away or changes its meaning, not when one is added.
const Version = 1

// appendRecord appends the record as one line of JSON with its newline.
func appendRecord(b []byte, node string, r *Record) []byte {
	b = append(b, `{"v":`...)
	b = strconv.AppendInt(b, Version, 10)
	b = append(b, `,"kind":"dns","time":"`...)
	b = appendTime(b, r.Time)
	b = append(b, '"')
	b = appendField(b, "node", node)
	b = appendField(b, "verdict", r.Verdict.String())
	if r.Would != None {
		b = appendField(b, "would", r.Would.String())
	}
	b = appendPod(b, r)
	b = append(b, `,"question":{"name":`...)
	b = appendString(b, r.Name.String())
	b = appendField(b, "type", typeText(r.Type))
	b = appendField(b, "class", classText(r.Class))
	b = append(b, '}')
	b = appendMatches(b, r)
	b = appendAnswers(b, r)
	if len(r.Chain) > 0 {
		b = append(b, `,"chain":`...)
		for i, n := range r.Chain {
			b = append(b, listByte(i))
			b = appendString(b, n.String())
		}
		b = append(b, ']')
	}
	b = appendField(b, "rcode", rcodeText(r.Rcode))
	if r.Upstream.IsValid() {
		b = append(b, `,"upstream":"`...)
		b = r.Upstream.AppendTo(b)
		b = append(b, '"')
	}
	b = append(b, `,"latency_us":`...)
	b = strconv.AppendInt(b, r.Latency.Microseconds(), 10)
	b = appendField(b, "protocol", protocol(r.TCP))
	if r.Error != "" {
		b = appendField(b, "error", r.Error)
	}
	return append(b, "}\n"...)
}

func appendPod(b []byte, r *Record) []byte {
	b = append(b, `,"pod":{"namespace":`...)
	b = appendString(b, r.Pod.Namespace)
	b = appendField(b, "name", r.Pod.Name)
	if r.Pod.UID != "" {
		b = appendField(b, "uid", r.Pod.UID)
	}
	b = append(b, `,"ip":"`...)
	b = r.Address.AppendTo(b)
	return append(b, `"}`...)
}

func appendMatches(b []byte, r *Record) []byte {
	for i, m := range r.Matches {
		if i == 0 {
			b = append(b, `,"matches":`...)
		}
		b = append(b, listByte(i))
		b = append(b, `{"policy":`...)
		b = appendString(b, m.Policy)
		b = appendField(b, "path", m.Path)
		b = appendField(b, "match", m.Pattern.String())
		if m.Audit {
			b = append(b, `,"audit":true`...)
		}
		b = append(b, '}')
	}
	if len(r.Matches) > 0 {
		b = append(b, ']')
	}
	return b
}

func appendAnswers(b []byte, r *Record) []byte {
	for i, a := range r.Answers {
		if i == 0 {
			b = append(b, `,"answers":`...)
		}
		b = append(b, listByte(i))
		b = append(b, `{"address":"`...)
		b = a.Addr.AppendTo(b)
		b = append(b, `","granted":`...)
		b = strconv.AppendBool(b, len(a.Openings) > 0)
		for j, o := range a.Openings {
			if j == 0 {
				b = append(b, `,"grants":`...)
			}
			b = append(b, listByte(j))
			b = append(b, `{"ports":`...)
			b = appendString(b, string(o.Ports))
			b = append(b, `,"until":"`...)
			b = appendTime(b, o.Until)
			b = append(b, `"}`...)
		}
		if len(a.Openings) > 0 {
			b = append(b, ']')
		}
		if a.Blocked != "" {
			b = appendField(b, "blocked", a.Blocked)
		}
		b = append(b, '}')
	}
	if len(r.Answers) > 0 {
		b = append(b, ']')
	}
	return b
}

// listByte opens a list before its first element and parts the others.
func listByte(i int) byte {
	if i == 0 {
		return '['
	}
	return ','
}

// appendTime writes UTC with microseconds, always as many digits, so that lines sort.
func appendTime(b []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z")
}

func appendField(b []byte, key, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, key...)
	b = append(b, '"', ':')
	return appendString(b, value)
}

const hex = "0123456789abcdef"

// appendString writes a JSON string; bytes that are not UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
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

func typeText(t uint16) string {
	if s, ok := dns.TypeToString[t]; ok {
		return s
	}
	return "TYPE" + strconv.Itoa(int(t)) // RFC 3597 §5
}

func classText(c uint16) string {
	if s, ok := dns.ClassToString[c]; ok {
		return s
	}
	return "CLASS" + strconv.Itoa(int(c))
}

func rcodeText(c int) string {
	if s, ok := dns.RcodeToString[c]; ok {
		return s
	}
	return "RCODE" + strconv.Itoa(c)
}

func protocol(tcp bool) string {
	if tcp {
		return "tcp"
	}
	return "udp"
}
