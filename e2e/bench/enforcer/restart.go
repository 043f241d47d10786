package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/process"
)

const (
	// maxGrants is how many grants a restart finds in the kernel.
	maxGrants = 100_000
	// fullGrants is the bound of all grants of a node, by default.
	fullGrants = 262_144
)

// namesPerPod gives so many grants with both families.
func namesPerPod(grants int) int { return (grants + 2*maxPods - 1) / maxPods / 2 }

// restarts is how often the agent is killed and started again.
const restarts = 5

var grantsState, fullState = stateOf(maxGrants), stateOf(fullGrants)

func stateOf(grants int) string { return fmt.Sprintf("%d pods, %d grants", maxPods, grants) }

// dataplaneStates are the dataplanes that are measured, with what a state says of each.
var dataplaneStates = []struct{ dataplane, state string }{{"iptables", ""}, {byNftables, ", dataplane nftables"}}

// restart measures an agent with all pods selected and many grants: its memory, and
// how long its successor takes to be ready after it was killed.
func (b *bench) restart() error { return b.restartWith(maxGrants) }

// full is restart with as many grants as the node may have.
func (b *bench) full() error { return b.restartWith(fullGrants) }

func (b *bench) restartWith(grants int) error {
	for _, d := range dataplaneStates {
		if err := b.restartOn(d.dataplane, d.state, grants); err != nil {
			return fmt.Errorf("dataplane %s: %w", d.dataplane, err)
		}
	}
	return nil
}

func (b *bench) restartOn(dataplane, state string, grants int) (err error) {
	b.Note("restart: building a node with %d pods, dataplane %s", maxPods, dataplane)
	n, err := b.newNode("restart-"+dataplane, clientNumber, false)
	if err != nil {
		return err
	}
	n.dataplane = dataplane
	defer func() { err = errors.Join(err, n.remove()) }()
	if err := b.guard(n, scattered); err != nil {
		return err
	}
	if err := n.choose(chosen(maxPods)); err != nil {
		return err
	}
	b.Note("restart: %d pods are selected", maxPods)
	if err := b.memory(n, fmt.Sprintf("%d pods", maxPods)+state); err != nil {
		return err
	}
	began := time.Now()
	if err := n.fill(namesPerPod(grants)); err != nil {
		return err
	}
	b.Note("restart: %d names of %d pods asked in %.1f s", 2*namesPerPod(grants)*maxPods, maxPods, time.Since(began).Seconds())
	if err := b.memory(n, stateOf(grants)+state); err != nil {
		return err
	}
	had, err := n.agent.Status()
	if err != nil {
		return err
	}
	// Near the bound a pod has no more than what all leave free.
	if had.Enforcer.Grants < grants-fullGrants/maxPods {
		return fmt.Errorf("the agent has %d grants, not %d", had.Enforcer.Grants, grants)
	}
	ready := figure.Series{}
	for range restarts {
		r, err := b.again(n, had.Enforcer.Grants)
		if err != nil {
			return err
		}
		b.Note("restart: ready after %.0f ms; others took %.0f %% of a core", r.Value, r.Others*100)
		ready = append(ready, r)
	}
	if err := b.memory(n, stateOf(grants)+", restarted"+state); err != nil {
		return err
	}
	return b.Report(figure.Figure{Name: "restart.ready_ms", Value: ready.Median(), Unit: "ms", State: stateOf(grants) + state}, ready.Others())
}

// again kills the agent and starts the next, which is ready when it intercepts and
// knows the grants.
func (b *bench) again(n *node, grants int) (figure.Reading, error) {
	if err := n.agent.Stop(syscall.SIGKILL); err != nil {
		return figure.Reading{}, err
	}
	before, err := n.spent()
	if err != nil {
		return figure.Reading{}, err
	}
	began := time.Now()
	if err := n.agent.Start(); err != nil {
		return figure.Reading{}, err
	}
	took := time.Since(began)
	after, err := n.spent()
	if err != nil {
		return figure.Reading{}, err
	}
	pid, err := process.Listener(n.agent.Socket())
	if err != nil {
		return figure.Reading{}, err
	}
	agent, err := process.Whole(pid)
	if err != nil {
		return figure.Reading{}, err
	}
	s, err := n.agent.Status()
	if err != nil {
		return figure.Reading{}, err
	}
	if s.Enforcer.Grants < grants {
		return figure.Reading{}, fmt.Errorf("the agent knows %d grants after a restart, it had %d", s.Enforcer.Grants, grants)
	}
	others := (after.busy - before.busy - (after.ours - before.ours) - agent).Seconds() / took.Seconds()
	return figure.Reading{Value: took.Seconds() * 1e3, Others: max(0, others)}, nil
}

