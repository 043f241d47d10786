package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/miekg/dns"
)

// lookupPatience is how long a query waits for its answer, lookupTries how often a query over
// UDP is sent, as by a stub resolver: a datagram may be lost.
const (
	lookupPatience = 2 * time.Second
	lookupTries    = 3
)

// looked is the outcome of one DNS query.
type looked struct {
	Rcode   string   `json:"rcode,omitempty"`
	Records []string `json:"records,omitempty"` // addresses and targets, in the order of the answer
	Error   string   `json:"error,omitempty"`
	Tries   int      `json:"tries"` // queries sent over UDP
}

// lookup asks the pod's resolver, or another, with TCP where the answer over UDP is truncated.
func lookup(flags *flag.FlagSet, args []string) error {
	server := flags.String("server", "", "")
	tcp := flags.Bool("tcp", false, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	args = flags.Args()
	if len(args) != 2 || dns.StringToType[args[1]] == 0 {
		return fmt.Errorf("write NAME TYPE, not %q", args)
	}
	if *server == "" {
		config, err := dns.ClientConfigFromFile("/etc/resolv.conf")
		if err != nil {
			return fmt.Errorf("find the resolver: %w", err)
		}
		*server = config.Servers[0]
	}
	query := new(dns.Msg).SetQuestion(dns.Fqdn(args[0]), dns.StringToType[args[1]])
	query.SetEdns0(1232, false)
	at := net.JoinHostPort(*server, "53")
	client := dns.Client{Timeout: lookupPatience}
	if *tcp {
		client.Net = "tcp"
	}
	tries := 1
	r, _, err := client.Exchange(query, at)
	for ; !*tcp && errors.Is(err, os.ErrDeadlineExceeded) && tries < lookupTries; tries++ {
		r, _, err = client.Exchange(query, at)
	}
	if err == nil && r.Truncated {
		client.Net = "tcp"
		r, _, err = client.Exchange(query, at)
	}
	if err != nil {
		return show(looked{Error: classify(err).Error(), Tries: tries})
	}
	l := looked{Rcode: dns.RcodeToString[r.Rcode], Tries: tries}
	for _, rr := range r.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			l.Records = append(l.Records, rr.A.String())
		case *dns.AAAA:
			l.Records = append(l.Records, rr.AAAA.String())
		case *dns.CNAME:
			l.Records = append(l.Records, rr.Target)
		case *dns.PTR:
			l.Records = append(l.Records, rr.Ptr)
		}
	}
	return show(l)
}
