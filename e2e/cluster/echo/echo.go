// Package echo is a server that says who it is and whom it sees, on TCP and UDP, and a client of
// the kernel's own echo server, ICMP.
package echo

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// Serve starts a TCP and a UDP server on a port of every address. The first line of a
// connection is answered by "NAME CLIENT" and the line, further ones by the line alone; "GET …"
// by an HTTP response. Each UDP packet is answered as a first line is.
func Serve(name string, port int) error {
	l, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
	if err != nil {
		return fmt.Errorf("serve port %d: %w", port, err)
	}
	go serveTCP(name, l)
	four, err := net.ListenPacket("udp4", fmt.Sprintf("0.0.0.0:%d", port))
	if err != nil {
		return fmt.Errorf("serve port %d: %w", port, err)
	}
	six, err := net.ListenPacket("udp6", fmt.Sprintf("[::]:%d", port))
	if err != nil {
		return fmt.Errorf("serve port %d: %w", port, err)
	}
	return ServeUDP(four, six, func(from net.Addr, said []byte) []byte {
		return append([]byte(name+" "+from.String()+"\n"), said...)
	})
}

func serveTCP(name string, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			answer(name, c)
		}()
	}
}

func answer(name string, c net.Conn) {
	r := bufio.NewReader(c)
	for first := true; ; first = false {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		greeting := name + " " + c.RemoteAddr().String() + "\n"
		if first && strings.HasPrefix(line, "GET ") {
			fmt.Fprintf(c, "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(greeting), greeting)
			return
		}
		if first {
			line = greeting + line
		}
		if _, err := c.Write([]byte(line)); err != nil {
			return
		}
	}
}

// ServeUDP answers each packet that comes to sockets of IPv4 and IPv6, until they are closed.
// It answers from the address that was dialled, which with a socket for all addresses has to be
// said for each packet.
func ServeUDP(four, six net.PacketConn, reply func(from net.Addr, said []byte) []byte) error {
	p4, p6 := ipv4.NewPacketConn(four), ipv6.NewPacketConn(six)
	if err := errors.Join(p4.SetControlMessage(ipv4.FlagDst, true), p6.SetControlMessage(ipv6.FlagDst, true)); err != nil {
		return fmt.Errorf("ask for destination addresses: %w", err)
	}
	go func() {
		buf := make([]byte, 2048)
		for {
			n, cm, from, err := p4.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && cm != nil {
				_, _ = p4.WriteTo(reply(from, buf[:n]), &ipv4.ControlMessage{Src: cm.Dst}, from)
			}
		}
	}()
	go func() {
		buf := make([]byte, 2048)
		for {
			n, cm, from, err := p6.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && cm != nil {
				_, _ = p6.WriteTo(reply(from, buf[:n]), &ipv6.ControlMessage{Src: cm.Dst}, from)
			}
		}
	}()
	return nil
}
