package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/miekg/dns"
)

// recordsFile holds records that replace those of the zone, name by name.
const recordsFile = "/records"

// zone is a DNS server for the records of two files. Both are read for each query.
type zone struct{ file, records string }

func serveDNS(flags *flag.FlagSet, args []string) error {
	z := &zone{records: recordsFile}
	flags.StringVar(&z.file, "zone", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := read(z.file); err != nil {
		return err
	}
	packets, err := net.ListenPacket("udp", ":53")
	if err != nil {
		return fmt.Errorf("serve DNS: %w", err)
	}
	streams, err := net.Listen("tcp", ":53")
	if err != nil {
		return fmt.Errorf("serve DNS: %w", err)
	}
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: z}, {Listener: streams, Handler: z}} {
		go func() {
			if err := s.ActivateAndServe(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}()
	}
	return wait()
}

// record replaces the records of names, until it is called again.
func record(_ *flag.FlagSet, args []string) error {
	text, err := one(args, "the records")
	if err != nil {
		return err
	}
	return os.WriteFile(recordsFile, []byte(text+"\n"), 0o644)
}

// ServeDNS implements dns.Handler.
func (z *zone) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	r := z.answer(query)
	size := dns.MaxMsgSize
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		size = dns.MinMsgSize
		if o := query.IsEdns0(); o != nil {
			size = max(size, int(o.UDPSize()))
			r.SetEdns0(dns.DefaultMsgSize, false)
		}
	}
	r.Truncate(size)
	_ = w.WriteMsg(r)
}

// answer follows chains of aliases, so that one response has all of a chain.
func (z *zone) answer(query *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(query)
	r.Authoritative = true
	known, err := z.load()
	if err != nil || len(query.Question) != 1 {
		r.Rcode = dns.RcodeServerFailure
		return r
	}
	q := query.Question[0]
	const hops = 8
	name := q.Name
	for i := 0; i < hops && name != ""; i++ {
		found := find(known, name)
		if i == 0 && found == nil {
			r.Rcode = dns.RcodeNameError
		}
		next := ""
		for _, rr := range found {
			rr = dns.Copy(rr)
			rr.Header().Name = name
			alias, is := rr.(*dns.CNAME)
			if rr.Header().Rrtype == q.Qtype || is {
				r.Answer = append(r.Answer, rr)
			}
			if is && q.Qtype != dns.TypeCNAME {
				next = alias.Target
			}
		}
		name = next
	}
	return r
}

// find returns the records of a name, or those of the wildcard that is nearest above it.
func find(known map[string][]dns.RR, name string) []dns.RR {
	name = dns.CanonicalName(name)
	if found := known[name]; found != nil {
		return found
	}
	for i, end := dns.NextLabel(name, 0); !end; i, end = dns.NextLabel(name, i) {
		if found := known["*."+name[i:]]; found != nil {
			return found
		}
		if known[name[i:]] != nil {
			return nil
		}
	}
	return nil
}

func (z *zone) load() (map[string][]dns.RR, error) {
	known, err := read(z.file)
	if err != nil {
		return nil, err
	}
	newer, err := read(z.records)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	for name, records := range newer {
		known[name] = records
	}
	return known, err
}

func read(file string) (map[string][]dns.RR, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the zone: %w", err)
	}
	known := map[string][]dns.RR{}
	p := dns.NewZoneParser(strings.NewReader(string(text)), ".", file)
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		name := dns.CanonicalName(rr.Header().Name)
		known[name] = append(known[name], rr)
	}
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("read the zone: %w", err)
	}
	return known, nil
}
