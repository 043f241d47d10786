package layout_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// listener is a stage, and what the rules of its tables log. Nothing admits
// anything: selected pods are denied all they begin.
type listener struct {
	*stage
	state layout.State

	// markers is how many packets loggedSoFar has sent.
	markers uint16

	mu    sync.Mutex
	heard []nflog.Packet
}

// translations are what another program does to destinations, as kube-proxy does.
const translations = `
table ip others { chain pre { type nat hook prerouting priority -100;
	ip daddr 203.0.113.10 tcp dport 443 dnat to 192.0.2.9:80
	ip daddr 203.0.113.10 udp dport 443 dnat to 192.0.2.9:80
	ip daddr 203.0.113.10 meta l4proto icmp dnat to 192.0.2.9
	ip daddr 203.0.113.11 tcp dport 443 dnat to 10.1.0.7:80
	ip daddr 203.0.113.11 udp dport 443 dnat to 10.1.0.7:80
}
}
table ip6 others { chain pre { type nat hook prerouting priority -100;
	ip6 daddr 2001:db8:a::10 tcp dport 443 dnat to [2001:db8:b::9]:80
	ip6 daddr 2001:db8:a::10 udp dport 443 dnat to [2001:db8:b::9]:80
	ip6 daddr 2001:db8:a::11 tcp dport 443 dnat to [fd00:1::7]:80
	ip6 daddr 2001:db8:a::11 udp dport 443 dnat to [fd00:1::7]:80
}
}`

// listen builds the node: the pods a and b are selected, b's packets dropped, c and d
// are audited.
func listen(t *testing.T, network lab.Network) *listener {
	t.Helper()
	w := &listener{stage: newStage(t, network, []string{"a", "b", "c", "d"}, 80)}
	w.pipe(translations)
	a, b := w.addrs("a"), w.addrs("b")
	w.state = layout.State{Selected: slices.Concat(a, b), Pods: [][]netip.Addr{a, b}, Dropped: b, Audited: slices.Concat(w.addrs("c"), w.addrs("d"))}
	w.apply(w.state)
	var log *nflog.Kernel
	w.do(func(context.Context) (err error) { log, err = nflog.Open(layout.LogGroup, slog.Default()); return err })
	w.hear(log)
	return w
}

// hear collects the log until the test's end.
func (w *listener) hear(log *nflog.Kernel) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- log.Packets(ctx, func(p nflog.Packet) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.heard = append(w.heard, p)
		})
	}()
	w.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		log.Close()
	})
	fatal.Await(w.t, "the group of the log is bound", func() bool {
		bound, err := w.Node.Run("cat", "/proc/net/netfilter/nfnetlink_log")
		fields := strings.Fields(bound)
		return err == nil && len(fields) > 0 && fields[0] == fmt.Sprint(layout.LogGroup)
	})
}

// logged is the log of a pod since the last call, as words, once it has n packets. More
// are returned too.
func (w *listener) logged(pod string, n int) (out []string) {
	w.t.Helper()
	fatal.Await(w.t, fmt.Sprintf("%d packets of %s are logged", n, pod), func() bool { out = w.log(pod); return len(out) >= n })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = nil
	return out
}

// loggedSoFar is the log of a pod since the last call of logged, as words: all that the kernel
// logged before the packet of another pod that loggedSoFar sends.
func (w *listener) loggedSoFar(pod string) []string {
	w.t.Helper()
	other := map[string]string{"a": "b", "b": "a", "c": "b", "d": "b"}[pod]
	w.markers++
	to := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.99"), w.markers)
	c, err := w.Pod(other).Dial("udp4", to.String(), lab.Limit)
	fatal.If(w.t, err)
	defer c.Close()
	_, err = c.Write([]byte("x"))
	fatal.If(w.t, err)
	fatal.Await(w.t, "the last line of the log", func() bool { return slices.Contains(w.log(other), "namegate denied udp "+to.String()) })
	return w.log(pod)
}

