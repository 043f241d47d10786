package main

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
)

// meter counts what one agent's clients ask of the API server.
type meter struct {
	reads, watches, leases, writes atomic.Int64
	// received are bytes of the connections, as TLS carries them.
	received atomic.Int64
}

// count is what a meter has counted, or a difference of two.
type count struct{ reads, watches, leases, writes, received int64 }

func (m *meter) count() count {
	return count{m.reads.Load(), m.watches.Load(), m.leases.Load(), m.writes.Load(), m.received.Load()}
}

func (c count) minus(o count) count {
	return count{c.reads - o.reads, c.watches - o.watches, c.leases - o.leases, c.writes - o.writes, c.received - o.received}
}

// requests is the number of all requests.
func (c count) requests() int64 { return c.reads + c.watches + c.leases + c.writes }

// observe counts a request: a watch, a read, a write of a Lease, or another write.
func (m *meter) observe(r *http.Request) {
	switch lease := strings.Contains(r.URL.Path, "/leases"); {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		m.watches.Add(1)
	case r.Method == http.MethodGet:
		m.reads.Add(1)
	case lease:
		m.leases.Add(1)
	default:
		m.writes.Add(1)
	}
}

// metered counts requests.
type metered struct {
	next http.RoundTripper
	m    *meter
}

// RoundTrip implements http.RoundTripper.
func (t metered) RoundTrip(r *http.Request) (*http.Response, error) {
	t.m.observe(r)
	return t.next.RoundTrip(r)
}

// counted counts the bytes that a connection receives.
type counted struct {
	net.Conn
	m *meter
}

// Read implements net.Conn.
func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.m.received.Add(int64(n))
	return n, err
}
