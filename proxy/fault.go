package proxy

import (
	"log/slog"
	"runtime/debug"
)

// A fault is a panic in the proxy. The query in which it happens gets SERVFAIL, and no
// other query is affected: each step of a query runs under protect, and one owner at a
// time releases the resources of the query. The owner is the socket's reader until there
// is a query, then the query, or the call that it has joined.

// protect runs f. A fault in it is counted and logged, and makes ok false.
func (s *Server) protect(what string, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			s.fault(what, r)
		}
	}()
	f()
	return true
}

// do runs a job on a goroutine of its own. Its callers bound how many there are at a time.
func (s *Server) do(job func()) { go s.job(job) }

func (s *Server) job(job func()) { s.protect("a job of the proxy", job) }

// replyToFault sends the reply that tells the client of a fault. One more fault, in that
// reply, does not cost the client the reply.
func (s *Server) replyToFault(send func()) {
	for range 2 {
		if s.protect("the reply to a query", send) {
			return
		}
	}
}

// fault counts and logs a recovered panic, with where it happened.
func (s *Server) fault(what string, r any) {
	s.stats.Panics.Add(1)
	s.logger.Error(what+" ended in a fault of the proxy", slog.Any("fault", r), slog.String("stack", string(debug.Stack())))
}

// step marks a step of a query, at which tests let a fault happen.
func (s *Server) step(name string) {
	if s.faultAt != nil {
		s.faultAt(name)
	}
}
