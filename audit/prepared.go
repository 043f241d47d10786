package audit

import "net/netip"

// Prepared is the part of a line that stays the same as often as the same answer
// is given to the same pod. It is immutable and may be used by many goroutines;
// it takes about as many bytes as a line.
type Prepared struct {
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
func Prepare(r *Record) *Prepared {
	p := &Prepared{address: r.Address, trait: traitOf(r)}
	b := appendVerdict(nil, r)
	p.from = len(b)
	b = r.Address.AppendTo(b)
	p.to = len(b)
	b = appendDecided(b, r)
	p.way = len(b)
	p.text = string(appendError(b, r))
	return p
}

// appendDecision appends the fields between node and cache, with the address of the
// query's source: a pod may have one of each family.
func (p *Prepared) appendDecision(b []byte, r *Record) []byte {
	if r.Address == p.address {
		return append(b, p.text[:p.way]...)
	}
	b = append(b, p.text[:p.from]...)
	b = r.Address.AppendTo(b)
	return append(b, p.text[p.to:p.way]...)
}

// end returns the error's field, empty if there is none.
func (p *Prepared) end() string { return p.text[p.way:] }

// Size is about how many bytes it takes.
func (p *Prepared) Size() int { return len(p.text) + 104 }
