package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// ResolvConf is where a pod finds its resolver.
const ResolvConf = "/etc/resolv.conf"

// Answer is the outcome of one DNS question.
type Answer struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// Server is ADDRESS:PORT of the resolver that was asked.
	Server string `json:"server"`
	// Class is OK if any answer came, whatever its Rcode.
	Class Class        `json:"class"`
	Rcode string       `json:"rcode,omitempty"`
	Addrs []netip.Addr `json:"addrs,omitempty"`
	// TTL is the smallest of the answer's records, in seconds.
	TTL    uint32 `json:"ttl"`
	Error  string `json:"error,omitempty"`
	Millis int64  `json:"millis"`
}

// Lookup asks a resolver for a name, as it is, without search paths; "" is the
// first one of ResolvConf. Network is udp or tcp; it does not ask again.
func Lookup(ctx context.Context, network, name, qtype, server string) Answer {
	begin := time.Now()
	a := Answer{Name: name, Type: qtype, Server: server, Class: OK}
	if err := a.ask(ctx, network); err != nil {
		a.Class, a.Error = Classify(err), err.Error()
	}
	a.Millis = time.Since(begin).Milliseconds()
	return a
}

func (a *Answer) ask(ctx context.Context, network string) error {
	var err error
	if a.Server, err = Server(a.Server); err != nil {
		return err
	}
	t, ok := dns.StringToType[strings.ToUpper(a.Type)]
	if !ok {
		return fmt.Errorf("no such type: %s", a.Type)
	}
	client := dns.Client{Net: network, Timeout: dnsPatience}
	r, _, err := client.ExchangeContext(ctx, new(dns.Msg).SetQuestion(dns.Fqdn(a.Name), t), a.Server)
	if err != nil {
		return err
	}
	a.Rcode = dns.RcodeToString[r.Rcode]
	a.read(r.Answer)
	return nil
}

// dnsPatience is what resolvers of the C library have.
const dnsPatience = 5 * time.Second

func (a *Answer) read(records []dns.RR) {
	for i, rr := range records {
		if ttl := rr.Header().Ttl; i == 0 || ttl < a.TTL {
			a.TTL = ttl
		}
		var ip net.IP
		switch rr := rr.(type) {
		case *dns.A:
			ip = rr.A
		case *dns.AAAA:
			ip = rr.AAAA
		default:
			continue
		}
		addr, _ := netip.AddrFromSlice(ip)
		a.Addrs = append(a.Addrs, addr.Unmap())
	}
}

// Server returns ADDRESS:PORT of a resolver that is written with or without its
// port; "" is the first one of ResolvConf.
func Server(word string) (string, error) {
	if word == "" {
		conf, err := dns.ClientConfigFromFile(ResolvConf)
		if err != nil {
			return "", fmt.Errorf("find the resolver: %w", err)
		}
		if len(conf.Servers) == 0 {
			return "", errors.New(ResolvConf + " names no resolver")
		}
		word = conf.Servers[0]
	}
	if at, err := netip.ParseAddrPort(word); err == nil {
		return at.String(), nil
	}
	addr, err := netip.ParseAddr(word)
	if err != nil {
		return "", fmt.Errorf("resolver %q: %w", word, err)
	}
	return netip.AddrPortFrom(addr, 53).String(), nil
}

// Got is a lookup and the connections that it led to.
type Got struct {
	Answer Answer    `json:"answer"`
	Dials  []Dialled `json:"dials"`
	// Class is that of the last connection, or of the lookup if there was none;
	// Failed if the answer had no address.
	Class Class `json:"class"`
}

// Get looks up the IPv4 addresses of a name, or the IPv6 ones with a network of
// tcp6 or udp6, and at once connects to one after the other until one works.
func Get(ctx context.Context, network, name string, port int) Got {
	qtype := "A"
	if strings.HasSuffix(network, "6") {
		qtype = "AAAA"
	}
	g := Got{Answer: Lookup(ctx, "udp", name, qtype, "")}
	g.Class = g.Answer.Class
	if g.Class == OK && len(g.Answer.Addrs) == 0 {
		g.Class = Failed
	}
	for _, addr := range g.Answer.Addrs {
		d := Dial(ctx, network, net.JoinHostPort(addr.String(), strconv.Itoa(port)))
		g.Dials = append(g.Dials, d)
		if g.Class = d.Class; g.Class == OK {
			break
		}
	}
	return g
}
