package proxy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/counters"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// byLibrary are upstreams no answer of which is read in place.
type byLibrary struct{ upstreams }

func (u byLibrary) Start(q wire.Query, to upstream.Responder, batch *upstream.Batch) {
	u.upstreams.Start(q, libraryResponder{to}, batch)
}

type libraryResponder struct{ upstream.Responder }

func (libraryResponder) Packet([]byte, netip.AddrPort) bool { return false }

// inPlaceAnswers are answers to the name before the dot, by its first letter.
func inPlaceAnswers(q *dns.Msg, _ bool) [][]byte {
	n := q.Question[0].Name
	kind := map[uint16]string{dns.TypeA: "A 192.0.2.", dns.TypeAAAA: "AAAA 2001:db8::"}[q.Question[0].Qtype]
	rr := func(owner string, ttl uint32, i int) string { return fmt.Sprintf("%s %d IN %s%d", owner, ttl, kind, i) }
	var rrs []string
	switch n[0] {
	case 'a':
		rrs = []string{rr(n, 60, 1)}
	case 'b':
		rrs = []string{rr(n, 60, 1), rr(n, 7, 2), rr(n, 60, 3)}
	case 'c':
		rrs = []string{n + " 20 IN CNAME cdn.test.", rr("cdn.test.", 300, 4)}
	case 'd':
		rrs = []string{rr(n, 0, 1)}
	case 'e':
		rrs = []string{rr(n, 86400, 1), rr(n, 60, 99)} // a Service's
	case 'f':
		rrs = []string{rr(n, 1<<31, 99)}
	case 'g':
		for i := range 70 {
			rrs = append(rrs, rr(n, 30, 100+i))
		}
	case 'h':
		return [][]byte{says(q, func(r *dns.Msg) { r.AuthenticatedData, r.Authoritative = true, true }, rr(n, 60, 1))}
	}
	return [][]byte{says(q, nil, rrs...)}
}

// TestReadInPlaceOrByTheLibrary: reply, grants, log and the entry in the cache are the
// same whichever way an answer is read.
func TestReadInPlaceOrByTheLibrary(t *testing.T) {
	for _, lines := range [][]string{{}, {"cache"}, {"cache 1h {\nmin_ttl 20s\nserve_stale 1h\nprefetch 2 1m 50%\n}", "ttl 5s 1h"}, {"cache 30s {\nmin_ttl 5s\n}", "ttl 0s 20s"}} {
		var labs [2]*socketLab
		var at [2]netip.AddrPort
		up := startScript(t, inPlaceAnswers)
		for i := range labs {
			labs[i] = newSocketLab(t, true)
			labs[i].asks(configWith(t, lines...), nil, up)
			if i == 1 {
				zones := labs[i].s.setup.Load().zones
				zones[0].upstreams = byLibrary{zones[0].upstreams}
			}
			at[i] = labs[i].listen()
		}
		entries := 0
		for pod := 2; pod <= 7; pod++ {
			for _, letter := range "abcdefgh" {
				for form := range 8 {
					n := fmt.Sprintf("%c%d-%d.example.org", letter, pod, form)
					m := newQuery(n, []uint16{dns.TypeA, dns.TypeAAAA}[form&1])
					if form&2 != 0 {
						m.SetEdns0(1232, form&4 != 0)
						m.AuthenticatedData = form&4 == 0
					} else if form&4 != 0 {
						m.Question[0].Name = strings.ToUpper(m.Question[0].Name)
					}
					var said [2]string
					for i, l := range labs {
						said[i] = lowerCase(exchange(t, client(t, "udp", fmt.Sprintf("127.0.0.%d", pod), at[i]), m))
						l.settled()
					}
					diff.MustEqual(t, said[1], said[0], "told pod", pod, "that asked", m, "beside the library")
					asked := policytest.Name(n)
					equal(t, "grants for "+n, labs[0].granter.of(asked), labs[1].granter.of(asked))
					var logged [2][]string
					var kept [2]string
					for i, l := range labs {
						for _, r := range l.log.of(asked) {
							logged[i] = append(logged[i], lineOf(t, r))
						}
						a := askFor(t, n)
						a.Type = m.Question[0].Qtype
						a.Flags |= wire.AD.If(m.AuthenticatedData) | wire.DO.If(m.IsEdns0() != nil && m.IsEdns0().Do())
						if e := l.answers().cache.Get(a); e != nil {
							held := e.Message()
							held.Extra = nil
							until := 0
							for e.Fresh(time.Duration(until) * time.Second) {
								until++
							}
							kept[i] = fmt.Sprint(lowerCase(held), e.From, until, e.Stale(time.Duration(until)*time.Second), l.answers().cache.Clients(e))
						}
					}
					equal(t, "the log of "+n, logged[0], logged[1])
					if kept[0] != "" {
						entries++
					}
					diff.MustEqual(t, kept[1], kept[0], "kept for", m, "by the library")
				}
			}
		}
		diff.Equal(t, len(lines) > 0, entries > 0, "kept", entries, "answers with", lines)
		short, long := labs[0].settled(), labs[1].settled()
		for _, s := range []*counters.Stats{&short, &long} {
			s.CacheBytes = 0 // it keeps answers as they came, or as the library packs them
		}
		if short != long || short.Panics != 0 {
			t.Errorf("counted\n%+v\nby the library\n%+v", short, long)
		}
	}
}
