package proxy

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// wantHonest checks the invariants of every reply.
func (r *fuzzRun) wantHonest(packet, msg []byte, who identity, tcp bool) {
	r.t.Helper()
	reply := new(dns.Msg)
	fatal.If(r.t, reply.Unpack(msg), "the reply cannot be read", "query", packet, "reply", msg)
	if string(msg[:2]) != string(packet[:2]) || !reply.Response || reply.Opcode != int(packet[2]>>3&0xf) {
		r.t.Fatalf("the reply has another id or opcode, or is none\nquery %x\nreply %x", packet, msg)
	}
	query := new(dns.Msg)
	if query.Unpack(packet) != nil {
		if reply.Rcode != dns.RcodeFormatError || len(msg) > len(packet) {
			r.t.Fatalf("a broken query got %v", reply)
		}
		return
	}
	if reply.Rcode != dns.RcodeFormatError && len(query.Question) > 0 && (len(reply.Question) != 1 || reply.Question[0] != query.Question[0]) {
		r.t.Fatalf("the question is not repeated\nquery %v\nreply %v", query, reply)
	}
	most := dns.MinMsgSize
	opt := query.IsEdns0()
	if opt != nil {
		most = wire.UDPLimit(opt.UDPSize())
	}
	if !tcp && len(msg) > most {
		r.t.Fatalf("the client takes %d bytes, the reply has %d", most, len(msg))
	}
	if got := reply.IsEdns0(); (got != nil) != (opt != nil) && reply.Rcode != dns.RcodeFormatError && reply.Rcode != dns.RcodeServerFailure {
		r.t.Fatalf("EDNS is answered by none, or none by EDNS\nquery %v\nreply %v", query, reply)
	}
	r.wantOpen(query, reply, who)
}

// wantOpen checks that each address of an allowed name in a reply is open to the pod for
// at least its TTL, but for those of the cluster where the server name is required, and that the name is not hidden then.
func (r *fuzzRun) wantOpen(query, reply *dns.Msg, who identity) {
	r.t.Helper()
	q, ok := answer.ReadQuestion(query)
	if !ok || who.view == nil || !who.view.Enforced || q.Class != dns.ClassINET || !who.view.Decide(q.Name).Allowed() {
		return
	}
	checks, guard := who.view.Decide(q.Name).Checks(), r.s.setup.Load().guard
	for _, section := range [][]dns.RR{reply.Answer, reply.Ns, reply.Extra} {
		for _, rr := range section {
			if s := rr.String(); checks && (strings.Contains(s, "ech=") || strings.Contains(s, `"h3`)) {
				r.t.Fatalf("%s hides the server name", s)
			}
			for _, a := range everyAddress(rr) {
				if checks && guard.Inside(a, who.snap) {
					continue
				}
				until := r.kernel.until(who.view.Pod.PodRef, a)
				if need := r.now().Add(time.Duration(rr.Header().Ttl) * time.Second); until.Before(need) {
					r.t.Fatalf("%v is told for %d s and open until %v, which is in %v\n%v", a, rr.Header().Ttl, until, until.Sub(r.now()), reply)
				}
			}
		}
	}
}

// everyAddress returns the addresses that a client could take from a record.
func everyAddress(rr dns.RR) (out []netip.Addr) {
	add := func(ips ...net.IP) {
		for _, ip := range ips {
			if a, ok := netip.AddrFromSlice(ip); ok {
				out = append(out, a.Unmap())
			}
		}
	}
	hints := func(rr *dns.SVCB) {
		for _, kv := range rr.Value {
			switch kv := kv.(type) {
			case *dns.SVCBIPv4Hint:
				add(kv.Hint...)
			case *dns.SVCBIPv6Hint:
				add(kv.Hint...)
			}
		}
	}
	switch rr := rr.(type) {
	case *dns.A:
		add(rr.A)
	case *dns.AAAA:
		add(rr.AAAA)
	case *dns.HTTPS:
		hints(&rr.SVCB)
	case *dns.SVCB:
		hints(rr)
	}
	return out
}

// wantSame compares a cached reply with a newly decided one. Names compressed to the
// client's spelling may differ in case.
func (r *fuzzRun) wantSame(packet, hit, long []byte) {
	r.t.Helper()
	diff.MustEqual(r.t, folded(r.t, long), folded(r.t, hit), "given again; query", packet)
}

func folded(t testing.TB, wire []byte) string {
	t.Helper()
	return strings.ToLower(parsed(t, wire).String())
}
