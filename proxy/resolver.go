package proxy

import (
	"net/netip"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

// found is an upstream's answer. The message is shared by everyone who asked the
// same and must not be changed.
type found struct {
	msg  *dns.Msg
	from netip.AddrPort
}

// resolver answers what a client asks, from upstream. Stages wrap each other:
// one identical query at a time around the forwards; a cache would go around that.
type resolver interface {
	resolve(a wire.Query) (found, error)
}

// forwards is the resolver that asks the upstreams.
type forwards struct{ pool *upstream.Pool }

func (f forwards) resolve(a wire.Query) (found, error) {
	got, err := f.pool.Resolve(a)
	return found{got.Msg, got.From}, err
}
