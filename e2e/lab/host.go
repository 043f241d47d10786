// Package lab builds hosts as network namespaces: a node, pods behind it and an
// outside world with DNS and echo servers, and runs the real agent on the node.
// Nothing in it has a route to the machine's own network.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/testkit/netns"
)

// Host is one network namespace.
type Host struct {
	// Name is the namespace's, for `ip netns exec`.
	Name string
	file *os.File
}

// newHost makes a namespace with its loopback up.
func newHost(name string) (*Host, error) {
	if err := run("ip", "netns", "add", name); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join("/run/netns", name))
	if err != nil {
		return nil, fmt.Errorf("open namespace %s: %w", name, err)
	}
	h := &Host{Name: name, file: f}
	// Addresses are ours alone: duplicate address detection would only delay.
	if err := h.Sysctl("net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.all.accept_dad=0"); err != nil {
		return h, err
	}
	return h, h.IP("link", "set", "lo", "up")
}

func (h *Host) remove() error {
	h.file.Close()
	_ = os.Remove(XtablesLock(h.Name)) // there if a program took it
	return run("ip", "netns", "del", h.Name)
}

// Do runs f with its thread in the host's namespace. Sockets that f opens and
// processes that it starts stay there.
func (h *Host) Do(f func() error) error { return netns.Do(h.Name, h.file, f) }

// IP runs the program ip in the host.
func (h *Host) IP(args ...string) error {
	return run("ip", append([]string{"-n", h.Name}, args...)...)
}

// command is a program of the host's. Legacy iptables ends with an error while
// another host's has the machine's lock, so each host has a lock of its own.
func (h *Host) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+XtablesLock(h.Name))
	return cmd
}

// XtablesLock returns the lock file of iptables for programs that a Host with a
// name runs.
func XtablesLock(host string) string { return "/run/xtables-" + host + ".lock" }

// Run runs a program in the host and returns what it printed.
func (h *Host) Run(program string, args ...string) (string, error) {
	var out []byte
	err := h.Do(func() error {
		var err error
		out, err = h.command(program, args...).CombinedOutput()
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s: %s %s: %w: %s", h.Name, program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), err
}

// Pipe runs a program in the host that reads a text.
func (h *Host) Pipe(text, program string, args ...string) error {
	var out []byte
	err := h.Do(func() error {
		var err error
		cmd := h.command(program, args...)
		cmd.Stdin = strings.NewReader(text)
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %s: %w: %s", h.Name, program, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Zone returns the number of an interface, for link-local addresses: names are
// looked up in whatever namespace the program began in.
func (h *Host) Zone(dev string) (string, error) {
	var index int
	err := h.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		index, err = ifindex(fd, dev)
		return err
	})
	return strconv.Itoa(index), err
}

// Sysctl sets kernel parameters, written as name=value.
func (h *Host) Sysctl(settings ...string) error {
	return h.Do(func() error { return netns.Sysctl(settings...) })
}

// Dial connects from the host.
func (h *Host) Dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	return h.DialFrom(network, "", addr, timeout)
}

// DialFrom is Dial from a source ADDRESS or ADDRESS:PORT of the caller's, which need not be the
// host's own; with "" the kernel picks one. Without a port UDP goes from the next of udpPorts.
func (h *Host) DialFrom(network, from, addr string, timeout time.Duration) (net.Conn, error) {
	var c net.Conn
	var d net.Dialer
	var at netip.AddrPort
	if from != "" {
		var err error
		at, err = netip.ParseAddrPort(from)
		if a, errAddr := netip.ParseAddr(from); errAddr == nil {
			at, err = netip.AddrPortFrom(a, 0), nil
		}
		if err != nil {
			return nil, err
		}
		d.LocalAddr = net.TCPAddrFromAddrPort(at)
		d.Control = anySource
	}
	err := h.Do(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		for {
			if strings.HasPrefix(network, "udp") {
				local := net.UDPAddr{IP: at.Addr().AsSlice(), Zone: at.Addr().Zone(), Port: int(at.Port())}
				if local.Port == 0 {
					local.Port = int(udpFirst + udpPorts.Add(1)%udpCount)
				}
				d.LocalAddr = &local
			}
			var err error
			c, err = d.DialContext(ctx, network, addr)
			if at.Port() != 0 || !errors.Is(err, unix.EADDRINUSE) {
				return err
			}
		}
	})
	return c, err
}

// udpPorts counts the source ports of UDP sockets. A port that is used again within the time of a
// connection tracking entry makes the socket a part of the connection of an earlier one, which
// rules let go on. The range is Linux's default ip_local_port_range.
var udpPorts atomic.Uint32

const (
	udpFirst = 32768
	udpCount = 60999 - udpFirst + 1
)

// Listen opens a TCP listener on the host.
func (h *Host) Listen(addr string) (net.Listener, error) {
	var l net.Listener
	err := h.Do(func() error {
		var err error
		l, err = (&net.ListenConfig{Control: reuse}).Listen(context.Background(), "tcp", addr)
		return err
	})
	return l, err
}

// ListenPacket opens a UDP or raw IP socket on the host.
func (h *Host) ListenPacket(network, addr string) (net.PacketConn, error) {
	var c net.PacketConn
	err := h.Do(func() error {
		var err error
		c, err = (&net.ListenConfig{}).ListenPacket(context.Background(), network, addr)
		return err
	})
	return c, err
}

// anySource lets a socket send from an address that its host does not have, as a
// program with NET_RAW can.
func anySource(network, _ string, c syscall.RawConn) error {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if strings.HasSuffix(network, "6") {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); e != nil {
		return e
	}
	return errors.Join(err, reuse(network, "", c))
}

func reuse(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }); e != nil {
		return e
	}
	return err
}

func run(program string, args ...string) error {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
