package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

// closedPort is one on which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// served begins to serve on a port that is free, and returns it. Another program may take a port
// before: then it is another one.
func served(t *testing.T, serve func(port string) error) (port string) {
	t.Helper()
	var err error
	for range 20 {
		port = closedPort(t)
		if err = serve(port); err == nil {
			return port
		}
	}
	require.NoError(t, err)
	return port
}

// told runs a command line that prints JSON.
func told[T any](t *testing.T, words ...string) (v T) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = w
	err = run(append([]string{"/agnhost"}, words...))
	os.Stdout = stdout
	require.NoError(t, err)
	require.NoError(t, w.Close())
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &v), string(text))
	return v
}

// TestConnect: the words for the errors are those that the upstream suite looks for.
func TestConnect(t *testing.T) {
	port := served(t, func(port string) error {
		return errors.Join(serveTCP(port, "name"), serveUDP("127.0.0.1:"+port, "name"))
	})
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	for _, c := range []struct{ protocol, to, says string }{
		{"tcp", "127.0.0.1:" + port, ""},
		{"udp", "127.0.0.1:" + port, ""},
		{"tcp", "127.0.0.1:" + closedPort(t), "REFUSED"},
		{"udp", "127.0.0.1:" + closedPort(t), "REFUSED"},
		{"udp", silent.LocalAddr().String(), "TIMEOUT"},
		{"tcp", "127.0.0.1", "OTHER"},
	} {
		timeout := "1m"
		if c.says == "TIMEOUT" {
			timeout = "300ms"
		}
		err := run([]string{"/bin/bash", "-c", "/agnhost connect --timeout=" + timeout + " --protocol=" + c.protocol + " " + c.to})
		if c.says == "" {
			require.NoErrorf(t, err, "%s to %s", c.protocol, c.to)
			continue
		}
		require.ErrorContainsf(t, err, c.says+":", "%s to %s", c.protocol, c.to)
	}
	require.Error(t, run([]string{"/agnhost", "no-such-command"}))
}

func TestSCTP(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("raw sockets need root")
	}
	require.NoError(t, serveSCTP("19003"))
	for _, at := range []string{"127.0.0.1", "[::1]"} {
		require.NoError(t, dialSCTP(at+":19003", time.Minute))
		require.ErrorContains(t, classify(dialSCTP(at+":19004", 300*time.Millisecond)), "TIMEOUT:")
	}
}

// TestSCTPPackets: packets are read as they were written, and shortened ones not at all.
func TestSCTPPackets(t *testing.T) {
	p := sctpPacket{from: 1, to: 2, tag: 3, chunk: sctpInit, body: initBody(4)}
	b := p.bytes()
	got, ok := readSCTP(b)
	require.True(t, ok)
	require.Equal(t, p, got)
	for n := range b {
		_, ok := readSCTP(b[:n])
		require.False(t, ok, "%d bytes", n)
	}
	ack, ok := got.answer()
	require.True(t, ok)
	require.Equal(t, []any{uint16(2), uint16(1), uint32(4), byte(sctpInitAck)}, []any{ack.from, ack.to, ack.tag, ack.chunk})
	_, ok = sctpPacket{chunk: sctpAbort}.answer()
	require.False(t, ok)
}

func TestHold(t *testing.T) {
	port := served(t, func(port string) error {
		return accept(port, func(c net.Conn) {
			fmt.Fprintln(c, "a greeting")
			buf := make([]byte, 64)
			for range 3 { // lines, then the end
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				_, _ = c.Write(buf[:n])
			}
		})
	})
	file := filepath.Join(t.TempDir(), "state")
	require.NoError(t, state(nil, []string{file}), "before the connection")
	require.NoError(t, run([]string{"/agnhost", "holding", "127.0.0.1:" + port, file}))
	h := told[held](t, "state", file)
	require.Equal(t, 3, h.Rounds)
	require.NotEmpty(t, h.Error)
}

func TestSweep(t *testing.T) {
	open, closed := served(t, func(port string) error { return serveTCP(port, "") }), "127.0.0.1:"+closedPort(t)
	failed := told[map[string]string](t, "sweep", "--timeout", "1m", "127.0.0.1:"+open, closed)
	require.Len(t, failed, 1)
	require.Contains(t, failed[closed], "REFUSED:")
}

func TestZone(t *testing.T) {
	dir := t.TempDir()
	z := &zone{file: filepath.Join(dir, "zone"), records: filepath.Join(dir, "records")}
	var text strings.Builder
	text.WriteString("a.test. 5 A 192.0.2.1\nalias.test. 5 CNAME hop.test.\nhop.test. 5 CNAME a.test.\n*.wild.test. 5 A 192.0.2.2\nwild.test. 5 A 192.0.2.3\nloop.test. 5 CNAME loop.test.\n")
	for i := range 100 {
		fmt.Fprintf(&text, "many.test. 5 A 198.51.100.%d\n", i)
	}
	require.NoError(t, os.WriteFile(z.file, []byte(text.String()), 0o600))
	ask := func(name string) (string, []string) {
		r := z.answer(new(dns.Msg).SetQuestion(name, dns.TypeA))
		var all []string
		for _, rr := range r.Answer {
			all = append(all, dns.Field(rr, 1))
		}
		return dns.RcodeToString[r.Rcode], all
	}
	for _, c := range []struct {
		name, rcode string
		records     []string
	}{
		{"A.test.", "NOERROR", []string{"192.0.2.1"}},
		{"alias.test.", "NOERROR", []string{"hop.test.", "a.test.", "192.0.2.1"}},
		{"one.wild.test.", "NOERROR", []string{"192.0.2.2"}},
		{"two.one.wild.test.", "NOERROR", []string{"192.0.2.2"}},
		{"wild.test.", "NOERROR", []string{"192.0.2.3"}},
		{"loop.test.", "NOERROR", slices.Repeat([]string{"loop.test."}, 8)},
		{"missing.test.", "NXDOMAIN", nil},
	} {
		rcode, records := ask(c.name)
		require.Equal(t, c.rcode, rcode, c.name)
		require.Equal(t, c.records, records, c.name)
	}
	_, many := ask("many.test.")
	require.Len(t, many, 100)
	require.NoError(t, os.WriteFile(z.records, []byte("a.test. 5 A 192.0.2.9\n"), 0o600))
	_, records := ask("alias.test.")
	require.Equal(t, []string{"hop.test.", "a.test.", "192.0.2.9"}, records, "after a change")
	require.NoError(t, os.WriteFile(z.records, []byte("a.test. 5 A no-address\n"), 0o600))
	rcode, _ := ask("a.test.")
	require.Equal(t, "SERVFAIL", rcode, "of a broken file")
}
