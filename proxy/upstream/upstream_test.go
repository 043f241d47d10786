package upstream

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

func TestReadReply(t *testing.T) {
	a := askFor(t, "www.example.org")
	query := a.Pack(7)
	q := new(dns.Msg)
	fatal.If(t, q.Unpack(query))
	good := upstreamtest.Says(q, nil, "www.example.org. 60 IN A 192.0.2.1")
	long := append(append([]byte{}, good...), make([]byte, PacketBytes-len(good))...)
	for _, tt := range []struct {
		name      string
		reply     []byte
		nothing   bool
		truncated bool
		answers   int
	}{
		{name: "good", reply: good, answers: 1},
		{name: "empty", nothing: true},
		{name: "cut", reply: good[:len(good)-1], nothing: true},
		{name: "cut, and it says so", reply: edited(good[:len(good)-1], 2, 0x02), truncated: true},
		{name: "TC", reply: edited(good, 2, 0x02), truncated: true},
		{name: "as long as the buffer", reply: long, truncated: true},
		{name: "more answers announced than there are", reply: edited(good, 6, 0x40), answers: 1},
		{name: "of another id", reply: edited(good, 1, 0x80), nothing: true},
	} {
		m := read(query, tt.reply, a.QuestionEnd())
		if (m == nil) != tt.nothing {
			t.Errorf("%s: %v", tt.name, m)
			continue
		}
		if m != nil && (m.Truncated != tt.truncated || len(m.Answer) != tt.answers) {
			t.Errorf("%s: TC %v, %d answers", tt.name, m.Truncated, len(m.Answer))
		}
	}
}

// edited returns a copy with bits set in one byte.
func edited(b []byte, at int, bits byte) []byte {
	b = append([]byte{}, b...)
	b[at] |= bits
	return b
}

// TestPortsAndIDsAreRandom: over many queries neither repeats in a way that
// helps to guess the next.
func TestPortsAndIDsAreRandom(t *testing.T) {
	ids := map[uint16]int{}
	ports := map[netip.AddrPort]int{}
	var mu sync.Mutex
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	fatal.If(t, err)
	defer pc.Close()
	go upstreamtest.EachQuery(pc, func(q *dns.Msg, from netip.AddrPort) {
		mu.Lock()
		ids[q.Id]++
		ports[from]++
		mu.Unlock()
		_, _ = pc.WriteToUDPAddrPort(upstreamtest.Says(q, nil), from)
	})
	u := newUpstream(pc.LocalAddr().(*net.UDPAddr).AddrPort(), new(Pool))
	defer u.close()
	const n = 3 * socketUses
	for range n {
		if _, err := u.exchange(askFor(t, "www.example.org"), bounds{udp: time.Now().Add(time.Minute)}); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	// Ids are drawn of 65,536, and none repeats on a port: of 3 ports with all their uses about
	// 11,540 different ones. On a slow machine the age of a socket ends it before, and there are more ports.
	unused := 1.0
	for _, uses := range ports {
		unused *= 1 - float64(uses)/(1<<16)
	}
	want := int((1 - unused) * (1 << 16))
	if len(ids) < want-150 || len(ids) > want+150 || len(ports) < n/socketUses {
		t.Errorf("%d ids and %d ports in %d queries, want about %d ids", len(ids), len(ports), n, want)
	}
	for p, uses := range ports {
		if uses > socketUses {
			t.Errorf("port %d was used %d times", p.Port(), uses)
		}
	}
}

func TestForgedFromAnotherSource(t *testing.T) {
	// Packets of a forger who knows the id and the port, but cannot send from the
	// upstream's address, are not even read: the socket is connected.
	forger, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.66:0")))
	fatal.If(t, err)
	defer forger.Close()
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	fatal.If(t, err)
	defer pc.Close()
	go func() {
		buf := make([]byte, 512)
		n, from, err := pc.ReadFromUDPAddrPort(buf)
		q := new(dns.Msg)
		if err != nil || q.Unpack(buf[:n]) != nil {
			return
		}
		_, _ = forger.WriteToUDPAddrPort(upstreamtest.Says(q, nil, q.Question[0].Name+" 60 IN A "+forged), from)
		_, _ = pc.WriteToUDPAddrPort(upstreamtest.Says(q, nil, q.Question[0].Name+" 60 IN A 192.0.2.1"), from)
	}()
	pool := new(Pool)
	stats := &pool.stats
	u := newUpstream(pc.LocalAddr().(*net.UDPAddr).AddrPort(), pool)
	defer u.close()
	end := time.Now().Add(time.Minute)
	m, err := u.exchange(askFor(t, "www.example.org"), bounds{udp: end, tcp: end})
	if err != nil || m.Answer[0].(*dns.A).A.String() != "192.0.2.1" || stats.WrongReplies.Load() != 0 {
		t.Errorf("%v, %v, wrong %d", m, err, stats.WrongReplies.Load())
	}
}

// TestSilentTCPConnectionIsClosed: after a truncated answer TCP that says nothing costs its share
// once, then nothing for a while; the only upstream is asked there again and again.
func TestSilentTCPConnectionIsClosed(t *testing.T) {
	up := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		if tcp {
			<-t.Context().Done()
			return nil
		}
		return [][]byte{upstreamtest.Says(q, func(m *dns.Msg) { m.Truncated = true })}
	})
	u := newUpstream(up.Addr, new(Pool))
	defer u.close()
	ask := func(share time.Duration) error {
		end := time.Now().Add(time.Minute)
		if share == 0 {
			end = time.Now().Add(2 * time.Second)
		}
		_, err := u.exchange(askFor(t, "www.example.org"), bounds{udp: end, tcp: end, share: share})
		return err
	}
	diff.Is(t, os.ErrDeadlineExceeded, ask(400*time.Millisecond), "the first")
	diff.Is(t, errSilentTCP, ask(400*time.Millisecond), "the second")
	diff.Is(t, os.ErrDeadlineExceeded, ask(0), "where there is no other")
	u.silentTCP.Store(0)
	diff.Is(t, os.ErrDeadlineExceeded, ask(400*time.Millisecond), "after a while")
}
