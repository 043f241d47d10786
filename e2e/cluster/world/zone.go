package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// zone is what the world's DNS knows: a file of records, read again whenever it
// changes, and names whose addresses are in the name itself.
//
//	198-51-100-7.ip.test          A 198.51.100.7
//	2001-db8--7.ip.test           AAAA 2001:db8::7
//	ttl-5.198-51-100-7.ip.test    the same with a TTL of 5 s instead of 60
//	ANYTHING.rotate.test          an address of 198.18.0.0/15 or 2001:db8:18::/48,
//	                              another one each time
type zone struct {
	file string

	mu      sync.Mutex
	changed time.Time
	records map[string][]dns.RR
}

const defaultTTL = 60

// answer replies to a query.
func (z *zone) answer(query *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(query)
	r.RecursionAvailable = true
	if len(query.Question) != 1 {
		r.Rcode = dns.RcodeFormatError
		return r
	}
	records, err := z.load()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		r.Rcode = dns.RcodeServerFailure
		return r
	}
	q := query.Question[0]
	found := false
	// A chain of aliases is followed; eight are more than anybody needs.
	for name, hop := dns.CanonicalName(q.Name), 0; name != "" && hop < 8; hop++ {
		all := lookup(records, name)
		found = found || len(all) > 0
		name = ""
		for _, rr := range all {
			rr = dns.Copy(rr)
			if hop == 0 {
				rr.Header().Name = q.Name
			}
			if rr.Header().Rrtype == q.Qtype {
				r.Answer = append(r.Answer, rr)
			} else if alias, ok := rr.(*dns.CNAME); ok {
				r.Answer = append(r.Answer, alias)
				name = dns.CanonicalName(alias.Target)
			}
		}
	}
	if !found {
		r.Rcode = dns.RcodeNameError
	}
	if len(r.Answer) == 0 {
		r.Ns = append(r.Ns, authority(q.Name))
	}
	return r
}

// authority lets a resolver remember for a second that there is nothing.
func authority(name string) dns.RR {
	labels := dns.SplitDomainName(name)
	apex := "."
	if len(labels) > 0 {
		apex = labels[len(labels)-1] + "."
	}
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: apex, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 1},
		Ns:  "ns.test.", Mbox: "root.test.", Serial: 1, Refresh: 1, Retry: 1, Expire: 1, Minttl: 1,
	}
}

// lookup returns all records of a name: those of the file, those of the wildcard
// beside it, or those that the name itself says.
func lookup(records map[string][]dns.RR, name string) []dns.RR {
	if found := records[name]; len(found) > 0 {
		return found
	}
	if i, end := dns.NextLabel(name, 0); !end {
		if found := records["*."+name[i:]]; len(found) > 0 {
			out := make([]dns.RR, 0, len(found))
			for _, rr := range found {
				rr = dns.Copy(rr)
				rr.Header().Name = name
				out = append(out, rr)
			}
			return out
		}
	}
	if dns.IsSubDomain("rotate.test.", name) {
		return []dns.RR{address(name, rotating4(), 1), address(name, rotating6(), 1)}
	}
	return spelled(name)
}

func rotating4() netip.Addr {
	n := rand.Uint32N(1 << 17)
	return netip.AddrFrom4([4]byte{198, 18 + byte(n>>16), byte(n >> 8), byte(n)})
}

func rotating6() netip.Addr {
	b := [16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 0x18}
	binary.BigEndian.PutUint32(b[12:], rand.Uint32())
	return netip.AddrFrom16(b)
}

// spelled reads the address and the TTL that a name of ip.test spells.
func spelled(name string) []dns.RR {
	labels := dns.SplitDomainName(name)
	if len(labels) < 3 || strings.Join(labels[len(labels)-2:], ".") != "ip.test" {
		return nil
	}
	word := labels[len(labels)-3]
	addr, err := netip.ParseAddr(strings.ReplaceAll(word, "-", "."))
	if err != nil {
		if addr, err = netip.ParseAddr(strings.ReplaceAll(word, "-", ":")); err != nil {
			return nil
		}
	}
	ttl := uint64(defaultTTL)
	for _, l := range labels[:len(labels)-3] {
		if text, ok := strings.CutPrefix(l, "ttl-"); ok {
			if n, err := strconv.ParseUint(text, 10, 31); err == nil {
				ttl = n
			}
		}
	}
	return []dns.RR{address(name, addr, uint32(ttl))}
}

func address(name string, addr netip.Addr, ttl uint32) dns.RR {
	h := dns.RR_Header{Name: name, Class: dns.ClassINET, Ttl: ttl}
	if addr.Is4() {
		h.Rrtype = dns.TypeA
		return &dns.A{Hdr: h, A: addr.AsSlice()}
	}
	h.Rrtype = dns.TypeAAAA
	return &dns.AAAA{Hdr: h, AAAA: addr.AsSlice()}
}

// load returns the records of the file as it is now.
func (z *zone) load() (map[string][]dns.RR, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	info, err := os.Stat(z.file)
	if err != nil {
		return nil, fmt.Errorf("read the zone: %w", err)
	}
	if info.ModTime().Equal(z.changed) {
		return z.records, nil
	}
	f, err := os.Open(z.file)
	if err != nil {
		return nil, fmt.Errorf("read the zone: %w", err)
	}
	defer f.Close()
	records, err := parse(f, z.file)
	if err != nil {
		return nil, err
	}
	z.records, z.changed = records, info.ModTime()
	return records, nil
}

func parse(r io.Reader, file string) (map[string][]dns.RR, error) {
	records := map[string][]dns.RR{}
	p := dns.NewZoneParser(r, ".", file)
	p.SetDefaultTTL(defaultTTL)
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		name := dns.CanonicalName(rr.Header().Name)
		records[name] = append(records[name], rr)
	}
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("read the zone: %w", err)
	}
	return records, nil
}
