package proxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/wire"
)

// twinName is the name of a case: three letters under example.org.
func twinName(i int) string {
	return fmt.Sprintf("%c%c%c.example.org.", 'a'+i/676%26, 'a'+i/26%26, 'a'+i%26)
}

// twinScript answers each question as its name has it drawn, one in so many of
// those that cannot be read among it: they take all the time there is.
func twinScript(unread int) script {
	return func(q *dns.Msg, _ bool) [][]byte {
		n := strings.ToLower(q.Question[0].Name)
		rng := rand.New(rand.NewPCG(uint64(n[0])<<16|uint64(n[1])<<8|uint64(n[2]), 99))
		id := q.Id
		for q.Id = 4711; ; { // a name may point into the header
			packet := (&replyDraw{rng: rng}).reply(q)
			if new(dns.Msg).Unpack(packet) == nil || unread > 0 && rng.IntN(unread) == 0 {
				binary.BigEndian.PutUint16(packet, id)
				return [][]byte{packet}
			}
		}
	}
}

// twins are two servers alike: to one queries come through its socket, and so the
// short way where that can be, to the other the long way.
type twins struct {
	t           *testing.T
	short, long *expressLab
	at          netip.AddrPort
}

func newTwins(t *testing.T, unread int, lines ...string) *twins {
	w := &twins{t: t, short: newExpressLab(t, true), long: newExpressLab(t, true)}
	up := startScript(t, twinScript(unread))
	for _, l := range []*expressLab{w.short, w.long} {
		c := configWith(t, lines...)
		c.GrantTimeout = 10 * time.Second // the long way's runs on a clock that is not still
		l.asks(c, func(z *corefile.Zone) {
			z.MaxFails, z.Timeout, z.Deadline = 0, 2*time.Second, 2*time.Second
		}, up)
		l.granter.fails = func(grants []policy.Grant) error {
			if grants[0].Name[1]%11 == 0 {
				return errKernelBusy
			}
			return nil
		}
	}
	w.at = w.short.listen()
	return w
}

// ask gives both a query as from the pod's address and compares what they say.
func (w *twins) ask(c *dns.Conn, pod byte, q *dns.Msg) {
	packet := packed(w.t, q)
	if _, err := c.Write(packet); err != nil {
		w.t.Error(err)
		return
	}
	var buf [mmsg.PacketBytes]byte
	n, err := c.Read(buf[:])
	if err != nil {
		w.t.Errorf("%v: %v", q.Question, err)
		return
	}
	who := w.long.s.identify(netip.AddrFrom4([4]byte{10, 1, 0, pod}), endpoint)
	want := w.long.s.handle(packet, who, false)
	if n > max(512, len(want)+64) {
		w.t.Errorf("%v: %d bytes, the long way %d", q.Question, n, len(want))
	}
	if !bytes.Equal(buf[:2], packet[:2]) {
		w.t.Errorf("%v: another id", q.Question)
	}
	got := parsed(w.t, buf[:n])
	if len(got.Question) != 1 || got.Question[0] != q.Question[0] {
		w.t.Errorf("asked %v, told of %v", q.Question, got.Question)
	}
	if g, l := lowerCase(got), lowerCase(parsed(w.t, want)); g != l {
		w.t.Errorf("pod %d asked %v and was told\n%s\nthe long way\n%s", pod, q, g, l)
	}
}

// compare compares what both have granted, kept and logged for a name.
func (w *twins) compare(a wire.Query) {
	equal(w.t, "grants for "+a.Name.String(), w.short.granter.of(a.Name), w.long.granter.of(a.Name))
	var lines [2][]string
	for i, l := range []*expressLab{w.short, w.long} {
		for _, r := range l.log.of(a.Name) {
			lines[i] = append(lines[i], lineOf(w.t, r))
		}
	}
	equal(w.t, "the log of "+a.Name.String(), lines[0], lines[1])
	kept := func(l *expressLab) string {
		e := l.s.setup.Load().keeper.cache.get(a, 0)
		if e == nil {
			return "nothing"
		}
		m := e.message()
		m.Extra = nil // an OPT record is nobody's
		return fmt.Sprintf("%s born %v end %v gone %v from %v asked by %v", lowerCase(m), e.born, e.end, e.gone, e.from, e.askers)
	}
	if g, l := kept(w.short), kept(w.long); g != l {
		w.t.Errorf("kept for %v:\n%s\nthe long way\n%s", a, g, l)
	}
}

