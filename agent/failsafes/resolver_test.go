package failsafes

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/agent/failsafes/hostfiles"
	"github.com/namegate/namegate/testkit/fatal"
)

// serve answers queries on an address of loopback, over UDP and TCP, and returns its port.
func serve(t *testing.T, handler dns.HandlerFunc) string {
	t.Helper()
	var l net.Listener
	var p net.PacketConn
	fatal.Await(t, "a port that is free over TCP and UDP", func() bool {
		var err error
		l, err = net.Listen("tcp", "127.0.0.1:0")
		fatal.If(t, err)
		if p, err = net.ListenPacket("udp", l.Addr().String()); err != nil {
			_ = l.Close()
		}
		return err == nil
	})
	for _, s := range []*dns.Server{{Listener: l, Handler: handler}, {PacketConn: p, Handler: handler}} {
		up := make(chan struct{})
		s.NotifyStartedFunc = func() { close(up) }
		go func() { _ = s.ActivateAndServe() }()
		<-up
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	fatal.If(t, err)
	return port
}

func TestHostResolver(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	records := map[string]string{
		"api.test. A": "api.test. 300 CNAME lb.test.\nlb.test. 20 A 192.0.2.10\nlb.test. 60 A 192.0.2.11", "api.test. AAAA": "api.test. 300 CNAME lb.test.\nlb.test. 40 AAAA 2001:db8::10",
		"short.corp.test. A": "short.corp.test. 60 A 192.0.2.12", "half.test. A": "half.test. 300 A 192.0.2.13", "big.test. A": "big.test. 60 A 192.0.2.14", "empty.test. A": "",
	}
	port := serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		name, kind := q.Question[0].Name, dns.TypeToString[q.Question[0].Qtype]
		_, overUDP := w.RemoteAddr().(*net.UDPAddr)
		mu.Lock()
		asked = append(asked, name+" "+kind)
		mu.Unlock()
		reply := new(dns.Msg).SetReply(q)
		text, there := records[name+" "+kind]
		switch {
		case strings.HasPrefix(name, "failing.") || name == "half.test." && kind == "AAAA":
			reply.Rcode = dns.RcodeServerFailure
		case name == "big.test." && overUDP:
			reply.Truncated, text = true, ""
		case !there && name != "empty.test.":
			reply.Rcode = dns.RcodeNameError
		}
		for line := range strings.Lines(text) {
			rr, err := dns.NewRR(line)
			if err != nil {
				t.Error(err)
			}
			reply.Answer = append(reply.Answer, rr)
		}
		_ = w.WriteMsg(reply)
	})
	r := NewHostResolver(fstest.MapFS{
		"etc/resolv.conf": file("nameserver 127.0.0.1\nsearch corp.test\n"), "etc/hosts": file("192.0.2.20 cluster-endpoint # kubeadm\n"),
	}, &net.Dialer{})
	r.port = port
	for _, c := range []struct {
		name string
		want string
		ttl  time.Duration
	}{
		{"api.test", "192.0.2.10 192.0.2.11 2001:db8::10", 20 * time.Second},
		{"api.test.", "192.0.2.10 192.0.2.11 2001:db8::10", 20 * time.Second},
		{"short", "192.0.2.12", time.Minute},
		{"Cluster-Endpoint", "192.0.2.20", hostsTTL},
		{"half.test", "192.0.2.13", halfTTL},
		{"big.test", "192.0.2.14", time.Minute},
		{"empty.test", "! the name has no addresses", 0},
		{"nowhere", "! the name has no addresses", 0},
		{"failing.test", "! the resolver 127.0.0.1 answers SERVFAIL", 0},
	} {
		addrs, ttl, err := r.Lookup(context.Background(), c.name)
		var words []string
		for _, a := range addrs {
			words = append(words, a.String())
		}
		got := strings.Join(words, " ")
		if err != nil {
			got, ttl = "! "+err.Error(), 0
		}
		if got != c.want || ttl != c.ttl {
			t.Errorf("%s: %s for %v, want %s for %v", c.name, got, ttl, c.want, c.ttl)
		}
		if strings.Contains(c.want, "no addresses") != errors.Is(err, ErrNoAddresses) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if slices.ContainsFunc(asked, func(q string) bool { return strings.HasPrefix(strings.ToLower(q), "cluster-endpoint") }) {
		t.Errorf("a name of /etc/hosts was asked for: %q", asked)
	}
}

// TestHostResolverAsksALinkLocalServer by the interface that resolv.conf names.
func TestHostResolverAsksALinkLocalServer(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]bool{}
	refuse := func(_, address string, _ syscall.RawConn) error {
		mu.Lock()
		defer mu.Unlock()
		asked[address] = true
		return syscall.ENETUNREACH
	}
	r := NewHostResolver(fstest.MapFS{"etc/resolv.conf": file("nameserver fe80::1%lo\n")}, &net.Dialer{Control: refuse})
	if _, _, err := r.Lookup(context.Background(), "api.test"); err == nil || !asked["[fe80::1%lo]:53"] {
		t.Errorf("asked %v, %v", asked, err)
	}
}

// TestHostResolverAsksTheNext: a server that does not answer is passed over.
func TestHostResolverAsksTheNext(t *testing.T) {
	port := serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			rr, _ := dns.NewRR(q.Question[0].Name + " 60 A 192.0.2.10")
			reply.Answer = append(reply.Answer, rr)
		}
		_ = w.WriteMsg(reply)
	})
	r := NewHostResolver(fstest.MapFS{"etc/resolv.conf": file("nameserver ::1\nnameserver 127.0.0.1\n")}, &net.Dialer{})
	r.port = port // nothing listens on ::1
	addrs, _, err := r.Lookup(context.Background(), "api.test")
	fatal.If(t, err)
	if !slices.Equal(addrs, []netip.Addr{netip.MustParseAddr("192.0.2.10")}) {
		t.Errorf("%v", addrs)
	}
	r = NewHostResolver(fstest.MapFS{"etc/resolv.conf": file("nameserver ::1\n")}, &net.Dialer{})
	r.port = port
	if _, _, err := r.Lookup(context.Background(), "api.test"); err == nil || err.Error() != "no answer from the resolver ::1" {
		t.Errorf("%v", err)
	}
}

func TestCandidates(t *testing.T) {
	c := hostfiles.ResolvConf{Search: []string{"corp.test", "lab.test."}, Ndots: 2}
	for name, want := range map[string]string{
		"a": "a.corp.test. a.lab.test. a.", "a.b": "a.b.corp.test. a.b.lab.test. a.b.", "a.b.c": "a.b.c. a.b.c.corp.test. a.b.c.lab.test.", "a.": "a.",
	} {
		if got := strings.Join(candidates(name, c), " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
