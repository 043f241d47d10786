package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// selfQueryMost bounds a SelfQuery whose context has no end.
const selfQueryMost = time.Second

// SelfQuery asks the socket at addr, over UDP, for the reserved name
// alive.namegate.invalid and returns nil once it is answered. The query goes the
// way of every other: an error means that pods get no answers there.
func (s *Server) SelfQuery(ctx context.Context, addr netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, selfQueryMost)
	defer cancel()
	if err := selfQuery(ctx, addr); err != nil {
		return fmt.Errorf("query the proxy's own socket %s: %w", addr, err)
	}
	return nil
}

var errNotServing = errors.New("the reply does not say that it is serving")

func selfQuery(ctx context.Context, addr netip.AddrPort) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", addr.String())
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()

	a := ask{Question: Question{Name: aliveName, Type: dns.TypeTXT, Class: dns.ClassINET}}
	query := a.wire(randomID())
	if _, err := c.Write(query); err != nil {
		return err
	}
	buf := make([]byte, dns.MinMsgSize)
	for {
		n, err := c.Read(buf)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		m := read(query, buf[:n], a.questionEnd())
		if m == nil {
			continue // not ours
		}
		for _, rr := range m.Answer {
			if txt, ok := rr.(*dns.TXT); ok && len(txt.Txt) == 1 && txt.Txt[0] == aliveText {
				return nil
			}
		}
		return errNotServing
	}
}
