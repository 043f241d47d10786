package upstream

import (
	"net/netip"
	"sync"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/wire"
)

// Responder takes the answer to a query of Start: by one call of Packet that returns
// true, else by one call of Done. The calls come from the goroutines that read the
// upstreams' sockets, with no lock held, and must not block.
type Responder interface {
	// Packet takes the reply to the first try as it came over UDP. It has the query's id
	// and question. The packet is lent, and is as long as PacketBytes where it may have
	// been cut. False: the responder does not read such a reply.
	Packet(packet []byte, from netip.AddrPort) bool
	// Done takes the answer or the error. After ErrFault the query may be asked again.
	Done(a Answer, err error)
}

// PacketBytes is the length of the buffer for a reply over UDP. A longer reply counts as
// truncated.
const PacketBytes = mmsg.PacketBytes

// Batch collects queries for upstreams and sends them together. It belongs to one
// goroutine. The zero value is empty.
type Batch struct{ packets mmsg.SendBatch[*line] }

// Send sends the collected queries.
func (b *Batch) Send() { b.packets.Send() }

// started is a query of Start.
type started struct {
	tour  tour
	query wire.Query
	first *upstream // of the first try, nil for none
	to    Responder
}

var startedPool = sync.Pool{New: func() any { return new(started) }}

// Start asks the upstreams. The first query is in the batch when Start returns.
func (z *Zone) Start(q wire.Query, to Responder, batch *Batch) {
	s := startedPool.Get().(*started)
	*s = started{tour: z.begin(), query: q, to: to}
	config := s.tour.r.zone
	if err := z.enter(config); err != nil {
		go s.done(Answer{}, err)
		return
	}
	if !config.ForceTCP {
		s.first, _ = s.tour.next()
	}
	if s.first == nil {
		go s.failover(nil, nil)
		return
	}
	s.first.start(q, s.tour.attempt(), s, batch)
}

// take implements taker: the first try has ended.
func (s *started) take(packet []byte, err error) {
	if err != nil {
		go s.failover(nil, err) // a lock may be held
		return
	}
	if z, to := s.tour.z, s.to; to.Packet(packet, s.first.addr) {
		z.under.Add(-1)
		s.recycle()
		return
	}
	m := parse(packet, len(packet) == PacketBytes)
	switch {
	case m == nil:
		s.first.stats.WrongReplies.Add(1)
		go s.failover(nil, errManyWrong) // over TCP: no other reply is waited for
	case m.Truncated || Passed(m.Rcode):
		go s.failover(m, nil)
	default:
		s.done(Answer{m, s.first.addr}, nil)
	}
}

// failover goes on after the first try, which ended with m and err.
func (s *started) failover(m *dns.Msg, err error) {
	answer, err := s.resume(m, err)
	s.done(answer, err)
}

func (s *started) resume(m *dns.Msg, err error) (answer Answer, failed error) {
	failed = ErrFault
	p := s.tour.z.pool
	defer p.net("a query to the upstreams")
	p.step("resume")
	answer, err = s.tour.resume(s.query, s.first, m, err)
	p.step("resumed")
	return answer, err
}

func (s *started) done(a Answer, err error) {
	z, to := s.tour.z, s.to
	z.under.Add(-1)
	s.recycle()
	to.Done(a, err)
}

func (s *started) recycle() {
	*s = started{}
	startedPool.Put(s)
}
