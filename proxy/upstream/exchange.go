package upstream

import (
	"errors"
	"time"
)

var (
	// errManyWrong ends an exchange that may be under attack: the query continues over
	// TCP.
	errManyWrong = errors.New("too many replies did not answer the query")
	// errDown ends the queries that are under way at an upstream that is found down.
	errDown = errors.New("it stopped answering")
	// errEDNS ends the queries with EDNS at an upstream that answers none of them.
	errEDNS = errors.New("it answers no queries with EDNS")
)

// maxWrong is how many replies a socket hears whose id belongs to no query, and a query
// replies that bear its id and do not answer it. A sender of more is guessing, and is not
// given the time for it: the queries go on over TCP, which cannot be guessed.
const maxWrong = 16

// bounds limit one try at an upstream.
type bounds struct {
	udp, tcp time.Time     // when each is over
	share    time.Duration // of TCP after UDP, 0 for as much as there is
	maxFails int           // of the zone: 0 suspects no upstream
	probe    time.Duration // of the zone; 0 is probeEvery
	forceTCP bool          // of the zone
}

// exchange is a query on the wire that waits for its reply, over UDP or TCP. The lock of
// its socket pool guards it while it is in a table. The goroutine that removes it from there
// ends it, once. Times are since the upstream was created.
type exchange struct {
	query                    []byte // with the id of the first send
	end                      int    // where its question ends
	probe                    bool   // it asks whether the upstream answers at all
	by                       bounds
	began, retransmit, until time.Duration
	wrong                    int // replies that bear its id and do not answer it
	// sends are where it was sent over UDP: the second is the retransmit.
	sends [2]send
	to    responder
}

// send is a query on one socket. An id is used once on a socket.
type send struct {
	socket *udpSocket // nil: none
	id     uint16
	query  []byte
}

// responder takes the end of an exchange, with no lock held. It must not block.
type responder interface {
	// replied takes the reply, which answers the query and is lent. False: it cannot be
	// read, and over UDP another one is waited for.
	replied(packet []byte) bool
	// failed takes the error. lost: of a TCP connection that was used before.
	failed(err error, lost bool)
}

// newExchange returns the exchange of a query that begins now.
func (u *upstream) newExchange(query []byte, end int, until time.Time, by bounds, to responder) exchange {
	e := exchange{query: query, end: end, by: by, began: u.now(), until: until.Sub(u.created), to: to}
	e.retransmit = e.until
	if by.maxFails > 0 {
		e.retransmit = min(e.began+retransmitAfter, e.until)
	}
	return e
}

// failure is an exchange that was removed from its tables, and why.
type failure struct {
	e   *exchange
	err error
}

// tell reports failures. The caller holds no lock.
func tell(failures []failure) {
	for _, f := range failures {
		f.e.to.failed(f.err, false)
	}
}
