package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/lab"
)

const (
	// expire is the peer: the same with inUse: Expire.
	expire = "expire"

	// briefTTL are the times of a grant of which reconnects span many.
	briefTTL = "minSeconds: 1, maxSeconds: 2, graceSeconds: 1"
	// reconnects is how often the client that resolves once connects, to all addresses together.
	reconnects = 10_000
	// briefNames have an address of each family; briefEvery is how often the client connects to
	// each address.
	briefNames = 50
	briefEvery = 500 * time.Millisecond
)

func briefState(dataplane string) string {
	return fmt.Sprintf("%d reconnects, %s", reconnects, dataplane)
}

// reuse measures what it costs that addresses in use stay open, and whether they do.
func (b *bench) reuse() error {
	for _, dataplane := range []string{"iptables", byNftables} {
		if err := b.reuseOn(dataplane); err != nil {
			return fmt.Errorf("dataplane %s: %w", dataplane, err)
		}
	}
	return nil
}

// renewing is a node whose policies renew what is in use, or expire it.
type renewing struct {
	*node
	expires bool
	queries atomic.Int64 // the queries for used names that reached the upstream
	failed  atomic.Int64 // queries of pods that were repeated

	cost
	tried, lost int // of connections
}

// answer is scattered with the TTL to measure, and counts.
func (r *renewing) answer(q *dns.Msg) *dns.Msg {
	if strings.HasPrefix(q.Question[0].Name, usedPrefix) {
		r.queries.Add(1)
	}
	m := scattered(q)
	for _, rr := range m.Answer {
		rr.Header().Ttl = reuseTTL
	}
	return m
}

// usedPrefix begins the names that are used.
const usedPrefix = "used-"

func (b *bench) reuseOn(dataplane string) (failed error) {
	both := []*renewing{{}, {expires: true}}
	for _, r := range both {
		name := "renew-" + dataplane
		if r.expires {
			name = expire + "-" + dataplane
		}
		b.Note("reuse: building the node %s with %d pods", name, maxPods)
		n, err := b.newNode(name, clientNumber, false)
		if err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, n.remove()) }()
		n.dataplane, r.node = dataplane, n
		if err := b.guard(n, r.answer); err != nil {
			return err
		}
		if err := r.lives(briefTTL); err != nil {
			return err
		}
	}
	if err := each(both, b.measureLost); err != nil {
		return err
	}
	lost := figure.Figure{Name: "reuse.lost_connections", Value: float64(both[0].lost), Unit: "connections", State: briefState(dataplane)}
	b.Note("%s, %s: %d, %s %d", lost.Name, lost.State, both[0].lost, expire, both[1].lost)
	if err := b.Report(lost.Against(expire, float64(both[1].lost)), 0); err != nil {
		return err
	}
	return b.reuseCost(both, dataplane)
}

// each does something on all nodes at the same time.
func each(nodes []*renewing, do func(*renewing) error) error {
	var all sync.WaitGroup
	errs := make([]error, len(nodes))
	for i, r := range nodes {
		all.Go(func() { errs[i] = do(r) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// lives brings policies with the times of a grant into force.
func (r *renewing) lives(times string) error {
	ttl := "inUse: Renew"
	if r.expires {
		ttl = "inUse: Expire"
	}
	if times != "" {
		ttl = times + ", " + ttl
	}
	files := manifests(chosen(maxPods))
	files["policies.yaml"] = strings.ReplaceAll(files["policies.yaml"], "\nspec:\n", "\nspec:\n  ttl: {"+ttl+"}\n")
	if err := r.agent.Apply(files); err != nil {
		return err
	}
	return r.agent.WaitFor("the pods", func(s lab.Status) bool { return s.Enforcer.Selected == maxPods })
}

// used is an address that a pod uses, and the name that it resolves once.
type used struct {
	pod   int
	name  string
	qtype uint16
	at    time.Time // of the question
}

// connect connects as the pod, without a question, and ends the connection with a reset. It is
// called in the client's network namespace.
func (u *used) connect() error {
	a4, a6 := podAddrs(u.pod)
	source, destination := unix.Sockaddr(&unix.SockaddrInet4{Addr: a4.As4()}), netip.Addr{}
	switch rr := scattered(new(dns.Msg).SetQuestion(u.name, u.qtype)).Answer[0].(type) {
	case *dns.A:
		destination, _ = netip.AddrFromSlice(rr.A)
	case *dns.AAAA:
		source = &unix.SockaddrInet6{Addr: a6.As16()}
		destination, _ = netip.AddrFromSlice(rr.AAAA)
	}
	fd, at, err := socketTo(netip.AddrPortFrom(destination, sinkPort))
	if err != nil {
		return err
	}
	return errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1), unix.Bind(fd, source),
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience),
		unix.Connect(fd, at), unix.Close(fd))
}

// reconnect connects to used addresses in turn, to each once in every, until the context ends
// or it has connected count times. It leaves out what is not resolved yet.
func (r *renewing) reconnect(ctx context.Context, all []used, every time.Duration, count int) error {
	r.tried, r.lost = 0, 0
	return r.Pod(client).Do(func() error {
		begun := time.Now()
		for i := 0; r.tried < count && sleepUntil(ctx, begun.Add(time.Duration(i)*every/time.Duration(len(all)))); i++ {
			u := &all[i%len(all)]
			if time.Since(u.at) < askLimit {
				continue
			}
			if r.tried++; u.connect() != nil {
				r.lost++
			}
		}
		return nil
	})
}

// sleepUntil tells whether the context lasted until then.
func sleepUntil(ctx context.Context, at time.Time) bool {
	if d := time.Until(at); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// measureLost lets the client resolve names once, and connect to their addresses for many times
// of a grant.
func (b *bench) measureLost(r *renewing) error {
	c, err := r.asPod(r.client)
	if err != nil {
		return err
	}
	defer c.Close()
	var all []used
	for i := range 2 * briefNames {
		u := used{pod: r.client, name: fmt.Sprintf("%s%d.set-%d.bench.test.", usedPrefix, i/2, portSets/2), qtype: families[i%2]}
		if err := exchange(c, u.name, u.qtype); err != nil {
			return err
		}
		all = append(all, u)
	}
	if err := r.reconnect(b.Context, all, briefEvery, reconnects); err != nil {
		return err
	}
	return b.Context.Err()
}

var families = [2]uint16{dns.TypeA, dns.TypeAAAA}

// asPod opens a socket for questions of a pod.
func (n *node) asPod(pod int) (net.Conn, error) {
	a4, _ := podAddrs(pod)
	return n.Pod(client).DialFrom("udp", a4.String(), netip.AddrPortFrom(lab.Resolver4, 53).String(), askLimit)
}
