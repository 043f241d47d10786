package proxy

// letters are the queries that one pass of a socket's reader has for upstreams.
// They are posted together.
type letters struct {
	lines   [batchMost]*line
	queries [batchMost][]byte
	count   int
	out     outgoing
	first   int // of lines, that is being posted
	failed  func(int, error)
}

// add takes a query that has its place on the line.
func (p *letters) add(l *line, query []byte) {
	if p.count == batchMost {
		p.post()
	}
	p.lines[p.count], p.queries[p.count] = l, query
	p.count++
}

// post sends them, those that follow each other on one line with one call.
func (p *letters) post() {
	if p.failed == nil {
		p.failed = func(i int, err error) { p.lines[p.first+i].unsent(p.queries[p.first+i], err) }
	}
	defer p.reset() // also after a fault: nothing is sent twice
	for p.first = 0; p.first < p.count; {
		l := p.lines[p.first]
		end := p.first
		for ; end < p.count && p.lines[end] == l; end++ {
			p.out.add(p.queries[end], nil, 0)
		}
		p.out.post(l.raw, p.failed)
		p.first = end
	}
}

func (p *letters) reset() {
	clear(p.lines[:p.count])
	clear(p.queries[:p.count])
	p.count = 0
}
