package upstream

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

// TestFarUpstreamIsNotDown: one whose every answer takes longer than the retransmit does
// not count as down for that.
func TestFarUpstreamIsNotDown(t *testing.T) {
	far := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		time.Sleep(retransmitAfter + 100*time.Millisecond)
		return upstreamtest.Honest("192.0.2.1")(q, tcp)
	})
	z := upstreamtest.Zone(far)
	z.Timeout, z.Deadline = 3*time.Second, 6*time.Second
	f, _ := newForward(t, z)
	u := f.routes.Load().first[0]
	u.rtt.Store(int64(retransmitAfter + 100*time.Millisecond))
	for range 3 {
		answersWith(t, f, "192.0.2.1")
		if u.down(2) {
			t.Error("it is down")
		}
	}
}

// TestLatencyEstimate follows the network's latency, not the latency of names.
func TestLatencyEstimate(t *testing.T) {
	u := newUpstream(loopback, new(Pool))
	defer u.close()
	for _, took := range []time.Duration{40, 30, 31, 500, 29} {
		u.answered(make([]byte, 12), 0, took*time.Millisecond)
	}
	diff.Equal(t, 29*time.Millisecond, time.Duration(u.rtt.Load()), "rtt")
	for range 500 {
		u.answered(make([]byte, 12), 0, 100*time.Millisecond)
	}
	if rtt := time.Duration(u.rtt.Load()); rtt < 95*time.Millisecond || rtt > 100*time.Millisecond {
		t.Errorf("rtt %v after it moved away", rtt)
	}
}

// TestProbeKeepsItsPace: a dead upstream is asked as often as the zone says.
func TestProbeKeepsItsPace(t *testing.T) {
	var probes atomic.Int64
	dead := upstreamtest.Start(t, func(q *dns.Msg, _ bool) [][]byte {
		if q.Question[0].Qtype == dns.TypeNS {
			probes.Add(1)
		}
		return nil
	})
	u := newUpstream(dead.Addr, new(Pool))
	defer u.close()
	began := time.Now()
	u.suspect(bounds{maxFails: 2, probe: 50 * time.Millisecond})
	fatal.Await(t, "it is not probed", func() bool { return probes.Load() >= 16 })
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("8 rounds of probes in %v", took)
	}
	if n := u.sockets.count(); n > int(probePatience/(50*time.Millisecond))+2 {
		t.Errorf("%d sockets", n)
	}
}

// TestMaxConcurrent: beyond the bound a query is not sent, and queries in flight are not
// affected.
func TestMaxConcurrent(t *testing.T) {
	gate, reached := make(chan struct{}), make(chan struct{}, 8)
	up := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		reached <- struct{}{}
		<-gate
		return upstreamtest.Honest("192.0.2.1")(q, tcp)
	})
	z := patient(up)
	z.MaxConcurrent = 2
	f, stats := newForward(t, z)
	done := make(chan error)
	for i := range 2 {
		go func() { _, err := f.resolve(askFor(t, fmt.Sprintf("n%d.test", i))); done <- err }()
		<-reached
	}
	for range 3 {
		if _, err := f.resolve(askFor(t, "more.test")); !errors.Is(err, errBusy) {
			t.Errorf("%v", err)
		}
	}
	close(gate)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	answersWith(t, f, "192.0.2.1")
	if n := up.UDP.Load(); n != 3 || stats.Shed.Load() != 3 {
		t.Errorf("%d queries, %d shed", n, stats.Shed.Load())
	}
}

// TestForceTCP: nothing goes over UDP, probes neither, and a try keeps its time.
func TestForceTCP(t *testing.T) {
	silentTCP := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		if tcp {
			<-t.Context().Done()
		}
		return nil
	})
	var asked atomic.Int64 // without probes, which a good upstream gets where the machine is slow
	good := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		if q.Question[0].Qtype == dns.TypeA {
			asked.Add(1)
		}
		return upstreamtest.Honest("192.0.2.1")(q, tcp)
	})
	z := upstreamtest.Zone(silentTCP, good)
	z.ForceTCP = true
	f, stats := newForward(t, z)
	answersWith(t, f, "192.0.2.1")
	fatal.Await(t, "it is not probed", func() bool { return silentTCP.TCP.Load() > 1 })
	if silentTCP.UDP.Load()+good.UDP.Load() != 0 || asked.Load() != 1 || stats.TCP.Load() != 2 {
		t.Errorf("UDP %d and %d, TCP %d, counted %d", silentTCP.UDP.Load(), good.UDP.Load(), asked.Load(), stats.TCP.Load())
	}
}
