package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/wire"
)

// SetMark gives the packets of further sockets a mark (SO_MARK), 0 for none: the rules that intercept
// the node's own queries leave them. Sockets with another mark take no further queries. The mark
// needs CAP_NET_ADMIN or CAP_NET_RAW.
func (p *Pool) SetMark(mark uint32) {
	if p.mark.Swap(mark) == mark {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.ups {
		u.sockets.drain()
		u.conns.drain()
	}
}

// dialer makes sockets with the mark.
func (p *Pool) dialer() *net.Dialer { return Dialer(p.mark.Load()) }

// Dialer makes sockets whose packets have a mark, 0 for none.
func Dialer(mark uint32) *net.Dialer {
	d := &net.Dialer{}
	if mark != 0 {
		d.Control = func(_, _ string, c syscall.RawConn) (err error) {
			if failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)) }); failed != nil {
				return failed
			}
			return err
		}
	}
	return d
}

// drain has the sockets take no further queries.
func (p *socketPool) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sockets {
		s.draining = true
		s.closeIfDone()
	}
}

// drain has the connections take no further queries.
func (p *tcpPool) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.draining = true
		c.closeIfDone()
	}
}

// askAgain is after what time Ask sends a query again.
const askAgain = 500 * time.Millisecond

// Ask sends a query to an address over UDP from a socket of its own until a reply answers it, or ctx
// ends, whose error it returns. It asks no other upstream, and the reply counts nowhere.
func (p *Pool) Ask(ctx context.Context, to netip.AddrPort, q wire.Query) error {
	c, err := p.dialer().DialContext(ctx, "udp", to.String())
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	query, buf := q.PackWithoutEDNS(dns.Id()), make([]byte, mmsg.PacketBytes)
	for {
		if _, err := c.Write(query); err != nil && ctx.Err() == nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(askAgain))
		for {
			n, err := c.Read(buf)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return err
			}
			if wire.Answers(query, buf[:n], q.QuestionEnd()) {
				return nil
			}
		}
	}
}
