package proxy

import (
	"context"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/listener"
	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// once is a log that does not want repeated replies.
type once struct{ *lines }

func (once) Prepare(*audit.Record) *audit.Prepared { return nil }

// TestLogThatWantsNoRepeats: it gets new decisions only.
func TestLogThatWantsNoRepeats(t *testing.T) {
	for _, repeats := range []bool{true, false} {
		l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
		l.lines.keep = true
		var log DecisionLog = &l.lines
		if !repeats {
			log = once{&l.lines}
		}
		s, err := New(Options{Config: l.config, Granter: l.kernel, Log: log, Now: l.now})
		fatal.If(t, err)
		l.s = s
		l.use(l.config, l.up)
		l.s.Publish(compiled(t, labPolicies, labPods))
		short := 0
		for range 5 {
			if _, hit := l.any("10.1.0.2", newQuery("www.example.org", dns.TypeA)); hit {
				short++
			}
		}
		want := 5
		if !repeats {
			want = 5 - short
		}
		if short == 0 || len(l.lines.all) != want {
			t.Errorf("repeats %v: %d of 5 were given again, %d records, want %d", repeats, short, len(l.lines.all), want)
		}
	}
}

func TestOversizedCachedReplyIsEncodedAgain(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"a.wild.test TXT": {`a.wild.test. 60 IN TXT "` + strings.Repeat("x", 250) + `" "` + strings.Repeat("y", 250) + `" "` + strings.Repeat("z", 250) + `"`}})
	big, small := newQuery("a.wild.test", dns.TypeTXT), newQuery("a.wild.test", dns.TypeTXT)
	big.SetEdns0(1232, false)
	small.SetEdns0(600, false)
	for range 3 {
		l.any("10.1.0.2", big)
	}
	if _, hit := l.any("10.1.0.2", big); !hit {
		t.Fatal("not given again")
	}
	for range 2 {
		for _, q := range []*dns.Msg{small, newQuery("a.wild.test", dns.TypeTXT)} {
			if r, hit := l.any("10.1.0.2", q); hit || !r.Truncated || len(r.Answer) > 0 {
				t.Errorf("quick %v, truncated %v", hit, r.Truncated)
			}
		}
	}
	if _, hit := l.any("10.1.0.2", big); !hit {
		t.Error("a truncated reply took its place")
	}
}

// TestWholeAnswerOutlivesItsReplies: that a snapshot or a configuration is not the
// present one any more leaves nothing of it behind, once another reply is kept.
func TestOldSnapshotsAreReleased(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"a.wild.test A": {"a.wild.test. 600 IN A 192.0.2.1"}, "b.wild.test A": {"b.wild.test. 600 IN A 192.0.2.1"}})
	old := l.who("10.1.0.2")
	ask := func() {
		for range 3 {
			for _, n := range []string{"a.wild.test", "b.wild.test", "www.example.org"} {
				for _, from := range []string{"10.1.0.2", "10.1.0.8", "10.1.0.6"} {
					l.any(from, newQuery(n, dns.TypeA))
				}
			}
		}
	}
	ask()
	_, bytes := l.answers().cache.Usage()
	for range 3 {
		l.s.Publish(compiled(t, labPolicies, labPods))
		ask()
	}
	// One that was under way by the old snapshot leaves nothing either.
	l.s.handle(packed(t, newQuery("a.wild.test", dns.TypeA)), old, false)
	if _, after := l.answers().cache.Usage(); after != bytes {
		t.Errorf("%d bytes are kept, and %d without the old snapshots", after, bytes)
	}
}

// TestHitAllocatesNothing, from the packet to the reply in the queue, with the
// decision, a live grant and the log.
func TestHitAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 600 IN A 192.0.2.1", "www.example.org. 600 IN A 192.0.2.2"},
		"gone.wild.test AAAA": {"NXDOMAIN", soa + "30"}}, "cache {\nprefetch 5 1m 10%\nserve_stale\n}")
	log := audit.To(io.Discard, audit.Options{Node: "node-1", Queue: 1 << 30})
	defer log.Close(context.Background())
	l.s.log, l.s.granter = log, always{l.s.granter}
	h, replies := &handler{s: l.s, local: endpoint}, mmsg.NewReader(noSocket{})
	edns := newQuery("www.example.org", dns.TypeA)
	edns.SetEdns0(1232, false)
	for from, m := range map[string]*dns.Msg{"10.1.0.2": edns, "10.1.0.3": newQuery("WWW.example.org", dns.TypeA), "10.1.0.6": newQuery("www.example.org", dns.TypeA), "10.1.0.8": newQuery("gone.wild.test", dns.TypeAAAA)} {
		packet := packed(t, m)
		for range 3 {
			l.any(from, m)
		}
		l.pass(100 * time.Millisecond)
		p, hits := listener.NewPacket(replies, packet, netip.AddrPortFrom(mustAddr(from), 5353)), l.s.stats.CacheHits.Load()
		n := testing.AllocsPerRun(1000, func() {
			replies.Flush()
			h.take(&p, l.now())
		})
		diff.Equal(t, 0, n, from, "allocations")
		if got := l.s.stats.CacheHits.Load() - hits; got != 1001 || replies.Flush() != 1 {
			t.Errorf("%s: %d hits, or not one reply queued", from, got)
		}
	}
}

// always is a granter with which all is open.
type always struct{ Granter }

func (always) Covered([]policy.Grant) bool { return true }
func (always) Epoch() uint64               { return 0 }
