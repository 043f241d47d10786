package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

// The names and addresses of the outside world.
const (
	listedName = "www.example.org"
	listed4    = "198.51.100.10"
	listed6    = "2001:db8:1::10"
	// docsName is in a policy too, and only the forgery connects to it.
	docsName     = "docs.example.org"
	docs4        = "198.51.100.11"
	unlistedName = "other.test"
	unlisted4    = "203.0.113.30"
	feedName     = "feed.example.com"
	feed4        = "198.51.100.20"
	// raw4 has a web server and no name.
	raw4 = "203.0.113.99"
)

var zone = map[string][]string{
	listedName:   {listedName + ". 300 IN A " + listed4, listedName + ". 300 IN AAAA " + listed6},
	docsName:     {docsName + ". 300 IN A " + docs4},
	unlistedName: {unlistedName + ". 300 IN A " + unlisted4},
	feedName:     {feedName + ". 2 IN A " + feed4},
}

// answer is the world's resolver.
func answer(query *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(query)
	r.RecursionAvailable = true
	if len(query.Question) != 1 {
		r.Rcode = dns.RcodeFormatError
		return r
	}
	q := query.Question[0]
	records, there := zone[strings.TrimSuffix(strings.ToLower(q.Name), ".")]
	if !there {
		r.Rcode = dns.RcodeNameError
	}
	for _, text := range records {
		if rr, err := dns.NewRR(text); err == nil && rr.Header().Rrtype == q.Qtype {
			r.Answer = append(r.Answer, rr)
		}
	}
	return r
}

// web is a web server on port 80 of every address of the world.
type web struct{ server *http.Server }

func serveWeb(world *lab.Host) (*web, error) {
	l, err := world.Listen("[::]:80")
	if err != nil {
		return nil, fmt.Errorf("serve the web: %w", err)
	}
	w := &web{&http.Server{Handler: http.HandlerFunc(greet), ReadHeaderTimeout: 5 * time.Second}}
	go w.server.Serve(l)
	return w, nil
}

func (w *web) close() { _ = w.server.Close() }

// greet names who was asked, where, and by whom, as the server saw it.
func greet(w http.ResponseWriter, r *http.Request) {
	from, _, _ := net.SplitHostPort(r.RemoteAddr)
	at := ""
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		at, _, _ = net.SplitHostPort(a.String())
	}
	fmt.Fprintf(w, "%s at %s greets %s\n", r.Host, at, from)
}
