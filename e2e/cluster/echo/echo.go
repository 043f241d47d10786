// Package echo is a server that says who it is and whom it sees, on TCP and UDP.
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

// Serve starts a TCP and a UDP server on a port of every address, 0 is any. The
// first line of a connection is answered by "NAME CLIENT" and the line, further
// ones by the line alone; "GET …" by an HTTP response. Each UDP packet is
// answered as a first line is. Closing what it returns ends the servers.
func Serve(name string, port int) (*Server, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
	if err != nil {
		return nil, fmt.Errorf("serve port %d: %w", port, err)
	}
	s := &Server{Port: l.Addr().(*net.TCPAddr).Port, listener: l}
	go serveTCP(name, l)
	four, err := net.ListenPacket("udp4", fmt.Sprintf("0.0.0.0:%d", s.Port))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve port %d: %w", port, err), s.Close())
	}
	s.packets = append(s.packets, four)
	six, err := net.ListenPacket("udp6", fmt.Sprintf("[::]:%d", s.Port))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve port %d: %w", port, err), s.Close())
	}
	s.packets = append(s.packets, six)
	return s, errors.Join(serveUDP4(name, four), serveUDP6(name, six))
}

// Server is a running server.
type Server struct {
	// Port is the port that it serves.
	Port     int
	listener net.Listener
	packets  []net.PacketConn
}

// Close ends the server; connections that are open go on.
func (s *Server) Close() error {
	err := s.listener.Close()
	for _, p := range s.packets {
		err = errors.Join(err, p.Close())
	}
	return err
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

// The UDP servers answer from the address that was dialled, which with a socket
// for all addresses has to be said for each packet.
func serveUDP4(name string, c net.PacketConn) error {
	p := ipv4.NewPacketConn(c)
	if err := p.SetControlMessage(ipv4.FlagDst, true); err != nil {
		return fmt.Errorf("ask for destination addresses: %w", err)
	}
	go func() {
		buf := make([]byte, 2048)
		for {
			n, cm, from, err := p.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && cm != nil {
				_, _ = p.WriteTo(reply(name, from, buf[:n]), &ipv4.ControlMessage{Src: cm.Dst}, from)
			}
		}
	}()
	return nil
}

func serveUDP6(name string, c net.PacketConn) error {
	p := ipv6.NewPacketConn(c)
	if err := p.SetControlMessage(ipv6.FlagDst, true); err != nil {
		return fmt.Errorf("ask for destination addresses: %w", err)
	}
	go func() {
		buf := make([]byte, 2048)
		for {
			n, cm, from, err := p.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && cm != nil {
				_, _ = p.WriteTo(reply(name, from, buf[:n]), &ipv6.ControlMessage{Src: cm.Dst}, from)
			}
		}
	}()
	return nil
}

func reply(name string, from net.Addr, said []byte) []byte {
	return append([]byte(name+" "+from.String()+"\n"), said...)
}
