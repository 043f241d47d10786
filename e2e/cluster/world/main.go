// World is the outside of a cluster: a DNS server, and echo servers and a registry of images
// on every address that is local here.
//
//	world ZONE-FILE QUERY-LOG PORT…
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/e2e/cluster/echo"
)

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "world:", err)
		os.Exit(1)
	}
	select {}
}

func serve(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: world ZONE-FILE QUERY-LOG PORT…")
	}
	log, err := os.OpenFile(args[1], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open the query log: %w", err)
	}
	s := &server{zone: &zone{file: args[0]}, log: log}
	for _, addr := range []netip.Addr{cluster.Resolver4, cluster.Resolver6} {
		if err := s.serve(netip.AddrPortFrom(addr, 53).String()); err != nil {
			return err
		}
	}
	for _, word := range args[2:] {
		port, err := strconv.Atoi(word)
		if err != nil {
			return fmt.Errorf("port: %w", err)
		}
		if err := echo.Serve("world", port); err != nil {
			return err
		}
	}
	r, err := newRegistry()
	if err != nil {
		return err
	}
	images, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", fmt.Sprintf(":%d", cluster.RegistryPort))
	if err != nil {
		return fmt.Errorf("serve images: %w", err)
	}
	go (&http.Server{Handler: r, ReadHeaderTimeout: time.Minute}).Serve(images)
	return nil
}

// server answers DNS queries and writes each question to a log, as
// "NAME TYPE CLIENT".
type server struct {
	zone *zone

	mu  sync.Mutex
	log *os.File
}

func (s *server) serve(at string) error {
	packets, err := net.ListenPacket("udp", at)
	if err != nil {
		return fmt.Errorf("serve DNS: %w", err)
	}
	streams, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", at)
	if err != nil {
		return fmt.Errorf("serve DNS: %w", err)
	}
	for _, d := range []*dns.Server{{PacketConn: packets, Handler: s}, {Listener: streams, Handler: s}} {
		go func() {
			if err := d.ActivateAndServe(); err != nil {
				fmt.Fprintln(os.Stderr, "world:", err)
				os.Exit(1)
			}
		}()
	}
	return nil
}

// ServeDNS implements dns.Handler.
func (s *server) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	if len(query.Question) == 1 {
		q := query.Question[0]
		s.mu.Lock()
		fmt.Fprintf(s.log, "%s %s %s\n", q.Name, dns.TypeToString[q.Qtype], w.RemoteAddr())
		s.mu.Unlock()
	}
	_ = w.WriteMsg(s.zone.answer(query))
}
