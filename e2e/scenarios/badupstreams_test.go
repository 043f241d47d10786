package scenarios

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

// badUpstream is an upstream with a fault. Its number is in its addresses, and in the
// address in its false answers.
type badUpstream struct {
	name   string
	behave lab.Behaviour
	down   bool   // without a listener
	alone  ending // of a pod that has no other upstream
	slow   bool   // it does answer, but takes its time
	nosy   bool   // a pod that has a second upstream gets no more than one without
}

// honest is what every name has: an address that is made of it.
func honest(q *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(q)
	r.RecursionAvailable = true
	if q.Question[0].Qtype == dns.TypeA {
		r.Answer = []dns.RR{a(q.Question[0].Name, 60, addressOf(q.Question[0].Name))}
	}
	return r
}

// addressOf is the address of nN-M.…: 198.18.N.M.
func addressOf(name string) netip.Addr {
	var n, m int
	if _, err := fmt.Sscanf(strings.ToLower(name), "n%d-%d.", &n, &m); err != nil {
		return netip.AddrFrom4([4]byte{198, 18, 255, 255})
	}
	return netip.AddrFrom4([4]byte{198, 18, byte(n), byte(m)})
}

// late answers honestly after a while.
func late(d time.Duration) lab.Behaviour {
	reply := func(q *lab.Query) {
		time.Sleep(d)
		_ = q.Reply(honest(q.Msg))
	}
	return lab.Behaviour{UDP: reply, TCP: lab.EachTCP(reply)}
}

// says answers over UDP and TCP with a reply that was changed.
func says(change func(r *dns.Msg)) lab.Behaviour {
	reply := func(q *lab.Query) { _ = q.Send(packet(q.Msg, change)) }
	return lab.Behaviour{UDP: reply, TCP: lab.EachTCP(reply)}
}

// lies is says with an address that the liar wants to have opened.
func lies(number int, change func(r *dns.Msg)) lab.Behaviour {
	return says(func(r *dns.Msg) {
		r.Answer = []dns.RR{a(r.Question[0].Name, 60, victim(number))}
		change(r)
	})
}

// another is a name of the same length as the queried one.
func another(name string) string { return "m" + name[min(1, len(name)-1):] }

// elsewhere is an address that was not queried.
var elsewhere = netip.MustParseAddr("192.0.2.99")

func truncated(q *lab.Query) {
	_ = q.Send(packet(q.Msg, func(r *dns.Msg) { r.Truncated = true }))
}

// forgetful loses the first query for each name, as a bad link does.
func forgetful() lab.Behaviour {
	var known sync.Map
	b := lab.Honest(honest)
	reply := b.UDP
	b.UDP = func(q *lab.Query) {
		if _, again := known.LoadOrStore(dns.CanonicalName(q.Question[0].Name), true); again {
			reply(q)
		}
	}
	return b
}

// noise is no message at all.
func noise(q *lab.Query) {
	for _, wire := range [][]byte{{0}, {0xff, 0xfe}, bytes.Repeat([]byte{0xff}, 700), bytes.Repeat([]byte{0xc0, 0x0c}, 300)} {
		_ = q.Send(wire)
	}
}

// drips begins a reply over TCP that never ends.
func drips(_ *lab.Upstream, c net.Conn) {
	for _, err := c.Write([]byte{0x80}); err == nil; _, err = c.Write([]byte{0}) {
		time.Sleep(100 * time.Millisecond)
	}
}

// rootOnly is silent about every name but the root, which probes ask for.
func rootOnly(q *lab.Query) {
	if q.Question[0].Name == "." {
		_ = q.Reply(honest(q.Msg))
	}
}

// shouts answers in capital letters.
func shouts(r *dns.Msg) {
	q := &r.Question[0]
	q.Name = strings.ToUpper(q.Name)
	if q.Qtype == dns.TypeA {
		r.Answer = []dns.RR{a(q.Name, 60, addressOf(q.Name))}
	}
}

