package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/proxy/mmsg"
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
		u.conns.mu.Lock()
		u.conns.drain()
		u.conns.mu.Unlock()
	}
}

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

// Dialer makes sockets with the mark.
func (p *Pool) Dialer() *net.Dialer { return Dialer(p.mark.Load()) }

// Ask sends a query over UDP, from a socket of its own and at intervals, until a reply has its id or
// ctx ends. It has to answer the question: a query that is sent back is none. The reply counts nowhere.
func Ask(ctx context.Context, d *net.Dialer, to netip.AddrPort, query *dns.Msg, interval time.Duration) (reply *dns.Msg, err error) {
	client := dns.Client{Dialer: d, Timeout: interval, UDPSize: mmsg.PacketBytes}
	conn, err := client.DialContext(ctx, to.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	for {
		reply, _, err = client.ExchangeWithConnContext(ctx, query, conn)
		switch {
		case err == nil && (!reply.Response || !slices.Equal(reply.Question, query.Question)):
			return nil, fmt.Errorf("the packet from %s answers another question, or none", to)
		case err == nil:
			return reply, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return nil, err
		}
	}
}
