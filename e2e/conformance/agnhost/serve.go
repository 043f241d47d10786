package main

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
)

// serveTCP answers each connection on a port with a text.
func serveTCP(port, text string) error {
	return accept(port, func(c net.Conn) { fmt.Fprint(c, text) })
}

func accept(port string, serve func(net.Conn)) error {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return fmt.Errorf("serve TCP: %w", err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return nil
}

// serveUDP answers each packet to an address with a text.
func serveUDP(at, text string) error {
	c, err := net.ListenPacket("udp", at)
	if err != nil {
		return fmt.Errorf("serve UDP: %w", err)
	}
	go func() {
		buf := make([]byte, 2048)
		for {
			_, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(text), from)
		}
	}()
	return nil
}

func serveHostname(flags *flag.FlagSet, args []string) error {
	tcp, udp := flags.Bool("tcp", false, ""), flags.Bool("udp", false, "")
	http, port := flags.Bool("http", true, ""), flags.String("port", "9376", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	name, err := os.Hostname()
	if err == nil && (*tcp || *http) {
		err = serveTCP(*port, name)
	}
	if err == nil && *udp {
		err = serveUDP(":"+*port, name)
	}
	if err != nil {
		return err
	}
	return wait()
}

func netexec(flags *flag.FlagSet, args []string) error {
	http, udp := flags.String("http-port", "8080", ""), flags.String("udp-port", "8081", "")
	addrs := flags.String("udp-listen-addresses", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	name, err := os.Hostname()
	if err == nil {
		err = serveTCP(*http, name)
	}
	for _, addr := range strings.Split(*addrs, ",") {
		if err == nil {
			err = serveUDP(net.JoinHostPort(addr, *udp), name)
		}
	}
	if err != nil {
		return err
	}
	return wait()
}

func porter(*flag.FlagSet, []string) error {
	for _, v := range os.Environ() {
		name, text, _ := strings.Cut(v, "=")
		var err error
		if port, ok := strings.CutPrefix(name, "SERVE_TCP_PORT_"); ok {
			err = serveTCP(port, text)
		} else if port, ok := strings.CutPrefix(name, "SERVE_UDP_PORT_"); ok {
			err = serveUDP(":"+port, text)
		} else if port, ok := strings.CutPrefix(name, "SERVE_SCTP_PORT_"); ok {
			err = serveSCTP(port)
		}
		if err != nil {
			return err
		}
	}
	return wait()
}

// echo sends each line of a TCP connection back.
func echo(flags *flag.FlagSet, args []string) error {
	var ports list
	flags.Var(&ports, "port", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, port := range ports {
		if err := accept(port, func(c net.Conn) {
			for lines := bufio.NewScanner(c); lines.Scan(); {
				fmt.Fprintln(c, lines.Text())
			}
		}); err != nil {
			return err
		}
	}
	return wait()
}
