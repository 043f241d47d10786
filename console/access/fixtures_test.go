package access

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/testkit/accesstest"
	"github.com/namegate/namegate/testkit/fatal"
)

var silent = slog.New(slog.DiscardHandler)

// newServer makes a server on a free port of the loopback.
func newServer(t *testing.T, api *accesstest.API, now func() time.Time) *Server {
	t.Helper()
	s, err := New(Options{
		Client: api, Namespace: accesstest.Namespace, DaemonSet: "namegate", Node: "n1", Log: silent, Now: now,
		Addresses: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
	})
	fatal.If(t, err)
	return s
}

// statusOf returns the status of a refusal, 0 if the error is none.
func statusOf(err error) int {
	var r *console.Refusal
	if errors.As(err, &r) {
		return r.Status
	}
	return 0
}