// log is what was heard of a pod, as words.
func (w *listener) log(pod string) (out []string) {
	p := w.Pod(pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.heard {
		if h.Source == p.Addr4 || h.Source == p.Addr6 {
			out = append(out, words(h))
		}
	}
	return out
}

func words(p nflog.Packet) string {
	return fmt.Sprintf("%s%s %s", p.Prefix, policy.Protocol(p.Protocol), p.Destination)
}

func (w *listener) denied() uint64 {
	w.t.Helper()
	var n uint64
	w.do(func(context.Context) (err error) { n, err = w.tables.Denied(); return err })
	return n
}

// floods sends UDP packets from a pod to an address, each to the next port.
func (w *listener) floods(pod string, count int) (took time.Duration) {
	w.t.Helper()
	c, err := w.Pod(pod).ListenPacket("udp4", "0.0.0.0:0")
	fatal.If(w.t, err)
	defer c.Close()
	began := time.Now()
	for i := range count {
		_, err := c.WriteTo([]byte("x"), net4(netip.AddrPortFrom(worldAddr(7, false), uint16(1000+i))))
		fatal.If(w.t, err)
	}
	return time.Since(began)
}

func (w *listener) same(what string, got []string, want ...string) {
	w.t.Helper()
	diff.Error(w.t, want, got, what)
}

// onEachListener runs a test on every network.
func onEachListener(t *testing.T, f func(t *testing.T, w *listener)) {
	onEach(t, func(t *testing.T, n lab.Network) { f(t, listen(t, n)) })
}

// TestDeniedIsLoggedAsItWasDialled: a packet that another program translated is logged twice,
// last with the dialled destination, from which the reply comes.
func TestDeniedIsLoggedAsItWasDialled(t *testing.T) {
	t.Parallel()
	onEachListener(t, func(t *testing.T, w *listener) {
		for _, to := range []string{"198.51.100.1:80", "[2001:db8::1]:80", "203.0.113.10:443", "[2001:db8:a::10]:443"} {
			w.expect("a", "tcp", to, lab.Refused)
			w.expect("a", "udp", to, lab.Refused)
		}
		w.expect("a", "icmp", "198.51.100.1:0", lab.Silent)
		w.expect("a", "icmp", "203.0.113.10:0", lab.Silent)
		w.expect("a", "icmp", "[2001:db8::1]:0", lab.Silent)
		w.same("logged of a", w.logged("a", 16),
			"namegate denied tcp 198.51.100.1:80", "namegate denied udp 198.51.100.1:80",
			"namegate denied tcp [2001:db8::1]:80", "namegate denied udp [2001:db8::1]:80",
			"namegate reached tcp 192.0.2.9:80", "namegate denied tcp 203.0.113.10:443", "namegate reached udp 192.0.2.9:80", "namegate denied udp 203.0.113.10:443",
			"namegate reached tcp [2001:db8:b::9]:80", "namegate denied tcp [2001:db8:a::10]:443",
			"namegate reached udp [2001:db8:b::9]:80", "namegate denied udp [2001:db8:a::10]:443",
			"namegate denied 1 198.51.100.1:0", "namegate reached 1 192.0.2.9:0", "namegate denied 1 203.0.113.10:0", "namegate denied 58 [2001:db8::1]:0")
		diff.Equal(t, 11, w.denied(), "packets were denied")
		w.expect("b", "tcp", "203.0.113.10:443", lab.Silent)
		w.expect("b", "udp", "[2001:db8:a::10]:443", lab.Silent)
		// A segment that is dropped is sent again after a second.
		seen := map[string]bool{}
		ofB := slices.DeleteFunc(w.logged("b", 4), func(line string) bool {
			again := seen[line]
			seen[line] = true
			return again
		})
		w.same("logged of b", ofB, "namegate reached tcp 192.0.2.9:80", "namegate denied tcp 203.0.113.10:443",
			"namegate reached udp [2001:db8:b::9]:80", "namegate denied udp [2001:db8:a::10]:443")
	})
}

// TestServiceOfANeighbourIsRefused: on a bridge too, and when nothing is logged any more.
func TestServiceOfANeighbourIsRefused(t *testing.T) {
	t.Parallel()
	onEachListener(t, func(t *testing.T, w *listener) {
		for range 3 {
			w.expect("a", "tcp", "203.0.113.11:443", lab.Refused)
			w.expect("a", "udp", "203.0.113.11:443", lab.Refused)
			w.expect("a", "tcp", "[2001:db8:a::11]:443", lab.Refused)
			w.expect("a", "udp", "[2001:db8:a::11]:443", lab.Refused)
		}
		w.same("logged of a", w.logged("a", 24)[:8],
			"namegate reached tcp 10.1.0.7:80", "namegate denied tcp 203.0.113.11:443", "namegate reached udp 10.1.0.7:80", "namegate denied udp 203.0.113.11:443",
			"namegate reached tcp [fd00:1::7]:80", "namegate denied tcp [2001:db8:a::11]:443", "namegate reached udp [fd00:1::7]:80", "namegate denied udp [2001:db8:a::11]:443")
		w.pipe("insert rule inet namegate tell return")
		w.expect("a", "tcp", "203.0.113.11:443", lab.Refused)
	})
}

// TestNoisyPodDoesNotSuppressOthers: one pod's packets are counted and not all logged, by its
// burst and its share; another's are.
func TestNoisyPodDoesNotSuppressOthers(t *testing.T) {
	t.Parallel()
	w := listen(t, lab.Routed)
	const flood = 2000
	began := time.Now()
	w.floods("b", flood)
	w.expect("a", "tcp", "198.51.100.1:80", lab.Refused)
	fatal.Await(t, "each packet is denied", func() bool { return w.denied() > flood })
	took := time.Since(began)
	diff.Equal(t, flood+1, w.denied(), "packets were denied")
	got := len(w.loggedSoFar("b"))
	if most := 100 + int(20*took.Seconds()) + 1; got < 100 || got > most {
		t.Errorf("%d packets in %v were logged, want 100 to %d", got, took, most)
	}
	w.same("logged of a", w.log("a"), "namegate denied tcp 198.51.100.1:80", "namegate denied udp 198.51.100.99:1")
}

// TestAuditedIsLoggedOnceAndPasses: the same connection is logged once, of all protocols
// and before any translation, and every one is answered.
func TestAuditedIsLoggedOnceAndPasses(t *testing.T) {
	t.Parallel()
	onEachListener(t, func(t *testing.T, w *listener) {
		for range 3 {
			for _, to := range []string{"198.51.100.1:80", "[2001:db8::1]:80", "203.0.113.10:443", "[2001:db8:a::10]:443"} {
				w.expect("c", "tcp", to, lab.Answered)
				w.expect("c", "udp", to, lab.Answered)
			}
			w.expect("c", "icmp", "203.0.113.10:0", lab.Answered)
			w.expect("c", "icmp", "[2001:db8::1]:0", lab.Answered)
		}
		w.same("logged of c", w.logged("c", 10),
			"namegate audited tcp 198.51.100.1:80", "namegate audited udp 198.51.100.1:80",
			"namegate audited tcp [2001:db8::1]:80", "namegate audited udp [2001:db8::1]:80",
			"namegate audited tcp 203.0.113.10:443", "namegate audited udp 203.0.113.10:443",
			"namegate audited tcp [2001:db8:a::10]:443", "namegate audited udp [2001:db8:a::10]:443",
			"namegate audited 1 203.0.113.10:0", "namegate audited 58 [2001:db8::1]:0")
		diff.Equal(t, 0, w.denied(), "packets of pods that nothing selects were denied")
		if c, d := w.loggedSoFar("a"), w.loggedSoFar("d"); len(c)+len(d) != 0 {
			t.Errorf("log lines of pods that did nothing: %v, %v", c, d)
		}
	})
}

// TestTablesAreIntactWhileTheyFill: the kernel's own counters and dynamic elements are no
// deviations, and a later agent keeps them.
func TestTablesAreIntactWhileTheyFill(t *testing.T) {
	t.Parallel()
	w := listen(t, lab.Routed)
	w.expect("a", "tcp", "198.51.100.1:80", lab.Refused)
	w.expect("c", "udp", "198.51.100.1:80", lab.Answered)
	w.expect("c", "icmp", "198.51.100.1:80", lab.Answered)
	w.do(func(ctx context.Context) error {
		out, err := exec.Command("nft", "list", "table", "inet", layout.TableName).CombinedOutput()
		for _, want := range []string{w.Pod("a").Addr4.String() + " limit rate 20/second", "198.51.100.1 . udp . 80 . 0x00000001 expires", "198.51.100.1 . icmp . 0 . 0x00000001 expires", "packets 1 "} {
			diff.Has(t, want, string(out), "the tables")
		}
		verified(t, w.tables, w.state)
		later := laterAgent(t)
		if err := errors.Join(err, later.Setup(ctx), later.Apply(ctx, layout.State{})); err != nil {
			return err
		}
		if n, err := later.Denied(); n != 1 || err != nil {
			t.Errorf("a later agent reads %d, %v; want 1", n, err)
		}
		err = later.Remove(ctx)
		if n, failed := later.Denied(); n != 0 || failed != nil {
			t.Errorf("%d packets were denied by tables that are gone: %v", n, failed)
		}
		return err
	})
}

// TestInvalidIsDeniedUnlogged: the end of a connection that the kernel has forgotten is
// no connection.
func TestInvalidIsDeniedUnlogged(t *testing.T) {
	t.Parallel()
	w := listen(t, lab.Routed)
	fatal.If(t, w.Node.Sysctl("net.netfilter.nf_conntrack_tcp_loose=0"))
	const tcp = policy.TCP
	reset := segment(w.Pod("a").Addr4, netip.MustParseAddrPort("198.51.100.1:80"))
	c, err := w.Pod("a").ListenPacket("ip4:tcp", "0.0.0.0")
	fatal.If(t, err)
	defer c.Close()
	if _, err := c.WriteTo(reset, ip4("198.51.100.1")); err != nil {
		t.Fatal(err)
	}
	fatal.Await(t, "the packet is denied", func() bool { return w.denied() > 0 })
	diff.Equal(t, 1, w.denied(), "packets were denied")
	w.expect("a", "tcp", "198.51.100.2:80", lab.Refused)
	w.same("logged of a", w.logged("a", 1), "namegate denied "+tcp.String()+" 198.51.100.2:80")
}
