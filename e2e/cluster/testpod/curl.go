package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/namegate/namegate/e2e/cluster/echo"
	"github.com/namegate/namegate/e2e/cluster/probe"
)

// curl connects to the host of a URL, the last of its arguments, as far as the echo servers of
// the world allow: the error is that of the connection.
func curl(args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	u, err := url.Parse(args[len(args)-1])
	if err != nil {
		return fmt.Errorf("curl: %w", err)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if d := probe.Dial(context.Background(), "tcp", net.JoinHostPort(u.Hostname(), port)); d.Class != probe.OK {
		return fmt.Errorf("curl: %s: %s", d.Class, d.Error)
	}
	return nil
}

// ping waits for an echo reply of a host, the last of its arguments.
func ping(args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	to, err := net.ResolveIPAddr("ip", args[len(args)-1])
	if err != nil {
		return fmt.Errorf("ping: failed: %w", err)
	}
	addr, _ := netip.AddrFromSlice(to.IP)
	addr = addr.Unmap()
	c, err := net.ListenPacket(echo.PingNetwork(addr), "")
	if err == nil {
		err = errors.Join(c.SetDeadline(time.Now().Add(probe.Patience)), echo.Ping(c, addr), c.Close())
	}
	if err != nil {
		return fmt.Errorf("ping: %s: %w", probe.Classify(err), err)
	}
	return nil
}
