package audit

import (
	"net/netip"
	"time"
	"unique"
)

// Prepared is the part of a line that stays the same as often as the same answer
// is given to the same pod. It is immutable and may be used by many goroutines;
// it takes about as many bytes as a line.
type Prepared struct {
	of      subject
	text    string     // from the verdict to the upstream, then the error
	address netip.Addr // of the pod, as in text
	from    int        // where that begins
	to      int        // and ends
	way     int        // where cache, latency and protocol belong
	trait   trait
}

// Prepare writes the constant part of the record's line: all but Time, Address, Cache,
// TCP and Latency. A deadline in its Openings is constant too, so a renewed grant makes
// the prepared part invalid.
func (*Log) Prepare(r *Record) *Prepared {
	p := &Prepared{of: unique.Make(r.Pod), address: r.Address, trait: traitOf(r)}
	b := appendVerdict(nil, r)
	p.from = len(b)
	b = r.Address.AppendTo(b)
	p.to = len(b)
	b = appendDecided(b, r)
	p.way = len(b)
	p.text = string(appendError(b, r))
	return p
}

// Repeat is Write for the same decision about a query over UDP that came at a time from an address of
// the pod, and was answered from the cache within latency. It costs less.
func (l *Log) Repeat(p *Prepared, at time.Time, from netip.Addr, latency time.Duration) {
	if f := l.filter.Load(); f != nil && !f.keeps(&p.trait) {
		l.filtered.Add(1)
		return
	}
	room := l.take()
	l.put(p.of, room, p.appendLine((*room)[:0], l.node, at, from, latency))
}

// appendLine appends the line of a repeated decision. A pod may have an address of each family.
func (p *Prepared) appendLine(b []byte, node string, at time.Time, from netip.Addr, latency time.Duration) []byte {
	b = appendHead(b, lineHead, node, at)
	if from == p.address {
		b = append(b, p.text[:p.way]...)
	} else {
		b = append(b, p.text[:p.from]...)
		b = from.AppendTo(b)
		b = append(b, p.text[p.to:p.way]...)
	}
	b = appendWay(b, CacheHit, false, latency)
	b = append(b, p.text[p.way:]...)
	return append(b, "}\n"...)
}

// Size is about how many bytes it takes.
func (p *Prepared) Size() int { return len(p.text) + 104 }
