package scenarios

import (
	"strings"
	"sync"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

// zone is the content of the world's resolver: records by owner, in zone file form.
type zone struct {
	mu      sync.Mutex
	records map[string][]dns.RR
	special map[string]lab.Answerer
}

func newZone() *zone {
	return &zone{records: map[string][]dns.RR{}, special: map[string]lab.Answerer{}}
}

// add takes records in zone file form, one a line.
func (z *zone) add(text string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for line := range strings.Lines(text) {
		rr, err := dns.NewRR(strings.TrimSpace(line))
		if err != nil {
			panic(err)
		}
		if rr != nil {
			owner := strings.ToLower(rr.Header().Name)
			z.records[owner] = append(z.records[owner], rr)
		}
	}
}

// say lets a function answer for one name.
func (z *zone) say(name string, a lab.Answerer) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.special[dns.Fqdn(strings.ToLower(name))] = a
}

// answer follows CNAMEs as a resolver does.
func (z *zone) answer(query *dns.Msg) *dns.Msg {
	z.mu.Lock()
	q := query.Question[0]
	special := z.special[strings.ToLower(q.Name)]
	z.mu.Unlock()
	if special != nil {
		return special(query)
	}
	r := new(dns.Msg).SetReply(query)
	r.RecursionAvailable = true
	z.mu.Lock()
	defer z.mu.Unlock()
	owner := strings.ToLower(q.Name)
	for range 8 {
		next := ""
		for _, rr := range z.records[owner] {
			if rr.Header().Rrtype == q.Qtype {
				r.Answer = append(r.Answer, rr)
			}
			if c, ok := rr.(*dns.CNAME); ok && q.Qtype != dns.TypeCNAME {
				r.Answer = append(r.Answer, rr)
				next = strings.ToLower(c.Target)
			}
		}
		if next == "" {
			break
		}
		owner = next
	}
	if len(r.Answer) == 0 && z.records[owner] == nil {
		r.Rcode = dns.RcodeNameError
	}
	return r
}
