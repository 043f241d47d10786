package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/upstream"
)

// maxSelfQuery bounds a SelfQuery whose context has no end.
const maxSelfQuery = time.Second

// selfQueryAgain is after what time a self-query without an answer is sent again:
// one datagram that a full receive queue lost must not count as a hung proxy.
const selfQueryAgain = 125 * time.Millisecond

// SelfQuery asks the socket at addr, over UDP, for the reserved name
// alive.namegate.invalid and returns nil once it is answered. The query goes the
// way of every other: an error means that pods get no answers there.
func (s *Server) SelfQuery(ctx context.Context, addr netip.AddrPort) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxSelfQuery)
		defer cancel()
	}
	q := new(dns.Msg).SetQuestion(answer.Presentation(aliveName), dns.TypeTXT)
	m, err := upstream.Ask(ctx, new(net.Dialer), addr, q, selfQueryAgain)
	if err == nil && len(m.Answer) == 1 {
		if txt, ok := m.Answer[0].(*dns.TXT); ok && len(txt.Txt) == 1 && txt.Txt[0] == aliveText {
			return nil
		}
	}
	return fmt.Errorf("query the proxy's own socket %s: %w", addr, cmp.Or(err, errNotServing))
}

var errNotServing = errors.New("the reply does not say that it is serving")

// askAgain is after what time AskResolver sends a query again.
const askAgain = 500 * time.Millisecond

// AskResolver sends a resolver of the host a query for the TXT records of a name until it is
// answered or ctx ends: once over UDP, from a socket with the mark of the last SetHost. The
// answer counts nowhere.
func (s *Server) AskResolver(ctx context.Context, resolver netip.Addr, name string) error {
	q := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeTXT)
	_, err := upstream.Ask(ctx, s.forwards.Dialer(), netip.AddrPortFrom(resolver, dnsPort), q, askAgain)
	return err
}
