package grants

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

// acknowledging is a kernel that acknowledges everything and holds nothing.
type acknowledging struct{ sets }

func (*acknowledging) ApplyGrants(ops []dataplane.GrantOp) {
	for i := range ops {
		ops[i].Err = nil
	}
}

// waiter is a Callback for which a benchmark waits.
type waiter struct{ done chan error }

func (w *waiter) Granted(err error, _ bool) { w.done <- err }
func (*waiter) Waits() bool                 { return true }

// BenchmarkGrantThen: one forwarded answer after the other, of new addresses and of addresses that are
// open and get a later deadline.
func BenchmarkGrantThen(b *testing.B) {
	for _, renewed := range []bool{false, true} {
		b.Run(map[bool]string{false: "new", true: "renewed"}[renewed], func(b *testing.B) {
			w, pods := crowd(b, 100)
			w.table.cfg.Kernel = &acknowledging{}
			count := b.N
			if renewed {
				count = min(count, 10_000)
			}
			all, cb := granttest.Fresh(w.snap, pods, count, w.Now()), &waiter{make(chan error, 1)}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				g := all[i%count]
				g[0].Deadline = g[0].Deadline.Add(time.Minute)
				w.table.GrantThen(g, cb)
				if err := <-cb.done; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkManyNames reports what the table holds after a day of names: each is asked once, and has an
// address of its own.
func BenchmarkManyNames(b *testing.B) {
	const pods, names, each = 250, 1_000_000, 100
	for b.Loop() {
		w := newNode(b)
		var all []policy.Pod
		for i := range pods {
			all = append(all, pod(fmt.Sprintf("p%d", i), "allow"))
		}
		w.apply(all, pol("allow", "tcp/443 *.example.net", "udp/443 *.example.net", "tcp/80 *.example.net"))
		w.table.cfg.Kernel = &acknowledging{}
		before := heapBytes()
		for i := 0; i < names; i += each {
			v := w.snap.ViewOf(all[i/each%pods].PodRef)
			var gs []policy.Grant
			for j := range each {
				var a [4]byte
				binary.BigEndian.PutUint32(a[:], 0x0a000000+uint32(i+j))
				for _, ports := range v.PortSets() {
					gs = append(gs, policy.Grant{Pod: v.Pod.PodRef, View: v, Name: dns(fmt.Sprintf("host-%d.example.net", i+j)), Ports: ports,
						Addrs: []netip.Addr{netip.AddrFrom4(a)}, Deadline: w.Now().Add(time.Minute), By: []string{"shop/allow *.example.net"}})
				}
			}
			fatal.If(b, granttest.Grant(context.Background(), w.table, gs))
			w.expire(time.Second / 10)
		}
		w.expire(time.Hour)
		if n := w.table.Figures().Grants; n > 0 {
			b.Fatalf("%d grants are left", n)
		}
		b.ReportMetric(float64(heapBytes()-before), "heap-B")
		runtime.KeepAlive(w)
	}
}

// BenchmarkGrantBytes reports what the table holds of each grant: of 250 pods, each of which opened the two
// addresses of each of 200 names.
func BenchmarkGrantBytes(b *testing.B) {
	for b.Loop() {
		n, held := manyGrants(b)
		n.table.cfg.Kernel = &acknowledging{}
		before := heapBytes()
		for key, part := range held {
			var gs []policy.Grant
			for i := range part {
				gs = append(gs, policy.Grant{Pod: key.Pod, View: n.snap.ViewOf(key.Pod), Name: dns(fmt.Sprintf("host-%d.example.net", i)), Ports: https,
					Addrs: []netip.Addr{part[i].Addr}, Deadline: n.Now().Add(time.Hour), By: []string{"shop/allow *.example.net"}})
			}
			fatal.If(b, granttest.Grant(context.Background(), n.table, gs))
		}
		b.ReportMetric(float64(heapBytes()-before)/float64(n.table.Figures().Grants), "heap-B/grant")
		runtime.KeepAlive(n)
		runtime.KeepAlive(held)
	}
}

// BenchmarkAdopt: the next agent takes in the grants of a node.
func BenchmarkAdopt(b *testing.B) {
	n, held := manyGrants(b)
	b.ReportAllocs()
	for b.Loop() {
		n.restart()
		n.table.Adopt(held, n.Now())
	}
}

// manyGrants returns a node with 250 pods, and 200 grants in each of their sets.
func manyGrants(b *testing.B) (n *node, held map[dataplane.GrantSet][]dataplane.Grant) {
	n, pods := crowd(b, 250)
	held = map[dataplane.GrantSet][]dataplane.Grant{}
	for k, p := range pods {
		for i := range 200 {
			for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(k), byte(i)}), netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 14: byte(k), 15: byte(i)})} {
				set := grantSet(p.PodRef, https, a.Is6())
				held[set] = append(held[set], dataplane.Grant{Addr: a, Timeout: time.Hour,
					Comment: fmt.Sprintf("host-%d.example.net until=%d shop/allow *.example.net", i, n.Now().Unix()+3600)})
			}
		}
	}
	return n, held
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
