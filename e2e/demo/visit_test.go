package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

// dialled connects without a lab.
func (v *visit) dialled(t *testing.T, to string) {
	t.Helper()
	c, err := net.Dial("tcp", to)
	fatal.If(t, err)
	v.conn, v.read = c, bufio.NewReader(c)
}

func TestVisitInWords(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: fmt.Errorf("connect: %w", syscall.ECONNREFUSED)}
	late := &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	for _, c := range []struct {
		err              error
		took             time.Duration
		want             string
		rejected, silent bool
	}{
		{err: nil, took: 300 * time.Microsecond, want: "connected after 0.3 ms"},
		{err: refused, took: 2 * time.Millisecond, want: "rejected after 2.0 ms", rejected: true},
		{err: late, took: time.Second, want: "no answer within 500 ms", silent: true},
		{err: errors.New("odd"), want: "odd"},
	} {
		v := &visit{err: c.err, took: c.took, limit: patience}
		if got := v.String(); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
		if v.rejected() != c.rejected || v.silent() != c.silent {
			t.Errorf("%v: rejected %v, silent %v", c.err, v.rejected(), v.silent())
		}
	}
}

func TestGetOnNoConnection(t *testing.T) {
	v := &visit{err: syscall.ECONNREFUSED}
	if _, err := v.get(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("get: %v, want the reason that there is no connection", err)
	}
	v.close() // must not fail
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		40 * time.Microsecond:   "0.0 ms",
		1500 * time.Microsecond: "1.5 ms",
		500 * time.Millisecond:  "500 ms",
		2540 * time.Millisecond: "2.5 s",
	} {
		if got := brief(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
