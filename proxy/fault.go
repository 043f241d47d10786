package proxy

import (
	"log/slog"
	"runtime/debug"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/limit"
	"github.com/namegate/namegate/proxy/wire"
)

// A fault is a panic in the proxy. It costs the query in which it happens a SERVFAIL
// and nothing else: every goroutine that handles a query has a deferred net, and what
// the query holds is given back by one owner at a time. That is the socket's reader
// until the query is handed on, then a task, an in-flight query on the short way
// (express), or the call (flight) that it has joined.

// step marks a step of a query, at which tests let a fault happen.
func (s *Server) step(name string) {
	if s.faultAt != nil {
		s.faultAt(name)
	}
}

// fault counts and logs what a net has caught, with where it happened.
func (s *Server) fault(what string, r any) {
	s.stats.Panics.Add(1)
	s.logger.Error(what+" ended in a fault of the proxy", slog.Any("fault", r), slog.String("stack", string(debug.Stack())))
}

// net catches a fault where nothing is left to be done about it.
func (s *Server) net(what string) {
	if r := recover(); r != nil {
		s.fault(what, r)
	}
}

// task is a query that a worker answers. It gives back what it holds, whatever happens.
type task struct {
	s      *Server
	packet []byte
	who    asker
	tcp    bool
	slot   limit.Slot        // none: it is not admitted yet
	reply  func(wire []byte) // to who asked
	done   func()            // the last that is called
}

// run answers the query. It is called once.
func (q *task) run() {
	defer q.done()
	defer q.release()
	defer q.net()
	q.s.step("task")
	q.reply(q.answer())
}

func (q *task) answer() []byte {
	if !q.who.known {
		return wire.ErrorReply(q.packet, dns.RcodeServerFailure)
	}
	if !q.slot.Held() {
		slot, ok := q.s.admit(q.who)
		if !ok {
			return wire.ErrorReply(q.packet, dns.RcodeServerFailure)
		}
		q.slot = slot
	}
	return q.s.handle(q.packet, q.who, q.tcp)
}

// release gives the slot back, if there is one.
func (q *task) release() {
	if q.slot.Held() {
		q.s.clients.Release(q.slot)
	}
}

// net answers SERVFAIL after a fault.
func (q *task) net() {
	if r := recover(); r != nil {
		q.s.fault("a query", r)
		q.reply(wire.ErrorReply(q.packet, dns.RcodeServerFailure))
	}
}
