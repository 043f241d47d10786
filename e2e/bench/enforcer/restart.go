package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/bench/dnsperf"
	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/process"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	// maxGrants is how many grants a restart finds in the kernel, of both families: each pod
	// asks for namesPerPod names.
	maxGrants   = 100_000
	namesPerPod = maxGrants / maxPods / 2
	// restarts is how often the agent is killed and started again.
	restarts = 5
)

var (
	nodeState   = fmt.Sprintf("%d pods", maxPods)
	grantsState = fmt.Sprintf("%d pods, %d grants", maxPods, maxGrants)
)

// restart measures an agent with all pods selected and many grants: its memory, and
// how long its successor takes to be ready after it was killed.
func (b *bench) restart(dataplane, state string) {
	n := b.newNode("restart-", dataplane, false)
	b.guard(n, scattered, chosen(maxPods))
	b.memory(n, nodeState+state)
	fatal.If(b, b.fill(n))
	b.memory(n, grantsState+state)
	had, err := n.agent.Status()
	fatal.If(b, err)
	if had.Enforcer.Grants < maxGrants*99/100 { // some names share an address
		b.Fatal(fmt.Errorf("the agent has %d grants, not %d", had.Enforcer.Grants, maxGrants))
	}
	var ready figure.Series
	for range restarts {
		r := b.again(n, had.Enforcer.Grants)
		b.Note("restart: ready after %.0f ms; others took %.0f %% of a core", r.Value, r.Others*100)
		ready = append(ready, r)
	}
	b.Report(figure.Figure{Name: "restart.ready_ms", Value: ready.Median(), Unit: "ms", State: grantsState + state}, ready.Others())
}

// again kills the agent and starts the next, which is ready when it intercepts and
// knows the grants.
func (b *bench) again(n *node, grants int) (r figure.Reading) {
	fatal.If(b, n.agent.Stop(syscall.SIGKILL))
	m := b.NewMeter(0, n.sink.PID())
	began := time.Now()
	fatal.If(b, n.agent.Start())
	r.Value = time.Since(began).Seconds() * 1e3
	pid, err := process.Listener(n.agent.Socket())
	fatal.If(b, err)
	agent, err := process.Whole(pid)
	fatal.If(b, err)
	_, r.Others = m.End(agent)
	s, err := n.agent.Status()
	if err == nil && s.Enforcer.Grants < grants {
		err = fmt.Errorf("the agent knows %d grants after a restart, it had %d", s.Enforcer.Grants, grants)
	}
	fatal.If(b, err)
	return r
}

// memory reports the agent's.
func (b *bench) memory(n *node, state string) {
	pid, err := process.Listener(n.agent.Socket())
	fatal.If(b, err)
	size, err := process.RSS(pid)
	fatal.If(b, err)
	b.Note("agent.rss_mib, %s: %.1f", state, size)
	b.Report(figure.Figure{Name: "agent.rss_mib", Value: size, Unit: "MiB", State: state}, 0)
}

// impersonate lets the client's host have the addresses of all pods, so that it can ask
// as each of them.
func (n *node) impersonate() error {
	var here, there strings.Builder
	for i := range maxPods {
		if i == clientNumber {
			continue
		}
		a4, a6 := podAddrs(i)
		fmt.Fprintf(&here, "route add %[1]s/32 dev %[3]s\nroute add %[2]s/128 dev %[3]s\n", a4, a6, n.Pod(client).Iface)
		fmt.Fprintf(&there, "addr add %s/32 dev eth0\naddr add %s/128 dev eth0 nodad\n", a4, a6)
	}
	return errors.Join(n.Node.Pipe(here.String(), "ip", "-batch", "-"), n.Pod(client).Pipe(there.String(), "ip", "-batch", "-"))
}

// fillers is how many pods ask at a time.
const fillers = 4

// fill lets every pod ask for its names.
func (b *bench) fill(n *node) error {
	var next atomic.Int64
	var clients sync.WaitGroup
	errs := make([]error, fillers)
	for k := range errs {
		clients.Go(func() {
			for i := int(next.Add(1)) - 1; i < maxPods && errs[k] == nil; i = int(next.Add(1)) - 1 {
				errs[k] = b.fillPod(n, i)
			}
		})
	}
	clients.Wait()
	return errors.Join(errs...)
}

func (b *bench) fillPod(n *node, pod int) error {
	from, _ := podAddrs(pod)
	_, err := b.asPod(n, from, namesPerPod, 0, func(i int) string { return fmt.Sprintf("h%d-p%d.set-%d.bench.test", i, pod, i%portSets) })
	return err
}

// asPod asks for the addresses of so many names as a pod, as fast as the agent answers or at a
// rate.
func (b *bench) asPod(n *node, from netip.Addr, names, rate int, name func(i int) string) (r dnsperf.Result, err error) {
	file := filepath.Join(n.dir, from.String())
	if err := dnsperf.WriteQuestions(file, names, rate == 0, name); err != nil {
		return r, err
	}
	run := dnsperf.Run{Server: resolver, From: from, File: file, Clients: 1, Outstanding: 20}
	if rate > 0 {
		run.Rate, run.Outstanding, run.Each = rate, names, true
	}
	return run.On(b.Context, n.Pod(client).Host)
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