// memory reports the agent's.
func (b *bench) memory(n *node, state string) error {
	pid, err := process.Listener(n.agent.Socket())
	if err != nil {
		return err
	}
	size, err := process.RSS(pid)
	if err != nil {
		return err
	}
	b.Note("agent.rss_mib, %s: %.1f", state, float64(size)/(1<<20))
	return b.Report(figure.Figure{Name: "agent.rss_mib", Value: float64(size) / (1 << 20), Unit: "MiB", State: state}, 0)
}

// impersonate lets the client's host have the addresses of all pods, so that it can ask
// as each of them.
func (n *node) impersonate() error {
	var here, there strings.Builder
	for i := range maxPods {
		if i == n.client {
			continue
		}
		a4, a6 := podAddrs(i)
		fmt.Fprintf(&here, "route add %[1]s/32 dev %[3]s\nroute add %[2]s/128 dev %[3]s\n", a4, a6, n.Pod(client).Iface)
		fmt.Fprintf(&there, "addr add %s/32 dev eth0\naddr add %s/128 dev eth0 nodad\n", a4, a6)
	}
	return errors.Join(batch(n.Node, here.String()), batch(n.Pod(client).Host, there.String()))
}

// fill lets every pod ask for so many names.
func (n *node) fill(names int) error {
	var next atomic.Int64
	var clients sync.WaitGroup
	errs := make([]error, 8)
	for k := range errs {
		clients.Go(func() {
			for i := int(next.Add(1)) - 1; i < maxPods && errs[k] == nil; i = int(next.Add(1)) - 1 {
				errs[k] = n.askAll(i, names)
			}
		})
	}
	clients.Wait()
	return errors.Join(errs...)
}

// askAll asks for so many names of one pod, from its IPv4 address.
func (n *node) askAll(pod, names int) error {
	c, err := n.asPod(pod)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range names {
		name := fmt.Sprintf("h%d-p%d.set-%d.bench.test.", i, pod, i%portSets)
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			if err := exchange(c, name, qtype); err != nil {
				return err
			}
		}
	}
	return nil
}

// exchange asks once over a socket.
func exchange(c net.Conn, name string, qtype uint16) error {
	conn := &dns.Conn{Conn: c}
	if err := errors.Join(c.SetDeadline(time.Now().Add(askLimit)), conn.WriteMsg(new(dns.Msg).SetQuestion(name, qtype))); err != nil {
		return err
	}
	r, err := conn.ReadMsg()
	if err != nil {
		return fmt.Errorf("ask for %s: %w", name, err)
	}
	if r.Rcode != dns.RcodeSuccess || len(r.Answer) == 0 {
		return fmt.Errorf("ask for %s: %s with %d records", name, dns.RcodeToString[r.Rcode], len(r.Answer))
	}
	return nil
}

// scattered gives every name an address of its own.
func scattered(q *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(q)
	name := q.Question[0].Name
	h := fnv.New64a()
	h.Write([]byte(name))
	sum := h.Sum(nil)
	header := dns.RR_Header{Name: name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET, Ttl: 3600}
	switch q.Question[0].Qtype {
	case dns.TypeA:
		a := binary.BigEndian.AppendUint32(nil, 198<<24|18<<16|binary.BigEndian.Uint32(sum)&0x1ffff)
		r.Answer = []dns.RR{&dns.A{Hdr: header, A: a}}
	case dns.TypeAAAA:
		a := netip.MustParseAddr("2001:db8:6::").As16()
		copy(a[8:], sum)
		r.Answer = []dns.RR{&dns.AAAA{Hdr: header, AAAA: a[:]}}
	}
	return r
}
