package audit

import (
	"strconv"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Version is the number of the schema, the field "v" of each line. It changes
// when a field goes away or changes its meaning, not when one is added.
const Version = 1

// How the lines begin, up to the time. The version has one digit.
const (
	lineHead = `{"v":` + string(rune('0'+Version)) + `,"kind":"` + KindDNS + `","time":"`
	flowHead = `{"v":` + string(rune('0'+Version)) + `,"kind":"` + KindFlow + `","time":"`
)

// The kinds of lines, the field "kind".
const (
	KindDNS  = "dns"
	KindFlow = "flow"
	// KindLost is the kind of a line that no log contains: it tells a follower how many
	// lines it lost because it read too slowly.
	KindLost = "lost"
)

// nodeField is what follows the time, the same in every line of a log.
func nodeField(node string) string {
	return string(appendField([]byte(`"`), "node", node))
}

// appendLine appends the record as one line of JSON with its newline. The node
// is a nodeField.
func appendLine(b []byte, node string, r *Record) []byte {
	b = appendHead(b, lineHead, node, r.Time)
	b = appendVerdict(b, r)
	b = r.Address.AppendTo(b)
	b = appendDecided(b, r)
	b = appendWay(b, r.Cache, r.TCP, r.Latency)
	b = appendError(b, r)
	return append(b, "}\n"...)
}

// appendHead writes the beginning of a line, up to the node.
func appendHead(b []byte, head, node string, at time.Time) []byte {
	b = append(b, head...)
	b = appendTime(b, at)
	return append(b, node...)
}

// appendVerdict writes the verdict and the pod, up to its address.
func appendVerdict(b []byte, r *Record) []byte {
	b = appendWord(b, "verdict", r.Verdict.String())
	if r.Would != None {
		b = appendWord(b, "would", r.Would.String())
	}
	return appendSubject(b, r.Pod, r.Workload, Owner{})
}

// appendSubject writes a pod, or the host with the owner of its socket, as far as the address.
func appendSubject(b []byte, p policy.PodRef, workload string, owner Owner) []byte {
	if p.Namespace == "" {
		b = append(b, `,"host":{`...)
		if owner.Known {
			b = append(b, `"uid":`...)
			b = strconv.AppendUint(b, uint64(owner.UID), 10)
			b = append(b, `,"gid":`...)
			b = strconv.AppendUint(b, uint64(owner.GID), 10)
			b = append(b, ',')
		}
		return append(b, `"ip":"`...)
	}
	b = append(b, `,"pod":{"namespace":`...)
	b = appendString(b, p.Namespace)
	b = appendField(b, "name", p.Name)
	if p.UID != "" {
		b = appendField(b, "uid", p.UID)
	}
	if workload != "" {
		b = appendField(b, "workload", workload)
	}
	return append(b, `,"ip":"`...)
}

// appendDecided appends the fields behind the pod's address, up to the upstream.
func appendDecided(b []byte, r *Record) []byte {
	b = append(b, `"},"question":{"name":`...)
	b = appendName(b, r.Name)
	b = appendNamed(b, "type", typeName(r.Type), "TYPE", int(r.Type))
	b = appendNamed(b, "class", className(r.Class), "CLASS", int(r.Class))
	b = append(b, '}')
	if r.Via != "" {
		b = append(b, `,"via":`...)
		b = appendName(b, r.Via)
	}
	b = appendRule(b, r.Rule)
	b = appendList(b, "matches", r.Matches[:min(len(r.Matches), maxListed)], never, func(b []byte, m **policy.Match) []byte { return appendMatch(b, *m) })
	most := len(b) + answerBytes
	b = appendList(b, "answers", r.Answers, most, func(b []byte, a *Answer) []byte { return appendAnswer(b, a, most) })
	b = appendList(b, "chain", r.Chain, never, func(b []byte, n *fqdn.Name) []byte { return appendName(b, *n) })
	b = appendNamed(b, "rcode", dns.RcodeToString[r.Rcode], "RCODE", r.Rcode)
	if r.Upstream.IsValid() {
		b = append(b, `,"upstream":"`...)
		b = r.Upstream.AppendTo(b)
		b = append(b, '"')
	}
	return b
}

// typeName returns the name of a type, "" for none. Nearly all questions are for addresses, and
// these names cost no look-up.
func typeName(qtype uint16) string {
	switch qtype {
	case dns.TypeA:
		return "A"
	case dns.TypeAAAA:
		return "AAAA"
	}
	return dns.TypeToString[qtype]
}

// className returns the name of a class, "" for none.
func className(class uint16) string {
	if class == dns.ClassINET {
		return "IN"
	}
	return dns.ClassToString[class]
}

// appendWay writes what differs from one question to the next.
func appendWay(b []byte, from Cache, tcp bool, latency time.Duration) []byte {
	if from != CacheNone {
		b = appendWord(b, "cache", from.String())
	}
	b = append(b, `,"latency_us":`...)
	b = strconv.AppendInt(b, latency.Microseconds(), 10)
	if tcp {
		return append(b, `,"protocol":"tcp"`...)
	}
	return append(b, `,"protocol":"udp"`...)
}

func appendError(b []byte, r *Record) []byte {
	if r.Renewed != "" {
		b = appendWord(b, "renewed", r.Renewed)
	}
	if r.Limit != policy.NoLimit {
		b = appendWord(b, "limit", r.Limit.String())
	}
	if r.Error == "" {
		return b
	}
	return appendField(b, "error", r.Error)
}

// The bounds of the lists of a line. Policies can make a name have thousands of matches and port
// sets, and one line as long as all that a log keeps in memory would displace the lines of others.
const (
	// maxListed bounds matches and policies.
	maxListed = 64
	// answerBytes is after how many bytes the list of answers ends, and that of an answer's grants.
	answerBytes = 64 << 10
)

func appendMatch(b []byte, m *policy.Match) []byte {
	b = append(b, `{"policy":`...)
	b = appendString(b, m.Policy)
	b = appendField(b, "path", m.Path)
	b = appendField(b, "match", m.Pattern.String())
	if m.Audit {
		b = append(b, `,"audit":true`...)
	}
	return append(b, '}')
}

// appendAnswer appends an answer, with grants up to a length of most and one at least.
func appendAnswer(b []byte, a *Answer, most int) []byte {
	b = append(b, `{"address":"`...)
	b = a.Addr.AppendTo(b)
	b = append(b, `","granted":`...)
	b = strconv.AppendBool(b, len(a.Openings) > 0)
	b = appendList(b, "grants", a.Openings, most, func(b []byte, o *Opened) []byte {
		b = append(b, `{"ports":`...)
		b = appendString(b, string(o.Ports))
		b = append(b, `,"until":"`...)
		b = appendTime(b, o.Until)
		return append(b, `"}`...)
	})
	if a.Blocked != "" {
		b = appendField(b, "blocked", a.Blocked)
	}
	return append(b, '}')
}

// appendNamed writes a field that has a name, or by RFC 3597 §5 kind and number.
func appendNamed(b []byte, key, name, kind string, number int) []byte {
	if name != "" {
		return appendWord(b, key, name)
	}
	b = appendKey(b, key)
	b = append(b, '"')
	b = append(b, kind...)
	b = strconv.AppendInt(b, int64(number), 10)
	return append(b, '"')
}