func badUpstreams() []badUpstream {
	return []badUpstream{
		0: {name: "slow", behave: late(900 * time.Millisecond), alone: replies, slow: true},
		1: {name: "too slow", behave: late(3 * time.Second), alone: either},
		2: {name: "one-way", behave: lab.Behaviour{}, alone: fails}, // takes queries and connections, says nothing
		3: {name: "refused by its host", down: true, alone: fails},
		4: {name: "wrong id", behave: lies(4, func(r *dns.Msg) { r.Id ^= 0x5555 }), alone: fails},
		5: {name: "wrong source address", alone: fails, behave: lab.Behaviour{
			UDP: func(q *lab.Query) {
				_ = q.SendFrom(elsewhere, packet(q.Msg, func(r *dns.Msg) { r.Answer = []dns.RR{a(q.Question[0].Name, 60, victim(5))} }))
			}}},
		6: {name: "wrong source port", alone: fails, behave: lab.Behaviour{
			UDP: func(q *lab.Query) {
				_ = q.SendFrom(netip.MustParseAddr(badAddress(6, true)), packet(q.Msg, func(r *dns.Msg) { r.Answer = []dns.RR{a(q.Question[0].Name, 60, victim(6))} }))
			}}},
		7:  {name: "wrong name in the question", alone: fails, behave: lies(7, func(r *dns.Msg) { r.Question[0].Name = another(r.Question[0].Name) })},
		8:  {name: "wrong type in the question", alone: fails, behave: lies(8, func(r *dns.Msg) { r.Question[0].Qtype = dns.TypeTXT })},
		9:  {name: "wrong class in the question", alone: fails, behave: lies(9, func(r *dns.Msg) { r.Question[0].Qclass = dns.ClassCHAOS })},
		10: {name: "the query itself in reply", alone: fails, behave: lies(10, func(r *dns.Msg) { r.Response = false })},
		11: {name: "capital letters", alone: replies, behave: says(shouts)},
		12: {name: "an answer for another name", alone: nothing, nosy: true, behave: lies(12, func(r *dns.Msg) { r.Answer[0].Header().Name = another(r.Question[0].Name) })},
		13: {name: "a lie before the truth", alone: replies, slow: true, behave: lab.Behaviour{
			UDP: func(q *lab.Query) {
				_ = q.Send(packet(q.Msg, func(r *dns.Msg) { r.Id++; r.Answer = []dns.RR{a(q.Question[0].Name, 60, victim(13))} }))
				_ = q.SendFrom(elsewhere, packet(q.Msg, func(r *dns.Msg) { r.Answer = []dns.RR{a(q.Question[0].Name, 60, victim(13))} }))
				time.Sleep(20 * time.Millisecond)
				_ = q.Reply(honest(q.Msg))
			}}},
		14: {name: "always truncated", alone: replies, behave: lab.Behaviour{UDP: truncated, TCP: lab.Honest(honest).TCP}},
		15: {name: "truncated, TCP reset", alone: fails, behave: lab.Behaviour{UDP: truncated, TCP: lab.ResetTCP}},
		16: {name: "truncated, TCP silent", alone: fails, behave: lab.Behaviour{UDP: truncated}},
		17: {name: "truncated, TCP truncated", alone: fails, behave: lab.Behaviour{UDP: truncated, TCP: lab.EachTCP(truncated)}},
		18: {name: "SERVFAIL", alone: fails, behave: says(func(r *dns.Msg) { r.Rcode = dns.RcodeServerFailure })},
		19: {name: "REFUSED", alone: fails, behave: says(func(r *dns.Msg) { r.Rcode = dns.RcodeRefused })},
		20: {name: "SERVFAIL with an address", alone: fails, behave: lies(20, func(r *dns.Msg) { r.Rcode = dns.RcodeServerFailure })},
		21: {name: "noise", alone: fails, behave: lab.Behaviour{UDP: noise, TCP: lab.EachTCP(noise)}},
		22: {name: "truncated, noise over TCP", alone: fails, behave: lab.Behaviour{UDP: truncated, TCP: lab.EachTCP(noise)}},
		23: {name: "loses each query once", alone: replies, slow: true, behave: forgetful()},
		24: {name: "truncated, TCP drips", alone: fails, behave: lab.Behaviour{UDP: truncated, TCP: drips}},
		25: {name: "well but for names", alone: fails, slow: true, behave: lab.Behaviour{UDP: rootOnly}},
	}
}

// badAddress is where the upstream with a number is; one of two, so that what one
// zone learned of it is not known in the other.
func badAddress(number int, alone bool) string {
	if alone {
		return fmt.Sprintf("192.0.2.%d", 100+number)
	}
	return fmt.Sprintf("2001:db8:53::%d", number)
}

// allBad are the numbers of upstreams of which a pod gets nothing.
var allBad = []int{2, 3, 4, 15, 16, 21}
