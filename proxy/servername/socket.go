package servername

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// What the kernel says of a connection, TCP_INFO.
	tcpEstablished, tcpClose = 1, 7
	tcpTimestamps            = 1
)

// onSocket runs f with the descriptor of a connection.
func onSocket(c *net.TCPConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Control(func(fd uintptr) { result = f(int(fd)) })
	return errors.Join(err, result)
}

// original returns the destination that a connection had before the kernel led it here.
func original(c *net.TCPConn) (to netip.AddrPort, err error) {
	err = onSocket(c, func(fd int) error {
		if addrPort(c.LocalAddr()).Addr().Is4() {
			// The structure that begins with 16 bytes has room for a sockaddr_in.
			sa, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
			if err != nil {
				return fmt.Errorf("SO_ORIGINAL_DST: %w", err)
			}
			to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa.Multiaddr[4:8])), binary.BigEndian.Uint16(sa.Multiaddr[2:]))
			return nil
		}
		// The structure that begins with a sockaddr_in6.
		sa, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
		if err != nil {
			return fmt.Errorf("IP6T_SO_ORIGINAL_DST: %w", err)
		}
		var port [2]byte
		binary.NativeEndian.PutUint16(port[:], sa.Addr.Port)
		to = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr.Addr), binary.BigEndian.Uint16(port[:]))
		return nil
	})
	return to, err
}

// reset closes a connection with a reset.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// prepare bounds what the kernel keeps of a connection, and has urgent bytes arrive among the others, where transfer
// finds them.
func prepare(c *net.TCPConn, buffer int) {
	_ = onSocket(c, func(fd int) error {
		for option, value := range map[int]int{unix.SO_RCVBUFFORCE: buffer, unix.SO_SNDBUFFORCE: buffer / 2, unix.SO_OOBINLINE: 1} {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, value)
		}
		return nil
	})
}

// arrived reads what a connection has received, and times out at once where that is nothing.
type arrived struct{ *net.TCPConn }

func (a arrived) Read(b []byte) (n int, err error) {
	failed := onSocket(a.TCPConn, func(fd int) error {
		if n, err = unix.Read(fd, b); errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			err = os.ErrDeadlineExceeded
		} else if n == 0 && err == nil {
			err = io.EOF
		}
		n = max(n, 0)
		return nil
	})
	return n, errors.Join(failed, err)
}

func tcpInfo(c *net.TCPConn) (info *unix.TCPInfo, err error) {
	err = onSocket(c, func(fd int) (err error) {
		info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		return err
	})
	return info, err
}

// awaitClosed waits until a connection that both sides have ended is closed: its peer has acknowledged everything.
func awaitClosed(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		return err != nil || info.State == tcpClose
	})
}

func write(to *net.TCPConn, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := to.Write(b)
	return err
}

// errNoPort is the end of the local ports.
var errNoPort = errors.New("no local port is free for the destination")

// dial connects to a destination from one of the ports. A port that waits (TIME_WAIT) serves again, since it is bound
// before: with TCP timestamps, the kernel lets one be taken over at once.
func (p *ports) dial(ctx context.Context, judge Judge, to netip.AddrPort) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialTimeout, ControlContext: func(ctx context.Context, _, _ string, raw syscall.RawConn) error {
		var port uint16
		var bound error
		if err := raw.Control(func(fd uintptr) { port, bound = p.bind(int(fd), to.Addr()) }); err != nil {
			return err
		}
		if bound != nil {
			return bound
		}
		return judge.Dialling(ctx, netip.AddrPortFrom(anyAddress(to.Addr()), port), to)
	}}
	for range portTries {
		nc, err := d.DialContext(ctx, "tcp", to.String())
		if err == nil {
			return nc.(*net.TCPConn), nil
		}
		if !errors.Is(err, unix.EADDRNOTAVAIL) {
			return nil, err
		}
	}
	return nil, errNoPort
}

func (p *ports) bind(fd int, family netip.Addr) (port uint16, err error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if p.mark != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, p.mark); err != nil {
			return 0, err
		}
	}
	for range portTries {
		port = p.pick()
		var at unix.Sockaddr = &unix.SockaddrInet4{Port: int(port)}
		if family.Is6() {
			at = &unix.SockaddrInet6{Port: int(port)}
		}
		if err = unix.Bind(fd, at); !errors.Is(err, unix.EADDRINUSE) {
			return port, err
		}
	}
	return 0, errNoPort
}

func anyAddress(family netip.Addr) netip.Addr {
	if family.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
