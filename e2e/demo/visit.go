package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

const (
	// askLimit is how long a pod waits for DNS, connectLimit for a connection.
	askLimit     = 20 * time.Second
	connectLimit = 20 * time.Second
	// patience is how long it waits where silence is what is expected.
	patience = 500 * time.Millisecond
)

// ask asks the world's resolver from a pod, as the pod's own libraries would,
// and returns the addresses and how long it took.
func ask(pod *lab.Pod, name string, qtype uint16, limit time.Duration) ([]netip.Addr, time.Duration, error) {
	begun := time.Now()
	r, err := pod.Ask("udp", netip.AddrPortFrom(lab.Resolver4, 53), name, qtype, limit)
	took := time.Since(begun)
	if err == nil && r.Rcode != dns.RcodeSuccess {
		err = errors.New(dns.RcodeToString[r.Rcode])
	}
	if err != nil {
		return nil, took, fmt.Errorf("ask for %s: %w", name, err)
	}
	return lab.Addresses(r), took, nil
}

// visit is one connection to a web server, or the try.
type visit struct {
	conn net.Conn
	read *bufio.Reader
	host string
	// took is how long it took until the connection stood or failed, limit how
	// long it might have.
	took, limit time.Duration
	err         error
}

// open connects from a pod to port 80 of an address. from is the source
// address, the pod's own if it is not valid; with another, silence is expected.
func open(pod *lab.Pod, from netip.Addr, to, host string) *visit {
	v := &visit{host: host, limit: connectLimit}
	if from.IsValid() {
		v.limit = patience
	}
	begun := time.Now()
	v.err = pod.Do(func() error {
		d := net.Dialer{}
		if from.IsValid() {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		}
		ctx, cancel := context.WithTimeout(context.Background(), v.limit)
		defer cancel()
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(to, "80"))
		if err == nil {
			v.conn, v.read = c, bufio.NewReader(c)
		}
		return err
	})
	v.took = time.Since(begun)
	return v
}

// get asks for a page on the connection and returns its text.
func (v *visit) get() (string, error) {
	if v.err != nil {
		return "", v.err
	}
	if err := v.conn.SetDeadline(time.Now().Add(connectLimit)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(v.conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", v.host); err != nil {
		return "", err
	}
	r, err := http.ReadResponse(v.read, nil)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return strings.TrimSpace(string(body)), err
}

func (v *visit) close() {
	if v.conn != nil {
		_ = v.conn.Close()
	}
}

// rejected tells whether the connection was refused with an answer, silent
// whether nothing came back.
func (v *visit) rejected() bool { return errors.Is(v.err, syscall.ECONNREFUSED) }

func (v *visit) silent() bool {
	var timeout net.Error
	return errors.As(v.err, &timeout) && timeout.Timeout()
}

// String says in words what became of it.
func (v *visit) String() string {
	switch {
	case v.err == nil:
		return "connected after " + brief(v.took)
	case v.rejected():
		return "rejected after " + brief(v.took)
	case v.silent():
		return "no answer within " + brief(v.limit)
	}
	return v.err.Error()
}

// brief prints a duration for people.
func brief(d time.Duration) string {
	switch {
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
