package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	// reuseTTL are the times of a grant of which reconnects span many.
	reuseTTL = "\nspec:\n  ttl: {minSeconds: 1, maxSeconds: 2, graceSeconds: 1, inUse: Renew}\n"
	// reconnects is how often the client that resolves once connects, to all addresses together.
	reconnects = 10_000
	// reuseNames have an address of each family; reuseEvery is how often the client connects to
	// each address.
	reuseNames = 50
	reuseEvery = 500 * time.Millisecond
)

var reuseState = fmt.Sprintf("%d reconnects", reconnects)

// reuse measures whether addresses in use stay open: the client resolves names once, and
// connects to their addresses for many times of a grant.
func (b *bench) reuse(dataplane, state string) {
	n := b.newNode("reuse-", dataplane, true)
	b.guard(n, scattered, chosen(1))
	files := manifests(chosen(1))
	files["policies.yaml"] = strings.ReplaceAll(files["policies.yaml"], "\nspec:\n", reuseTTL)
	fatal.If(b, n.agent.Apply(files))
	var used []netip.AddrPort
	for i := range 2 * reuseNames {
		name, qtype := fmt.Sprintf("used-%d.set-%d.bench.test.", i/2, portSets/2), []uint16{dns.TypeA, dns.TypeAAAA}[i%2]
		b.Resolve(n.Pod(client).Host, resolver, name, qtype)
		used = append(used, addressOf(name, qtype))
	}
	lost := 0
	err := n.Pod(client).Do(func() error {
		begun := time.Now()
		for i := range reconnects {
			select {
			case <-b.Context.Done():
				return b.Context.Err()
			case <-time.After(time.Until(begun.Add(time.Duration(i) * reuseEvery / time.Duration(len(used))))):
			}
			if connectOnce(used[i%len(used)]) != nil {
				lost++
			}
		}
		return nil
	})
	fatal.If(b, err)
	f := figure.Figure{Name: "reuse.lost_connections", Value: float64(lost), Unit: "connections", State: reuseState + state}
	b.Note("%s, %s: %d", f.Name, f.State, lost)
	b.Report(f, 0)
}

// addressOf is the address that a name has, with a port that the client may connect to.
func addressOf(name string, qtype uint16) netip.AddrPort {
	var ip []byte
	switch rr := scattered(new(dns.Msg).SetQuestion(name, qtype)).Answer[0].(type) {
	case *dns.A:
		ip = rr.A
	case *dns.AAAA:
		ip = rr.AAAA
	}
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a, sinkPort)
}

// connectOnce opens a connection and ends it with a reset, so that no port of the client waits.
// Go's poller is not asked: a call less for each.
func connectOnce(at netip.AddrPort) error {
	fd, to, err := socketTo(at)
	if err != nil {
		return err
	}
	return errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience),
		unix.Connect(fd, to), unix.Close(fd))
}