// TestShortWaySaysTheSame: reply, grants, log, what is kept and counters.
func TestShortWaySaysTheSame(t *testing.T) {
	const workers, cases = 16, 320
	for i, lines := range [][]string{
		{},
		{"cache"},
		{"cache 1h {\nleast 20s\nserve_stale 1h\nprefetch 2 1m 50%\n}", "ttl 5s 1h"},
		{"cache 30s {\nleast 5s\n}", "ttl 0s 20s"},
	} {
		t.Run(strings.Join(lines, " "), func(t *testing.T) {
			w := newTwins(t, map[bool]int{true: 60}[i == 0], lines...)
			var wg sync.WaitGroup
			for k := range workers {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
					for at := k; at < cases; at += workers {
						pod := byte(2 + rng.IntN(6))
						c := client(t, "udp", fmt.Sprintf("127.0.0.%d", pod), w.at)
						n := twinName((at*31 + i) % 17576)
						q := drawQuery(rng, n)
						w.ask(c, pod, q)
						if rng.IntN(3) == 0 {
							again := q.Copy()
							again.Id = dns.Id()
							w.ask(c, pod, again)
						}
						_ = c.Close()
						asked, _ := readQuestion(q)
						w.compare(queryOf(asked, q))
					}
				})
			}
			wg.Wait()
			wantSameCounters(t, i == 0, w.short.settled(), w.long.settled())
			if thens := w.short.granter.thens.Load(); thens < cases/10 {
				t.Errorf("%d of %d went the short way: the test is of something else", thens, cases)
			}
			if w.long.granter.thens.Load() != 0 {
				t.Error("the long way went the short one")
			}
		})
	}
}

// wantSameCounters compares the counters that do not tell which way was taken.
func wantSameCounters(t *testing.T, unread bool, short, long Stats) {
	t.Helper()
	for _, s := range []*Stats{&short, &long} {
		if unread { // the long way waits past a reply that cannot be read, the short way asks over TCP
			s.UpstreamQueries, s.UpstreamTCP, s.UpstreamFailures, s.WrongReplies = 0, 0, 0, 0
		}
		s.CacheBytes = 0 // it keeps answers as they came, the long way as it packs them
	}
	if short != long {
		t.Errorf("counted on the short way\n%+v\nthe long way\n%+v", short, long)
	}
	if short.Panics != 0 || short.RepliesLost != 0 {
		t.Errorf("%+v", short)
	}
}

// TestWhatIsNotForTheShortWay: nobody flies there who must not.
func TestWhatIsNotForTheShortWay(t *testing.T) {
	type (
		zone = corefile.Zone
		msg  = dns.Msg
	)
	for what, change := range map[string]func(*zone, *msg){
		"another type":     func(_ *zone, m *msg) { m.Question[0].Qtype = dns.TypeHTTPS },
		"another class":    func(_ *zone, m *msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		"not allowed":      func(_ *zone, m *msg) { m.Question[0].Name = "www.example.net." },
		"the proxy's name": func(_ *zone, m *msg) { m.Question[0].Name = "alive.namegate.invalid." },
		"force_tcp":        func(z *zone, _ *msg) { z.ForceTCP = true },
		"an option": func(_ *zone, m *msg) {
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_NSID{Code: dns.EDNS0NSID}}
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := newExpressLab(t, true)
			m := newQuery("www.example.org", dns.TypeA)
			l.asks(configWith(t), func(z *zone) { change(z, m) }, startScript(t, honest("192.0.2.1")))
			exchange(t, client(t, "udp", "127.0.0.2", l.listen()), m)
			if n := l.granter.thens.Load(); n != 0 {
				t.Errorf("%d went the short way", n)
			}
			for _, r := range l.log.of(name(t, "www.example.org")) {
				if r.Verdict == audit.Failed {
					t.Errorf("logged %+v", r)
				}
			}
		})
	}
}
